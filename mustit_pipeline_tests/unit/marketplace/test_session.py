"""Sessions out of Set-Cookie headers."""

from datetime import UTC, datetime, timedelta

import pytest

from mustit_pipeline.domain.values import Token
from mustit_pipeline.foundation.failures import SessionRefused
from mustit_pipeline.marketplace.session import Session, read_session

NOW = datetime(2026, 11, 16, 3, 0, tzinfo=UTC)
TWO_HOURS = timedelta(hours=2)


def test_a_session_is_read_from_its_three_cookies() -> None:
    session = read_session(
        ["token=abc.def; Path=/; Max-Age=600; HttpOnly", "nid=n1; Path=/", "mustit_uid=u1", "other=x"], NOW
    )
    assert session == Session(Token("abc.def"), "n1", "u1", NOW + timedelta(minutes=10), timedelta(minutes=10))


@pytest.mark.parametrize(
    ("attributes", "lifetime"),
    [
        ("", TWO_HOURS),
        ("; Max-Age=60", timedelta(minutes=1)),
        ("; max-age = 60", timedelta(minutes=1)),
        ('; Max-Age="60"', timedelta(minutes=1)),
        ("; Max-Age=60; Expires=Mon, 16 Nov 2026 04:00:00 GMT", timedelta(minutes=1)),
        ("; Max-Age=60; Expires=Thu, 01 Jan 1970 00:00:00 GMT", timedelta(minutes=1)),
        ("; Max-Age=86401", timedelta(days=1)),
        ("; Expires=Mon, 16 Nov 2026 04:00:00 GMT", timedelta(hours=1)),
        ("; expires=Mon, 16-Nov-2026 04:00:00 GMT", timedelta(hours=1)),
        ("; Expires=Monday, 16-Nov-26 04:00:00 GMT", timedelta(hours=1)),
        ("; Max-Age=soon; Expires=Mon, 16 Nov 2026 04:00:00 GMT", timedelta(hours=1)),
        ("; Max-Age=", TWO_HOURS),
        ("; Max-Age=1.5", TWO_HOURS),
        ("; Max-Age=١٢", TWO_HOURS),
        ("; Expires=tomorrow", TWO_HOURS),
        ("; Expires=Mon, 16 Nov 99999 04:00:00 GMT", TWO_HOURS),
        ("; Expires=", TWO_HOURS),
        ("; Max-Age=999999999999999999", timedelta(days=1)),
        ("; Expires=Fri, 31 Dec 9999 23:59:59 GMT", timedelta(days=1)),
    ],
)
def test_a_token_lives_by_max_age_else_expires_else_two_hours_and_a_day_at_most(
    attributes: str, lifetime: timedelta
) -> None:
    assert read_session([f"token=abc{attributes}"], NOW).expires_at == NOW + lifetime


def test_a_quoted_token_is_taken_without_its_quotes_and_an_equals_sign_stays() -> None:
    assert read_session(['token="abc=="'], NOW).token.value == "abc=="


DELETED = [
    "Max-Age=0",
    "Max-Age=-1",
    'max-age="0"',
    "Max-Age=0; Expires=Fri, 31 Dec 9999 23:59:59 GMT",
    "Expires=Thu, 01 Jan 1970 00:00:00 GMT",
    "Max-Age=soon; Expires=Mon, 16 Nov 2026 02:59:59 GMT",
]


@pytest.mark.parametrize("attributes", DELETED)
def test_a_cookie_that_the_server_deletes_is_no_token(attributes: str) -> None:
    """It was used for two hours."""
    with pytest.raises(SessionRefused, match="deleted"):
        read_session([f"token=abc; {attributes}"], NOW)
    with pytest.raises(SessionRefused, match="deleted"):
        read_session(["token=abc; Max-Age=60", f"token=gone; {attributes}"], NOW)
    assert read_session([f"token=gone; {attributes}", "token=abc"], NOW).token.value == "abc"


@pytest.mark.parametrize("attributes", DELETED)
def test_a_companion_that_the_server_deletes_is_not_sent(attributes: str) -> None:
    read = read_session(["token=abc", f"nid=n1; {attributes}", "mustit_uid=u1"], NOW)
    assert "Cookie" not in read.headers("x")


def test_of_two_tokens_the_last_counts() -> None:
    assert read_session(["token=old", "token=new; Max-Age=60"], NOW).token.value == "new"


@pytest.mark.parametrize(
    "cookies",
    [
        [],
        ["nid=1", "mustit_uid=2"],
        ["token="],
        ["token"],
        ['token=""'],
        ["token=  ; Path=/"],
        ["token=a b"],
        ["token=a\r\nX-Evil: 1"],
        ["token=토큰"],
        ["Token=abc"],
        ["x=1; token=abc"],
    ],
)
def test_without_a_usable_token_the_session_is_refused(cookies: list[str]) -> None:
    with pytest.raises(SessionRefused) as caught:
        read_session(cookies, NOW)
    assert caught.value.code == "EXTERNAL_SESSION_REFUSED"
    assert caught.value.transient


@pytest.mark.parametrize(
    "companions", [[], ["nid=n1"], ["mustit_uid=u1"], ["nid=n1", "mustit_uid="], ["nid=한", "mustit_uid=u1"]]
)
def test_cookies_are_sent_only_when_both_are_known(companions: list[str]) -> None:
    session = read_session(["token=abc", *companions], NOW)
    assert session.headers("UA/1") == {"User-Agent": "UA/1", "Authorization": "Bearer abc"}


def test_a_whole_session_sends_agent_token_and_both_cookies() -> None:
    assert read_session(["token=abc", "nid=n1", "mustit_uid=u1"], NOW).headers("UA/1") == {
        "User-Agent": "UA/1",
        "Authorization": "Bearer abc",
        "Cookie": "nid=n1; mustit_uid=u1",
    }


def test_a_printed_session_shows_no_secret() -> None:
    session = read_session(["token=s3cret-t", "nid=s3cret-n", "mustit_uid=s3cret-u"], NOW)
    assert "s3cret" not in f"{session!r} {session}"
    assert "2026" in repr(session)


def test_a_refusal_does_not_repeat_what_it_refused() -> None:
    with pytest.raises(SessionRefused) as caught:
        read_session(["token=s3cret s3cret", "nid=s3cret"], NOW)
    assert "s3cret" not in f"{caught.value} {caught.value.korean} {caught.value!r}"
