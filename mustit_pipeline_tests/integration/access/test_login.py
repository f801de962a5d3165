"""Logins: slowed for all processes, alike for everybody, and refused where they cannot be counted."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import argon2
import pytest
from sqlalchemy import make_url, text
from structlog.testing import capture_logs

from mustit_pipeline.access import passwords, tokens, users
from mustit_pipeline.access.login import UNKNOWN_USER, login
from mustit_pipeline.access.sql import login_failures
from mustit_pipeline.access.sql.users import User
from mustit_pipeline.domain.access import Password, Role, UserName
from mustit_pipeline.domain.errors import TooMany, Unauthorized, Unavailable
from mustit_pipeline.foundation.database import Database, make_engine
from mustit_pipeline.settings import Settings, SigningKeys
from mustit_pipeline_tests.conftest import free_port
from mustit_pipeline_tests.integration.access.conftest import KIM, PASSWORD

HOME, ELSEWHERE = "192.0.2.1", "198.51.100.7"
WRONG = "wrong horse battery"


def attempt(database: Database, settings: Settings, name: str, password: str, address: str = HOME) -> str:
    """What becomes of a login: in, refused, or the seconds to wait."""
    try:
        login(database, settings, name, password, address)
    except Unauthorized as error:
        return "refused" if (error.code, error.status) == ("UNAUTHORIZED_LOGIN", 401) else error.code
    except TooMany as error:
        return f"wait {error.retry_after}" if (error.code, error.status) == ("TOO_MANY_LOGINS", 429) else error.code
    return "in"


def failed(database: Database, number: int, *, account: str = "kim", address: str = HOME, seconds_ago: int = 0) -> None:
    """Failures of before, without the time that they take."""
    with database.transaction() as connection:
        connection.execute(
            text("""INSERT INTO login_failures (account, address, failures, failed_at, seen_at)
                    SELECT encode(sha256(convert_to(:account, 'UTF8')), 'hex'), :address, :number, at, at
                    FROM (SELECT now() - make_interval(secs => :ago) AS at) t
                    ON CONFLICT (account, address) DO UPDATE
                    SET failures = excluded.failures, failed_at = excluded.failed_at"""),
            {"account": account, "address": address, "number": number, "ago": seconds_ago},
        )


def waits(answer: str, least: int, most: int) -> bool:
    """Whether an answer says to wait so many seconds; some may have passed since the failure."""
    word, _, seconds = answer.partition(" ")
    return word == "wait" and least <= int(seconds) <= most


def rows(database: Database, query: str) -> list[Any]:
    with database.reading() as connection:
        return list(connection.execute(text(query)).scalars())


def test_who_knows_the_password_gets_a_token(
    database: Database, settings: Settings, keys: SigningKeys, kim: User
) -> None:
    token = login(database, settings, " Kim", PASSWORD, HOME)

    with database.reading() as connection:
        assert tokens.verify(connection, keys, token.text).name == "kim"
    assert (token.role, token.expires_in) == (Role.ADMIN, 900)
    assert rows(database, "SELECT last_login_at FROM users") != [None]


def test_unknown_disabled_and_passwordless_users_are_answered_like_a_wrong_password_and_with_the_same_work(
    database: Database, settings: Settings, kim: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify, parameters = argon2.PasswordHasher.verify, list[argon2.Parameters]()

    def counted(hasher: argon2.PasswordHasher, password_hash: str, password: str | bytes) -> Any:
        parameters.append(argon2.extract_parameters(password_hash))
        return verify(hasher, password_hash, password)

    monkeypatch.setattr(argon2.PasswordHasher, "verify", counted)
    off, bare = UserName("disabled"), UserName("bare")
    users.add(database, off, Role.ADMIN, Password(PASSWORD, off))
    users.disable(database, off)
    users.add(database, bare, Role.ADMIN, None)

    answers: set[str] = set()
    names = [
        ("kim", WRONG),
        ("stranger", PASSWORD),
        ("disabled", PASSWORD),
        ("bare", PASSWORD),
        ("no name: \x00", PASSWORD),
    ]
    for number, (name, password) in enumerate(names):
        with pytest.raises(Unauthorized) as refused:
            login(database, settings, name, password, f"192.0.2.{number}")
        answers.add(str(refused.value))

    assert answers == {"The user name or the password is wrong [UNAUTHORIZED_LOGIN]"}
    assert len(parameters) == len(names)
    assert len(set(map(str, parameters))) == 1


def test_mistakes_are_counted_and_a_good_password_forgets_them(
    database: Database, settings: Settings, kim: User
) -> None:
    assert [attempt(database, settings, "kim", WRONG) for _ in range(3)] == ["refused"] * 3
    assert rows(database, "SELECT failures FROM login_failures") == [3]

    failed(database, 6)
    assert waits(attempt(database, settings, "kim", PASSWORD), 1, 16)
    failed(database, 6, seconds_ago=17)
    assert attempt(database, settings, "kim", PASSWORD) == "in"
    assert rows(database, "SELECT failures FROM login_failures") == [0]


def test_an_unknown_name_is_slowed_like_a_known_one(database: Database, settings: Settings) -> None:
    assert attempt(database, settings, "stranger", WRONG) == "refused"
    failed(database, 8, account="stranger")
    assert waits(attempt(database, settings, "STRANGER ", WRONG), 1, 64)


def test_a_refused_try_is_not_counted_so_that_the_wait_does_not_grow_by_asking(
    database: Database, settings: Settings, kim: User
) -> None:
    failed(database, 8)
    for _ in range(5):
        assert waits(attempt(database, settings, "kim", PASSWORD), 1, 64)
    assert rows(database, "SELECT failures FROM login_failures") == [8]


def test_failures_of_an_hour_ago_count_no_more(database: Database, settings: Settings, kim: User) -> None:
    failed(database, 1_000, seconds_ago=3601)
    assert attempt(database, settings, "kim", WRONG) == "refused"
    assert rows(database, "SELECT failures FROM login_failures") == [1]


def test_an_account_that_is_attacked_from_many_addresses_is_slowed_but_not_for_its_owner(
    database: Database, settings: Settings, kim: User
) -> None:
    assert attempt(database, settings, "kim", PASSWORD, HOME) == "in"
    for number in range(30):
        failed(database, 1, address=f"203.0.113.{number}")

    assert waits(attempt(database, settings, "kim", PASSWORD, ELSEWHERE), 1, 60)
    assert attempt(database, settings, "kim", PASSWORD, HOME) == "in"


def test_an_address_that_tries_many_accounts_is_slowed(database: Database, settings: Settings, kim: User) -> None:
    for number in range(30):
        failed(database, 1, account=f"account {number}", address=ELSEWHERE)

    assert waits(attempt(database, settings, "kim", PASSWORD, ELSEWHERE), 200, 300)
    assert attempt(database, settings, "kim", PASSWORD, HOME) == "in"


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("testclient", None, True),
    ],
)
def test_a_household_has_one_address(
    database: Database, settings: Settings, first: str, second: str | None, same: bool
) -> None:
    for address in (first, second):
        with pytest.raises(Unauthorized):
            login(database, settings, "kim", WRONG, address)
    assert len(rows(database, "SELECT address FROM login_failures")) == (1 if same else 2)


def test_tries_at_the_same_time_are_all_counted(database: Database, settings: Settings, kim: User) -> None:
    """Each is counted before its password is looked at: the first that comes makes the others wait."""
    failed(database, 8, seconds_ago=65)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: attempt(database, settings, "kim", WRONG), range(8)))

    assert answers.count("refused") == 1
    assert sum(waits(answer, 60, 128) for answer in answers) == 7
    assert rows(database, "SELECT failures FROM login_failures") == [9]


def test_a_try_waits_until_one_that_came_before_is_counted(database: Database, settings: Settings, kim: User) -> None:
    """Without that both would find the same count, and both would be tried."""
    failed(database, 8, seconds_ago=65)
    [account] = rows(database, "SELECT account FROM login_failures")
    waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid <> pg_backend_pid()")
    with ThreadPoolExecutor(1) as pool:
        with database.transaction() as first:
            login_failures.lock(first, account, HOME)
            login_failures.add(first, account, HOME)
            second = pool.submit(attempt, database, settings, "kim", WRONG)
            while first.execute(waiting).scalar_one() == 0 and not second.done():
                time.sleep(0.01)
        assert waits(second.result(), 60, 128)
    assert rows(database, "SELECT failures FROM login_failures") == [9]


def test_another_process_knows_what_failed_in_this_one(
    database: Database, database_url: str, settings: Settings, kim: User
) -> None:
    attempt(database, settings, "kim", WRONG)
    failed(database, 10)
    assert rows(database, "SELECT failures FROM login_failures") == [10]

    command = [sys.executable, "-m", "mustit_pipeline_tests.integration.access.logging_in", database_url, HOME]
    said = subprocess.run(command, input=PASSWORD, capture_output=True, text=True, check=True, timeout=60).stdout

    assert said.strip() == "TOO_MANY_LOGINS"


def test_where_the_database_cannot_count_every_login_is_refused(settings: Settings) -> None:
    nowhere = make_engine(make_url(f"postgresql+psycopg://u:p@127.0.0.1:{free_port()}/x"))
    with pytest.raises(Unavailable) as refused:
        login(Database(nowhere), settings, "kim", PASSWORD, HOME)
    assert (refused.value.code, refused.value.status) == ("UNAVAILABLE_LOGIN", 503)


def test_a_count_that_cannot_be_written_lets_no_user_in(database: Database, settings: Settings, kim: User) -> None:
    """A server that has become another's copy can still be read."""
    copy = Database(database.engine.execution_options(postgresql_readonly=True))
    with pytest.raises(Unavailable):
        login(copy, settings, "kim", PASSWORD, HOME)


def test_too_many_hashes_at_once_are_refused_and_cost_their_owners_nothing(
    database: Database, settings: Settings, kim: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passwords, "PATIENCE_SECONDS", 0.01)
    with passwords.take_room(), passwords.take_room(), pytest.raises(Unavailable):
        login(database, settings, "kim", PASSWORD, HOME)
    assert rows(database, "SELECT failures FROM login_failures") == [0]
    assert attempt(database, settings, "kim", PASSWORD) == "in"


def test_a_hash_of_other_parameters_is_made_anew_by_the_next_login(
    database: Database, settings: Settings, kim: User
) -> None:
    weak = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(PASSWORD)
    with database.transaction() as connection:
        connection.execute(text("UPDATE users SET password_hash = :hash WHERE user_name = 'kim'"), {"hash": weak})

    assert attempt(database, settings, "kim", PASSWORD) == "in"
    query = "SELECT password_hash FROM users WHERE user_name = 'kim'"
    [stored] = rows(database, query)
    assert argon2.extract_parameters(stored).memory_cost == 64 * 1024
    assert attempt(database, settings, "kim", PASSWORD) == "in"
    assert rows(database, query) == [stored]


def test_a_password_that_is_changed_while_the_old_one_is_looked_at_lets_no_user_in(
    database: Database, settings: Settings, kim: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify = argon2.PasswordHasher.verify

    def meanwhile(hasher: argon2.PasswordHasher, password_hash: str, password: str | bytes) -> Any:
        found = verify(hasher, password_hash, password)
        users.change_password(database, KIM, Password("another horse", KIM))
        return found

    monkeypatch.setattr(argon2.PasswordHasher, "verify", meanwhile)
    assert attempt(database, settings, "kim", PASSWORD) == "refused"


def test_an_impossible_name_is_no_users_whatever_is_looked_up_for_it(database: Database, settings: Settings) -> None:
    users.add(database, UNKNOWN_USER, Role.ADMIN, Password(PASSWORD, UserName("kim")))
    assert attempt(database, settings, "no name: \x00", PASSWORD) == "refused"


@pytest.mark.parametrize("password", ["", "\x00", "\ud800" * 20, "x" * 100_000])
def test_an_impossible_password_is_just_wrong(database: Database, settings: Settings, kim: User, password: str) -> None:
    assert attempt(database, settings, "kim", password) == "refused"


def test_neither_names_nor_passwords_are_logged_or_stored_with_failures(
    database: Database, settings: Settings, kim: User
) -> None:
    with capture_logs() as logged:
        attempt(database, settings, "kim", WRONG)
        attempt(database, settings, WRONG, PASSWORD)
    assert len(logged) == 2
    stored = str(rows(database, "SELECT f::text FROM login_failures f"))
    for secret in (PASSWORD, WRONG):
        assert secret not in str(logged) + stored
