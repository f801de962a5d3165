"""`mustit user`, `mustit token` and `mustit apikey`."""

from typing import Any

import pytest
from sqlalchemy import text

from mustit_pipeline.access import tokens, users
from mustit_pipeline.access.api_keys import verify_key
from mustit_pipeline.access.login import login
from mustit_pipeline.access.sql import audit_log
from mustit_pipeline.access.sql.audit_log import AuditEntry, AuditFilter
from mustit_pipeline.domain.access import ActorKind, Role, Scope, UserName
from mustit_pipeline.domain.errors import Conflict, NotFound, Unauthorized, ValidationFailed
from mustit_pipeline_tests.e2e.asking import ask, explained, settings_of
from mustit_pipeline_tests.e2e.conftest import Answer, World

PASSWORD, ANOTHER = "correct horse battery", "another horse battery"


@pytest.fixture(autouse=True)
def _no_users(world: World) -> None:
    """Each test begins without users, keys and entries."""
    with world.database.transaction() as connection:
        for table in ("login_failures", "login_links", "users", "api_keys", "revoked_tokens", "audit_log"):
            connection.execute(text(f"DELETE FROM {table}"))


def typed(world: World, secret: str, *arguments: str) -> Answer:
    """A command that reads a password from its stdin."""
    done = explained(world, *arguments, stdin=secret)
    assert secret.strip() not in done.out + done.err
    return done


def entries(world: World) -> list[AuditEntry]:
    with world.database.reading() as connection:
        return audit_log.newest(connection, AuditFilter(), limit=50).rows


def verified(world: World, text: str) -> tokens.Identity:
    with world.database.reading() as connection:
        return tokens.verify(connection, settings_of(world).signing_keys(), text)


def test_a_user_is_added_changed_and_disabled_and_each_step_is_audited(world: World) -> None:
    assert "no users" in ask(world, "user", "list").out
    users.add(world.database, UserName("park"), Role.ADMIN, None)
    added = typed(world, f"{PASSWORD}\n", "user", "add", "Kim", "--role", "admin", "--password-stdin", "--json")
    assert (added.code, added.document["name"], added.document["role"]) == (0, "kim", "admin")
    settings = settings_of(world)
    token = login(world.database, settings, "kim", PASSWORD, "127.0.0.1").text
    assert verified(world, token).role is Role.ADMIN

    assert ask(world, "user", "role", "kim", "viewer", "--json").document["role"] == "viewer"
    changed = typed(world, ANOTHER, "user", "password", "kim", "--password-stdin")
    assert (changed.code, changed.out) == (0, "kim has another password now.\n")
    assert login(world.database, settings, "kim", ANOTHER, "127.0.0.1").role is Role.VIEWER
    with pytest.raises(Unauthorized):
        verified(world, token)
    assert ask(world, "user", "disable", "kim").out == "kim is disabled.\n"
    shown = ask(world, "user", "list", "--json").document[0]
    assert (shown["disabled"], shown["hasPassword"], shown["lastLoginAt"] is None) == (True, True, False)
    assert "disabled" in ask(world, "user", "list").out
    with pytest.raises(Conflict, match="CONFLICT_LAST_ADMIN"):
        ask(world, "user", "disable", "park")
    assert ask(world, "user", "enable", "kim", "--json").document["disabled"] is False

    found = entries(world)
    actions = ["user.enable", "user.disable", "user.password", "user.role", "user.add"]
    assert [entry.action for entry in found] == actions
    assert {entry.actor.kind for entry in found} == {ActorKind.CLI}
    assert (found[3].before, found[3].after) == (
        {"role": "admin", "disabled": False},
        {"role": "viewer", "disabled": False},
    )


def test_a_password_is_never_an_argument_and_a_bad_one_is_refused_with_exit_2(world: World) -> None:
    short = typed(world, "hunter2\n", "user", "add", "kim", "--role", "admin", "--password-stdin", "--json")
    assert (short.code, short.document["errorCode"]) == (2, "VALIDATION_PASSWORD_LENGTH")
    named = typed(world, "seoyeon-2026\n", "user", "add", "seoyeon", "--role", "admin", "--password-stdin", "--json")
    assert (named.code, named.document["errorCode"]) == (2, "VALIDATION_PASSWORD_NAME")
    assert explained(world, "user", "add", "kim", "--role", "admin", "--password", PASSWORD).code == 2
    assert explained(world, "user", "add", "kim", "--role", "owner").code == 2
    assert ask(world, "user", "list", "--json").document == []
    assert entries(world) == []


def test_an_unknown_user_and_a_step_that_was_taken_already_are_refused(world: World) -> None:
    with pytest.raises(NotFound, match="mustit user list"):
        ask(world, "user", "disable", "stranger")
    with pytest.raises(ValidationFailed):
        ask(world, "user", "role", "a b", "admin")
    typed(world, PASSWORD, "user", "add", "kim", "--role", "viewer", "--password-stdin")
    again = typed(world, PASSWORD, "user", "add", "KIM", "--role", "admin", "--password-stdin", "--json")
    assert (again.code, again.document["errorCode"]) == (1, "CONFLICT_USER_EXISTS")
    with pytest.raises(Conflict):
        ask(world, "user", "enable", "kim")


def test_a_token_speaks_for_the_operator_until_it_is_revoked(world: World) -> None:
    issued: dict[str, Any] = ask(world, "token", "issue", "--role", "admin", "--ttl", "2h", "--json").document
    assert {"accessToken", "role", "expiresAt"} <= set(issued)
    identity = verified(world, issued["accessToken"])
    assert (identity.role, identity.kind) == (Role.ADMIN, ActorKind.CLI)
    plain = ask(world, "token", "issue", "--role", "viewer")
    assert verified(world, plain.out.strip()).role is Role.VIEWER

    assert ask(world, "token", "revoke", issued["tokenId"], "--json").document["revoked"] is True
    with pytest.raises(Unauthorized):
        verified(world, issued["accessToken"])
    assert [entry.action for entry in entries(world)] == ["token.revoke", "token.issue", "token.issue"]
    assert issued["accessToken"] not in str(entries(world))


@pytest.mark.parametrize("ttl", ["25h", "soon", "0m"])
def test_a_token_of_another_lifetime_is_refused(world: World, ttl: str) -> None:
    with pytest.raises(ValidationFailed):
        ask(world, "token", "issue", "--role", "admin", "--ttl", ttl)
    assert entries(world) == []


def test_a_key_is_shown_once_listed_without_its_secret_and_revoked(world: World) -> None:
    assert ask(world, "apikey", "list").out == "There are no API keys.\n"
    made = ask(world, "apikey", "create", "--name", "prometheus", "--scope", "metrics", "--json").document
    assert set(made) == {"id", "key", "scope", "expiresAt"}
    assert made["scope"] == "metrics"
    assert verify_key(world.database, made["key"], Scope.METRICS).name == "prometheus"
    both = ("--scope", "trigger", "--scope", "metrics", "--expires", "12h")
    plain = ask(world, "apikey", "create", "--name", "prometheus", *both)
    assert verify_key(world.database, plain.out.strip(), Scope.TRIGGER).scopes == set(Scope)
    with pytest.raises(Conflict):
        ask(world, "apikey", "create", "--name", "prometheus")

    listed = ask(world, "apikey", "list", "--json")
    assert [(key["scope"], key["state"]) for key in listed.document] == [
        ("metrics", "active"),
        ("metrics trigger", "active"),
    ]
    revoked = ask(world, "apikey", "revoke", made["id"], "--json").document
    assert revoked["state"] == "revoked"
    with pytest.raises(Unauthorized):
        verify_key(world.database, made["key"], Scope.METRICS)
    shown = listed.out + ask(world, "apikey", "list").out + str(entries(world))
    assert made["key"].rpartition("_")[2] not in shown
    assert [entry.action for entry in entries(world)] == ["apikey.revoke", "apikey.create", "apikey.create"]


def test_a_key_that_cannot_be_is_refused(world: World) -> None:
    for wrong in (("--name", " "), ("--name", "x", "--expires", "never"), ("--name", "x", "--expires", "4000d")):
        with pytest.raises(ValidationFailed):
            ask(world, "apikey", "create", *wrong)
    with pytest.raises(NotFound):
        ask(world, "apikey", "revoke", "0" * 12)
    assert ask(world, "apikey", "list", "--json").document == []
