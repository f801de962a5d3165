"""Failures as types, and the one reader of status codes."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustit_pipeline.foundation import failures
from mustit_pipeline.foundation.failures import (
    FetchError,
    NetworkReason,
    failure_of_status,
    parse_http_date,
    parse_retry_after,
)

NOW = datetime(2026, 11, 16, 3, 0, tzinfo=UTC)
PATH = "/api/item/7"


@pytest.mark.parametrize(
    ("statuses", "kind", "code", "transient"),
    [
        ([401, 403], failures.Unauthorized, "EXTERNAL_UNAUTHORIZED", True),
        ([404, 410], failures.NotFoundAnswer, "EXTERNAL_NOT_FOUND", False),
        ([429], failures.Throttled, "EXTERNAL_THROTTLED", True),
        ([500, 502, 503, 504, 599], failures.ServerFailure, "EXTERNAL_SERVER_ERROR", True),
        ([201, 202, 203, 204, 205, 206, 207, 226, 299], failures.MalformedBody, "EXTERNAL_MALFORMED_BODY", True),
        ([408], failures.NetworkFailure, "EXTERNAL_NETWORK_READ_TIMEOUT", True),
        ([100, 199, 301, 302, 304, 307, 308, 400, 405, 409, 418, 422, 451, 600, 999], failures.UnexpectedStatus,
         "EXTERNAL_UNEXPECTED_STATUS", False),
    ],
)  # fmt: skip
def test_each_status_is_one_kind_of_failure(statuses: list[int], kind: type, code: str, transient: bool) -> None:
    for status in statuses:
        failure = failure_of_status(status, PATH, None, NOW)
        assert failure is not None
        assert type(failure) is kind
        assert failure.code == code
        assert failure.transient is transient
        assert PATH in failure.korean
        assert PATH in failure.english


def test_a_success_is_no_failure() -> None:
    assert failure_of_status(200, PATH, None, NOW) is None


def test_the_status_of_the_answer_does_not_become_the_status_of_our_api() -> None:
    failure = failure_of_status(404, PATH, None, NOW)
    assert isinstance(failure, failures.StatusFailure)
    assert "404" in failure.english
    assert failure.status == 502


def test_a_throttled_answer_knows_how_long_to_wait() -> None:
    failure = failure_of_status(429, PATH, "120", NOW)
    assert isinstance(failure, failures.Throttled)
    assert failure.retry_after == 120


EVERY_FAILURE: list[FetchError] = [
    *(failures.NetworkFailure(PATH, reason) for reason in NetworkReason),
    failures.ServerFailure(PATH, 500),
    failures.Throttled(PATH),
    failures.Unauthorized(PATH, 401),
    failures.NotFoundAnswer(PATH, 404),
    failures.UnexpectedStatus(PATH, 302),
    failures.MalformedBody("detail", "not JSON"),
    failures.BodyTooLarge(PATH, 1024),
    failures.ForbiddenHost(PATH, "evil.example"),
    failures.SessionRefused("/", "there is no cookie named token"),
]


def test_every_failure_has_a_code_of_its_own_and_both_languages() -> None:
    assert len({failure.code for failure in EVERY_FAILURE}) == len(EVERY_FAILURE)
    for failure in EVERY_FAILURE:
        assert failure.english.isascii()
        assert any("가" <= character <= "힣" for character in failure.korean)


def test_only_what_asking_again_cannot_change_is_permanent() -> None:
    permanent = {type(failure).__name__ for failure in EVERY_FAILURE if not failure.transient}
    assert permanent == {"NotFoundAnswer", "UnexpectedStatus", "BodyTooLarge", "ForbiddenHost"}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120.0),
        (" 7 ", 7.0),
        ("1.5", 1.5),
        ("0", 0.0),
        ("-5", 0.0),
        ("9" * 30, 1e12),
        ("9" * 5000, 1e12),
        ("Mon, 16 Nov 2026 03:02:00 GMT", 120.0),
        ("Monday, 16-Nov-26 03:02:00 GMT", 120.0),
        ("Mon Nov 16 03:02:00 2026", 120.0),
        ("Mon, 16 Nov 2026 12:02:00 +0900", 120.0),
        ("Mon, 16 Nov 2026 02:00:00 GMT", 0.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        (None, None),
        ("", None),
        ("soon", None),
        ("1e3", None),
        ("inf", None),
        ("nan", None),
        ("١٢", None),
        ("12 seconds", None),
        ("Mon, 99 Nov 2026 03:02:00 GMT", None),
        ("Fri, 31 Dec 9999 23:59:59 -2359", None),
    ],
)
def test_retry_after_is_seconds_or_a_date_and_never_negative(text: str | None, seconds: float | None) -> None:
    assert parse_retry_after(text, NOW) == seconds


@given(text=st.text(max_size=40) | st.from_regex(r"[A-Z][a-z]{2}, [0-9]{1,5} [A-Z][a-z]{2} [0-9]{1,6} [0-9:]{0,9}"))
@settings(max_examples=100, deadline=None)
def test_any_retry_after_at_all_is_seconds_or_nothing(text: str) -> None:
    seconds = parse_retry_after(text, NOW)
    assert seconds is None or 0 <= seconds < float("inf")


@given(moment=st.integers(31_536_000, 32_472_144_000).map(lambda seconds: datetime.fromtimestamp(seconds, UTC)))
@settings(max_examples=100, deadline=None)
def test_a_date_comes_back_as_it_was_written(moment: datetime) -> None:
    assert parse_http_date(moment.strftime("%a, %d %b %Y %H:%M:%S GMT")) == moment
    assert parse_retry_after(moment.strftime("%a, %d %b %Y %H:%M:%S GMT"), moment - timedelta(seconds=9)) == 9
