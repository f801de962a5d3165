"""API2 Broken authentication: forged, borrowed, ended and guessed credentials."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
import pytest
from fastapi.testclient import TestClient

from mustit_pipeline.access import api_keys, login_links, users
from mustit_pipeline.access.tokens import ALGORITHM, ISSUER, Audience
from mustit_pipeline.api.context import Ground
from mustit_pipeline.domain.access import KeyName, Password, Role, Scope, UserName
from mustit_pipeline_tests.integration.api.conftest import MakeClient, token

WORD = "a long enough word"
Forge = Callable[[Ground, dict[str, Any]], str]


def signed(ground: Ground, claims: dict[str, Any], **header: str) -> str:
    """A token with our own key, whatever it claims."""
    keys = ground.keys
    return jwt.encode(claims, keys.keys[keys.current], ALGORITHM, headers={"kid": keys.current, **header})


FORGED: dict[str, Forge] = {
    "no algorithm": lambda ground, claims: jwt.encode(claims, "", "none", headers={"kid": ground.keys.current}),
    "another algorithm": lambda ground, claims: jwt.encode(
        claims, ground.keys.keys[ground.keys.current], "HS512", headers={"kid": ground.keys.current}
    ),
    "another secret": lambda ground, claims: jwt.encode(
        claims, "x" * 64, ALGORITHM, headers={"kid": ground.keys.current}
    ),
    "an unknown key": lambda ground, claims: signed(ground, claims, kid="other"),
    "expired": lambda ground, claims: signed(ground, claims | {"exp": datetime.now(UTC) - timedelta(minutes=1)}),
    "not yet valid": lambda ground, claims: signed(ground, claims | {"nbf": datetime.now(UTC) + timedelta(hours=1)}),
    "another audience": lambda ground, claims: signed(ground, claims | {"aud": "elsewhere"}),
    "another issuer": lambda ground, claims: signed(ground, claims | {"iss": "elsewhere"}),
    "without an end": lambda ground, claims: signed(ground, {k: v for k, v in claims.items() if k != "exp"}),
    "another role": lambda ground, claims: signed(ground, claims | {"role": "owner"}),
    "an unknown user": lambda ground, claims: signed(ground, claims | {"sub": "stranger"}),
    "a generation of before": lambda ground, claims: signed(ground, claims | {"gen": -1}),
}


@pytest.fixture
def claims(ground: Ground) -> dict[str, Any]:
    """What a token of a real admin claims."""
    real = token(ground, Role.ADMIN, "kim")
    return jwt.decode(real, ground.keys.keys[ground.keys.current], [ALGORITHM], audience=Audience.API, issuer=ISSUER)


def ask(client: TestClient, text: str) -> int:
    return client.get("/api/v1/sellers", headers={"Authorization": f"Bearer {text}"}).status_code


def test_a_token_as_we_make_it_is_taken(anyone: TestClient, ground: Ground, claims: dict[str, Any]) -> None:
    assert ask(anyone, signed(ground, claims)) == 200


@pytest.mark.parametrize("kind", FORGED)
def test_a_token_that_is_not_as_we_make_it_is_refused(
    anyone: TestClient, ground: Ground, claims: dict[str, Any], kind: str
) -> None:
    assert ask(anyone, FORGED[kind](ground, claims)) == 401


@pytest.mark.parametrize("text", ["", "null", "a.b.c", "é".encode(), "x" * 20_000, "mk_000000000000_" + "0" * 64])
def test_what_is_no_token_at_all_is_refused(anyone: TestClient, text: str | bytes) -> None:
    given = {"Authorization": b"Bearer " + (text if isinstance(text, bytes) else text.encode())}
    assert anyone.get("/api/v1/sellers", headers=given).status_code == 401


def test_one_kind_of_credential_is_none_of_another(anyone: TestClient, ground: Ground) -> None:
    person = token(ground, Role.ADMIN, "kim")
    key = api_keys.create(ground.database, KeyName("x"), list(Scope), timedelta(days=1)).text
    link = login_links.make_link(ground.database, UserName("kim")).text
    for text in (key, link):
        assert ask(anyone, text) == 401
    for text in (person, link):
        trigger = anyone.post("/api/internal/crawling/trigger", json={"sellerId": "x"}, headers={"X-API-Key": text})
        assert trigger.status_code == 401
    both = {"Authorization": f"Bearer {person}"}
    assert anyone.post("/api/internal/crawling/trigger", json={"sellerId": "x"}, headers=both).status_code == 401
    assert anyone.get("/api/v1/sellers", headers={"X-API-Key": key}).status_code == 401
    assert anyone.get("/api/v1/sellers", cookies={"token": person, "session": person}).status_code == 401
    assert anyone.get("/api/v1/sellers", params={"access_token": person}).status_code == 401


def test_a_disabled_users_token_and_a_revoked_key_are_refused_at_once(
    anyone: TestClient, ground: Ground, with_key: MakeClient
) -> None:
    token(ground, Role.ADMIN, "lee")
    person = token(ground, Role.ADMIN, "kim")
    assert ask(anyone, person) == 200
    users.disable(ground.database, UserName("kim"))
    assert ask(anyone, person) == 401
    client = with_key(Scope.TRIGGER)
    assert client.post("/api/internal/crawling/trigger", json={"sellerId": "x"}).status_code == 404
    api_keys.revoke(ground.database, client.headers["X-API-Key"].split("_")[1])
    assert client.post("/api/internal/crawling/trigger", json={"sellerId": "x"}).status_code == 401


def test_a_key_opens_its_own_scope_only(with_key: MakeClient) -> None:
    metrics = with_key(Scope.METRICS).post("/api/internal/crawling/trigger", json={"sellerId": "x"})
    trigger = with_key(Scope.TRIGGER).get("/metrics")
    assert (metrics.status_code, trigger.status_code) == (403, 403)


def test_guesses_are_slowed_and_answered_alike(anyone: TestClient, ground: Ground) -> None:
    name = UserName("kim")
    users.add(ground.database, name, Role.ADMIN, Password(WORD, name))
    for user in ("kim", "stranger"):
        answers = [anyone.post("/api/v1/auth/login", json={"username": user, "password": "wrong"}) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [401, 401, 401, 429]
        assert int(answers[-1].headers["retry-after"]) >= 1


def test_the_right_word_gives_a_token_for_fifteen_minutes(anyone: TestClient, ground: Ground) -> None:
    name = UserName("kim")
    users.add(ground.database, name, Role.VIEWER, Password(WORD, name))
    answer = anyone.post("/api/v1/auth/login", json={"username": "KIM", "password": WORD})
    body = answer.json()
    assert (answer.status_code, body["tokenType"], body["expiresIn"], body["role"]) == (200, "Bearer", 900, "viewer")
    assert answer.headers["cache-control"] == "no-store"
    assert ask(anyone, body["accessToken"]) == 200
