"""Every status code has one meaning for the row that was sent."""

from mustit_pipeline.delivery.product_server import Verdict, judge


def meaning(status: int) -> Verdict:
    if status < 300:
        return Verdict.DONE
    if status == 409:
        return Verdict.STALE
    if status in (429, 502, 503, 504):
        return Verdict.OVERLOADED
    if status in (401, 403):
        return Verdict.UNAUTHORIZED
    if status in (408, 422, 425) or status >= 500:
        return Verdict.RETRY
    return Verdict.REFUSED


def test_every_status_has_one_meaning() -> None:
    assert {status: judge(status) for status in range(200, 600)} == {
        status: meaning(status) for status in range(200, 600)
    }
