"""API keys: shown once, stored as a hash, and each refusal like the other."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import text

from mustit_pipeline.access import api_keys
from mustit_pipeline.access.api_keys import NewApiKey
from mustit_pipeline.access.sql import api_keys as stored
from mustit_pipeline.domain.access import ActorKind, KeyName, Scope
from mustit_pipeline.domain.errors import Conflict, Forbidden, NotFound, Unauthorized, ValidationFailed
from mustit_pipeline.foundation.database import Database

DAY = timedelta(days=1)
SCHEDULER = KeyName("scheduler")


@pytest.fixture
def made(database: Database) -> NewApiKey:
    return api_keys.create(database, SCHEDULER, [Scope.TRIGGER], DAY)


def refusal(database: Database, presented: str) -> str:
    with pytest.raises(Unauthorized) as refused:
        api_keys.verify_key(database, presented, Scope.TRIGGER)
    error = refused.value
    assert (error.code, error.status, error.english) == ("UNAUTHORIZED_API_KEY", 401, "A valid API key is needed")
    return error.reason


def run(database: Database, statement: str) -> None:
    with database.transaction() as connection:
        connection.execute(text(statement))


def last_use(database: Database, key_id: str) -> object:
    with database.reading() as connection:
        return stored.get(connection, key_id).last_used_at


def test_a_key_opens_what_it_was_made_for_and_is_stored_as_a_hash(database: Database, made: NewApiKey) -> None:
    identity = api_keys.verify_key(database, made.text, Scope.TRIGGER)

    assert made.text.startswith(f"mk_{made.key.id}_")
    assert (identity.key_id, identity.name, identity.scopes) == (made.key.id, "scheduler", {Scope.TRIGGER})
    assert identity.actor().kind is ActorKind.KEY
    with database.reading() as connection:
        row = str(connection.execute(text("SELECT *, encode(secret_hash, 'escape') FROM api_keys")).one())
    assert made.text.rpartition("_")[2] not in row + repr(made)


def test_a_key_of_another_scope_is_known_and_may_not(database: Database, made: NewApiKey) -> None:
    with pytest.raises(Forbidden) as refused:
        api_keys.verify_key(database, made.text, Scope.METRICS)
    assert (refused.value.code, refused.value.status) == ("FORBIDDEN_SCOPE", 403)
    assert last_use(database, made.key.id) is None

    both = api_keys.create(database, SCHEDULER, list(Scope), DAY)
    assert api_keys.verify_key(database, both.text, Scope.METRICS).scopes == set(Scope)


def test_unknown_wrong_revoked_and_expired_keys_are_refused_alike(database: Database, made: NewApiKey) -> None:
    secret = made.text.rpartition("_")[2]
    assert refusal(database, f"mk_{'0' * 12}_{secret}") == "unknown"
    assert refusal(database, f"mk_{made.key.id}_{'0' * 64}") == "secret"
    for wrong in (
        "",
        "mk_",
        made.text + " ",
        made.text.upper(),
        "mk_' OR 1=1_x",
        "\ud800",
        made.text.replace("mk", "ml"),
    ):
        assert refusal(database, wrong) == "malformed"

    api_keys.revoke(database, made.key.id)
    assert refusal(database, made.text) == "revoked"
    fresh = api_keys.create(database, SCHEDULER, [Scope.TRIGGER], DAY)
    run(database, "UPDATE api_keys SET expires_at = now()")
    assert refusal(database, fresh.text) == "expired"


def test_an_unknown_id_is_compared_too(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    monkeypatch.setattr("hmac.compare_digest", lambda a, b: compared.append(len(b)) or False)  # pyright: ignore
    refusal(database, f"mk_{'0' * 12}_{'0' * 64}")
    assert compared == [32]


def test_the_last_use_is_written_once_a_minute(database: Database, made: NewApiKey) -> None:
    api_keys.verify_key(database, made.text, Scope.TRIGGER)
    first = last_use(database, made.key.id)
    api_keys.verify_key(database, made.text, Scope.TRIGGER)
    assert first is not None
    assert last_use(database, made.key.id) == first

    run(database, "UPDATE api_keys SET last_used_at = now() - interval '61 seconds'")
    api_keys.verify_key(database, made.text, Scope.TRIGGER)
    assert last_use(database, made.key.id) > first  # pyright: ignore[reportOperatorIssue]


def test_two_keys_of_a_name_are_active_at_most_however_many_are_made_at_once(database: Database) -> None:
    def make(_: int) -> bool:
        try:
            api_keys.create(database, SCHEDULER, [Scope.TRIGGER], DAY)
        except Conflict as error:
            return error.code != "CONFLICT_API_KEYS_ACTIVE"
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(make, range(6))) == 2
    api_keys.create(database, KeyName("another"), [Scope.TRIGGER], DAY)


def test_a_revoked_or_expired_key_makes_room(database: Database, made: NewApiKey) -> None:
    second = api_keys.create(database, SCHEDULER, [Scope.TRIGGER], DAY)
    api_keys.revoke(database, made.key.id)
    third = api_keys.create(database, SCHEDULER, [Scope.TRIGGER], DAY)
    run(database, f"UPDATE api_keys SET expires_at = now() WHERE key_id = '{second.key.id}'")
    fourth = api_keys.create(database, SCHEDULER, [Scope.TRIGGER], DAY)

    with database.reading() as connection:
        active = [key.id for key in stored.everything(connection) if key.is_active]
    assert sorted(active) == sorted([third.key.id, fourth.key.id])


def test_a_key_is_revoked_once_and_an_unknown_one_is_named(database: Database, made: NewApiKey) -> None:
    api_keys.revoke(database, made.key.id)
    with pytest.raises(Conflict, match="revoked already"):
        api_keys.revoke(database, made.key.id)
    with pytest.raises(NotFound, match="mustit apikey list"):
        api_keys.revoke(database, "0" * 12)


@pytest.mark.parametrize(("scopes", "days"), [([], 1), ([Scope.TRIGGER], 3651)])
def test_a_key_without_a_scope_or_an_end_is_refused(database: Database, scopes: list[Scope], days: int) -> None:
    with pytest.raises(ValidationFailed):
        api_keys.create(database, SCHEDULER, scopes, days * DAY)
