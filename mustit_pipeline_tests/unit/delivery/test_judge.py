"""Every status code has one meaning for the row that was sent."""

import pytest

from mustit_pipeline.delivery.product_server import Verdict, judge


@pytest.mark.parametrize("status", range(200, 600))
def test_a_status_has_one_meaning(status: int) -> None:
    if status < 300:
        expected = Verdict.DONE
    elif status == 409:
        expected = Verdict.STALE
    elif status in (429, 502, 503, 504):
        expected = Verdict.OVERLOADED
    elif status in (401, 403):
        expected = Verdict.UNAUTHORIZED
    elif status in (408, 422, 425) or status >= 500:
        expected = Verdict.RETRY
    else:
        expected = Verdict.REFUSED
    assert judge(status) is expected
