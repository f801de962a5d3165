"""The web application in the test's process, on a real database, and clients with each kind of right."""

from collections.abc import Callable, Generator
from datetime import timedelta

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from mustit_pipeline.access import api_keys, users
from mustit_pipeline.access.tokens import issue
from mustit_pipeline.api.context import Ground
from mustit_pipeline.domain.access import KeyName, Role, Scope, UserName
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.web import create_web
from mustit_pipeline_tests.conftest import MakeSettings

MakeClient = Callable[..., TestClient]
ENGLISH = {"Accept-Language": "en"}


@pytest.fixture(autouse=True)
def _cheap(cheap_passwords: None) -> None:
    """How much work a password is, is tested in `access/`."""


@pytest.fixture
def ground(make_settings: MakeSettings, database: Database) -> Ground:
    settings = make_settings()
    return Ground(settings, database, settings.signing_keys())


@pytest.fixture
def app(ground: Ground) -> FastAPI:
    return create_web(ground)


@pytest.fixture
def anyone(app: FastAPI) -> Generator[TestClient]:
    """A client without any right."""
    with TestClient(app, headers=ENGLISH, raise_server_exceptions=False) as client:
        yield client


def token(ground: Ground, role: Role, name: str | None = None) -> str:
    """An access token of a user with this role, who is added."""
    user = users.add(ground.database, UserName(name or role.value), role, None)
    return issue(ground.keys, user, utc_now()).text


@pytest.fixture
def admin(app: FastAPI, ground: Ground, anyone: TestClient) -> TestClient:
    """A client with an admin's access token; it shares the running application."""
    return TestClient(app, headers=ENGLISH | {"Authorization": f"Bearer {token(ground, Role.ADMIN)}"})


@pytest.fixture
def viewer(app: FastAPI, ground: Ground, anyone: TestClient) -> TestClient:
    """The same as a viewer."""
    return TestClient(app, headers=ENGLISH | {"Authorization": f"Bearer {token(ground, Role.VIEWER)}"})


@pytest.fixture
def with_key(app: FastAPI, ground: Ground, anyone: TestClient) -> MakeClient:
    """Clients with an API key of a scope."""

    def make(scope: Scope) -> TestClient:
        made = api_keys.create(ground.database, KeyName(f"test {scope}"), [scope], timedelta(days=1))
        return TestClient(app, headers=ENGLISH | {"X-API-Key": made.text})

    return make
