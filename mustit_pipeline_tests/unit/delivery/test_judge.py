"""Every status code has one meaning for the row that was sent."""

import pytest

from mustit_pipeline.delivery.product_server import Verdict, judge


@pytest.mark.parametrize("status", range(200, 600))
def test_a_status_is_done_stale_worth_another_try_or_refused(status: int) -> None:
    if status < 300:
        expected = Verdict.DONE
    elif status == 409:
        expected = Verdict.STALE
    elif status in (408, 422, 429) or status >= 500:
        expected = Verdict.RETRY
    else:
        expected = Verdict.REFUSED
    assert judge(status) is expected
