"""Access tokens: only what we signed, for us, within its time, of a user as the user is now."""

import base64
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import jwt
import pytest
from structlog.testing import capture_logs

from mustit_pipeline.access import login_links, tokens, users
from mustit_pipeline.access.sql.users import User
from mustit_pipeline.access.tokens import ALGORITHM, ISSUER, Audience, Identity, issue
from mustit_pipeline.domain.access import ActorKind, Password, Role, UserName
from mustit_pipeline.domain.errors import Forbidden, Unauthorized, ValidationFailed
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.settings import SigningKeys
from mustit_pipeline_tests.integration.access.conftest import KIM

MINUTE = timedelta(minutes=1)


def verified(database: Database, keys: SigningKeys, text: str) -> Identity:
    with database.reading() as connection:
        return tokens.verify(connection, keys, text)


def refusal(database: Database, keys: SigningKeys, text: str) -> str:
    """Why a token is refused; whatever the reason, the answer is the same."""
    with capture_logs() as logged, pytest.raises(Unauthorized) as refused:
        verified(database, keys, text)
    error = refused.value
    assert (error.code, error.status) == ("UNAUTHORIZED_TOKEN", 401)
    assert error.english == "Log in first: the access token is missing, wrong or over"
    assert [line["reason"] for line in logged] == [error.reason]
    assert len(text) < 20 or text not in str(logged)
    return error.reason


def claims_of(text: str) -> dict[str, Any]:
    return jwt.decode(text, options={"verify_signature": False})


def forged(keys: SigningKeys, user: User, **changed: Any) -> str:
    """A token that our key has signed, with other claims; None takes one out."""
    now = utc_now()
    claims = {
        "iss": ISSUER,
        "aud": Audience.API.value,
        "sub": user.name.value,
        "jti": str(uuid4()),
        "role": user.role.value,
        "gen": user.generation,
        "iat": now,
        "nbf": now,
        "exp": now + 15 * MINUTE,
    } | changed
    kept = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(kept, keys.keys[keys.current], ALGORITHM, headers={"kid": keys.current})


def test_a_token_says_who_it_speaks_for_and_lives_for_fifteen_minutes(
    database: Database, keys: SigningKeys, kim: User
) -> None:
    token = tokens.issue(keys, kim, utc_now())

    said = claims_of(token.text)
    assert set(said) == {"exp", "iat", "nbf", "sub", "aud", "iss", "jti", "role", "gen"}
    assert (said["exp"] - said["iat"], token.expires_in, said["sub"]) == (900, 900, "kim")
    assert jwt.get_unverified_header(token.text) == {"alg": "HS256", "kid": keys.current, "typ": "JWT"}
    identity = verified(database, keys, token.text)
    assert (identity.name, identity.role, identity.jti) == ("kim", Role.ADMIN, token.jti)
    assert identity.kind is ActorKind.PERSON
    assert token.text not in repr(token)


def without_signature(text: str) -> str:
    header = base64.urlsafe_b64encode(json.dumps({"alg": "none", "kid": "x"}).encode()).decode().rstrip("=")
    return f"{header}.{text.split('.')[1]}."


def deep(text: str) -> str:
    header = base64.urlsafe_b64encode(b"[" * 2000).decode().rstrip("=")
    return f"{header}.{text.split('.')[1]}.x"


@pytest.mark.parametrize(
    ("spoilt", "reason"),
    [
        (without_signature, "algorithm"),
        (lambda text: text[:-6] + "AAAAAA", "signature"),
        (lambda text: text.rpartition(".")[0] + ".", "signature"),
        (lambda text: "", "malformed"),
        (lambda text: "a.b.c", "malformed"),
        (lambda text: text + "김", "malformed"),
        (lambda text: text + "\ud800", "malformed"),
        (lambda text: text * 20, "malformed"),
        (deep, "malformed"),
    ],
    ids=["alg none", "another signature", "no signature", "empty", "no JWT", "Korean", "half", "long", "deep"],
)
def test_a_token_of_another_form_or_signature_is_refused(
    database: Database, keys: SigningKeys, kim: User, spoilt: Callable[[str], str], reason: str
) -> None:
    assert refusal(database, keys, spoilt(tokens.issue(keys, kim, utc_now()).text)) == reason


def test_the_token_does_not_choose_the_algorithm(database: Database, keys: SigningKeys, kim: User) -> None:
    said = claims_of(tokens.issue(keys, kim, utc_now()).text)
    for algorithm in ("HS384", "HS512"):
        text = jwt.encode(said, b"k" * 64, algorithm, headers={"kid": keys.current})
        assert refusal(database, keys, text) == "algorithm"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"exp": -6, "iat": -900, "nbf": -900}, "expired"),
        ({"nbf": 60}, "not yet valid"),
        ({"iat": 60}, "not yet valid"),
        ({"aud": "another"}, "audience"),
        ({"aud": [Audience.API.value, "another"]}, "audience"),
        ({"iss": "another"}, "issuer"),
        ({"role": "owner"}, "claims"),
        ({"role": ["admin"]}, "claims"),
        ({"jti": "7"}, "claims"),
        ({"gen": "0"}, "claims"),
        ({"gen": True}, "claims"),
        ({"sub": "stranger"}, "unknown user"),
        *(({name: None}, "claims") for name in ("exp", "iat", "nbf", "sub", "iss", "jti", "role", "gen")),
        ({"aud": None}, "claims"),
    ],
    ids=str,
)
def test_a_token_whose_claims_are_wrong_is_refused_although_we_signed_it(
    database: Database, keys: SigningKeys, kim: User, changed: dict[str, Any], reason: str
) -> None:
    times = {
        name: utc_now() + timedelta(seconds=value) if name in ("exp", "iat", "nbf") and value is not None else value
        for name, value in changed.items()
    }
    verified(database, keys, forged(keys, kim))
    assert refusal(database, keys, forged(keys, kim, **times)) == reason


def test_while_keys_are_rotated_both_verify_and_the_first_signs(database: Database, kim: User) -> None:
    old, new = "o" * 32, "n" * 32
    before, between, after = SigningKeys(old), SigningKeys(f"{new},{old}"), SigningKeys(new)
    first, second = (tokens.issue(keys, kim, utc_now()).text for keys in (before, between))

    assert verified(database, between, first).name == verified(database, between, second).name == "kim"
    assert verified(database, after, second).name == "kim"
    assert refusal(database, after, first) == "unknown key"
    assert refusal(database, before, second) == "unknown key"


def test_a_key_under_the_name_of_another_does_not_verify(database: Database, kim: User) -> None:
    text = tokens.issue(SigningKeys(f"a:{'x' * 32}"), kim, utc_now()).text
    assert refusal(database, SigningKeys(f"a:{'y' * 32}"), text) == "signature"


def test_a_logged_out_token_is_refused_at_once_and_others_of_the_user_are_not(
    database: Database, keys: SigningKeys, kim: User
) -> None:
    here, there = (tokens.issue(keys, kim, utc_now()).text for _ in range(2))
    with database.transaction() as connection:
        tokens.revoke(connection, tokens.verify(connection, keys, here))
        tokens.revoke(connection, verified(database, keys, here))

    assert refusal(database, keys, here) == "revoked"
    assert verified(database, keys, there).name == "kim"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda database: users.disable(database, KIM), "disabled"),
        (lambda database: users.change_role(database, KIM, Role.VIEWER), "generation"),
        (lambda database: users.change_password(database, KIM, Password("another horse", KIM)), "generation"),
    ],
    ids=["disabled", "another role", "another password"],
)
def test_a_changed_user_has_no_token_of_before(
    database: Database, keys: SigningKeys, kim: User, change: Callable[[Database], User], reason: str
) -> None:
    text = tokens.issue(keys, kim, utc_now()).text
    changed = change(database)

    assert refusal(database, keys, text) == reason
    if not changed.is_disabled:
        assert verified(database, keys, tokens.issue(keys, changed, utc_now()).text).role is changed.role


def test_a_user_who_is_enabled_again_does_not_get_old_tokens_back(
    database: Database, keys: SigningKeys, kim: User
) -> None:
    text = tokens.issue(keys, kim, utc_now()).text
    users.disable(database, KIM)
    users.enable(database, KIM)
    assert refusal(database, keys, text) == "generation"


def test_a_viewer_may_not_change_and_an_admin_may_read() -> None:
    viewer = Identity("lee", Role.VIEWER, uuid4(), utc_now())
    viewer.require(Role.VIEWER)
    Identity("kim", Role.ADMIN, uuid4(), utc_now()).require(Role.VIEWER)
    with pytest.raises(Forbidden) as refused:
        viewer.require(Role.ADMIN)
    assert (refused.value.code, refused.value.status) == ("FORBIDDEN_ROLE", 403)


def test_a_token_of_the_command_line_needs_no_user_and_can_be_ended_by_its_id(
    database: Database, keys: SigningKeys
) -> None:
    token = tokens.issue_for_cli(keys, "root", Role.VIEWER, utc_now(), timedelta(hours=1))
    identity = verified(database, keys, token.text)
    assert (identity.role, identity.kind, identity.actor().name) == (Role.VIEWER, ActorKind.CLI, "root")

    with database.transaction() as connection:
        tokens.revoke_by_id(connection, token.jti, utc_now())
    assert refusal(database, keys, token.text) == "revoked"


def test_a_token_of_the_command_line_lives_for_a_day_at_most(keys: SigningKeys) -> None:
    with pytest.raises(ValidationFailed) as refused:
        tokens.issue_for_cli(keys, "root", Role.VIEWER, utc_now(), timedelta(hours=25))
    assert refused.value.code == "VALIDATION_TOKEN_LIFETIME"


def use(database: Database, keys: SigningKeys, text: str) -> str:
    with pytest.raises(Unauthorized) as refused:
        login_links.use_link(database, text)
    assert refused.value.code == "UNAUTHORIZED_LOGIN_LINK"
    return refused.value.reason


def test_a_login_link_works_once(database: Database, keys: SigningKeys, kim: User) -> None:
    link = login_links.make_link(database, KIM)

    token = issue(keys, login_links.use_link(database, link.text), utc_now())

    assert verified(database, keys, token.text).name == "kim"
    assert use(database, keys, link.text) == "unknown, used or over"
    assert link.text not in repr(link)


def test_a_login_link_is_no_access_token_nor_the_other_way(database: Database, keys: SigningKeys, kim: User) -> None:
    assert refusal(database, keys, login_links.make_link(database, KIM).text) == "malformed"
    assert use(database, keys, tokens.issue(keys, kim, utc_now()).text) == "malformed"


def test_a_login_link_is_refused_after_its_time_with_another_secret_or_for_a_disabled_user(
    database: Database, keys: SigningKeys, kim: User
) -> None:
    link = login_links.make_link(database, KIM)
    assert timedelta(minutes=9) < link.expires_at - utc_now() <= timedelta(minutes=10, seconds=1)
    assert use(database, keys, link.text[:-8] + "00000000") == "unknown, used or over"
    with database.transaction() as connection:
        connection.exec_driver_sql("UPDATE login_links SET expires_at = now() - interval '1 second'")
    assert use(database, keys, link.text) == "unknown, used or over"

    link = login_links.make_link(database, KIM)
    users.disable(database, KIM)
    assert use(database, keys, link.text) == "disabled"


def test_the_first_start_makes_an_admin_and_a_link_and_repeats_the_link_until_there_is_a_password(
    database: Database, keys: SigningKeys
) -> None:
    first, again = login_links.make_first_admin_link(database), login_links.make_first_admin_link(database)
    assert first is not None
    assert again is not None
    token = issue(keys, login_links.use_link(database, first.text), utc_now())
    assert (token.role, verified(database, keys, token.text).name) == (Role.ADMIN, "admin")

    users.change_password(database, again.user_name, Password("correct horse battery", again.user_name))
    assert login_links.make_first_admin_link(database) is None


def test_where_there_are_users_no_admin_is_made(database: Database, kim: User) -> None:
    assert login_links.make_first_admin_link(database) is None
    users.add(database, UserName("lee"), Role.VIEWER, None)
    assert login_links.make_first_admin_link(database) is None


def test_times_of_tokens_are_whole_seconds(keys: SigningKeys, kim: User) -> None:
    token = tokens.issue(keys, kim, utc_now())
    assert token.expires_at == datetime.fromtimestamp(claims_of(token.text)["exp"], token.expires_at.tzinfo)
