"""Names, passwords and roles, and how long a login waits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustit_pipeline.domain.access import (
    FREE_FAILURES,
    LONGEST_ACCOUNT_WAIT,
    LONGEST_WAIT,
    FailedLogins,
    KeyName,
    Password,
    Role,
    UserName,
    login_wait,
)
from mustit_pipeline.domain.errors import ValidationFailed
from mustit_pipeline.domain.filters import read_duration

NONE = FailedLogins(0, 0.0)
KIM = UserName("kim")
COUNTS = st.integers(0, 100_000)
AGES = st.floats(0, 10_000)
FAILED = st.builds(FailedLogins, COUNTS, AGES)


def test_a_person_who_mistypes_three_times_waits_seconds_and_no_person_longer_than_five_minutes() -> None:
    waits = [login_wait(FailedLogins(n, 0), NONE, NONE, known_address=False) for n in range(14)]

    assert waits == [0, 0, 0, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]


def test_the_wait_is_over_when_its_time_has_passed() -> None:
    assert login_wait(FailedLogins(5, 3.0), NONE, NONE, known_address=False) == 5
    assert login_wait(FailedLogins(5, 8.0), NONE, NONE, known_address=False) == 0


def test_an_attack_from_many_addresses_slows_everybody_but_the_owner_at_a_known_address() -> None:
    attacked = FailedLogins(1_000, 0.0)

    assert login_wait(NONE, attacked, NONE, known_address=False) == LONGEST_ACCOUNT_WAIT
    assert login_wait(NONE, attacked, NONE, known_address=True) == 0
    assert login_wait(FailedLogins(50, 0.0), attacked, NONE, known_address=True) == LONGEST_WAIT


def test_an_address_that_tries_many_accounts_is_slowed_whichever_account_is_next() -> None:
    assert login_wait(NONE, NONE, FailedLogins(20, 0.0), known_address=False) == 0
    assert login_wait(NONE, NONE, FailedLogins(23, 0.0), known_address=False) == 8


@given(FAILED, FAILED, FAILED, st.booleans())
def test_a_login_never_waits_longer_than_the_longest_wait(
    pair: FailedLogins, account: FailedLogins, address: FailedLogins, known: bool
) -> None:
    assert 0 <= login_wait(pair, account, address, known_address=known) <= LONGEST_WAIT


@given(FAILED, FAILED, FAILED, st.booleans())
def test_one_more_failure_never_shortens_the_wait_and_a_known_address_never_lengthens_it(
    pair: FailedLogins, account: FailedLogins, address: FailedLogins, known: bool
) -> None:
    wait = login_wait(pair, account, address, known_address=known)
    more = FailedLogins(pair.number + 1, pair.seconds_ago)

    assert login_wait(more, account, address, known_address=known) >= wait
    assert login_wait(pair, account, address, known_address=True) <= wait


@given(AGES)
def test_the_first_failures_are_free(age: float) -> None:
    assert login_wait(FailedLogins(FREE_FAILURES, age), NONE, NONE, known_address=False) == 0


def test_one_person_has_one_name_however_it_is_typed() -> None:
    assert UserName(" Kim ") == UserName("kim") == UserName("ＫＩＭ")
    assert UserName("김철수").value == "김철수"


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "a:b", "cli:root", "a\nb", "a\x00", "x" * 65, "a/b", "-", "@kim", "\ud800"]
)
def test_a_name_that_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(ValidationFailed) as refused:
        UserName(name)
    assert refused.value.code == "VALIDATION_USER_NAME"


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "x" * 65])
def test_a_name_of_a_key_that_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(ValidationFailed) as refused:
        KeyName(name)
    assert refused.value.code == "VALIDATION_KEY_NAME"


@pytest.mark.parametrize("password", ["x" * 12, "비밀번호는 길수록 좋다", "🐎" * 12, " " * 12, "x" * 256])
def test_a_password_is_any_characters_of_a_sensible_number(password: str) -> None:
    assert Password(password, KIM).value == password


@pytest.mark.parametrize("password", ["", "x" * 11, "x" * 257, "x" * 12 + "\ud800"])
def test_a_password_of_another_length_or_of_half_characters_is_refused(password: str) -> None:
    with pytest.raises(ValidationFailed) as refused:
        Password(password, KIM)
    assert refused.value.code == "VALIDATION_PASSWORD_LENGTH"


def test_a_password_with_the_name_of_its_user_in_it_is_refused() -> None:
    with pytest.raises(ValidationFailed) as refused:
        Password("my-SEOYEON-2026", UserName("seoyeon"))
    assert refused.value.code == "VALIDATION_PASSWORD_NAME"
    assert "2026" not in str(refused.value)


def test_a_password_never_shows_itself() -> None:
    password = Password("correct horse battery", KIM)
    assert "horse" not in f"{password} {password!r} {[password]}"


def test_a_word_typed_in_parts_is_the_same_password() -> None:
    assert Password("가" * 12, KIM) == Password("\u1100\u1161" * 12, KIM)


def test_an_admin_may_do_what_a_viewer_may_and_not_the_other_way() -> None:
    assert [(one, other) for one in Role for other in Role if one.includes(other)] == [
        (Role.ADMIN, Role.ADMIN),
        (Role.ADMIN, Role.VIEWER),
        (Role.VIEWER, Role.VIEWER),
    ]


def test_a_duration_is_read_as_it_is_written() -> None:
    assert [read_duration(text).total_seconds() for text in ("15m", "2h", "90d", "1w")] == [900, 7200, 7776000, 604800]
    for wrong in ("", "15", "0m", "-1h", "1y", "soon"):
        with pytest.raises(ValidationFailed):
            read_duration(wrong)
