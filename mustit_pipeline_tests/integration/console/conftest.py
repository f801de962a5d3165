"""The console in the test's process, on a real database, and browsers that are logged in."""

import re
from collections.abc import Callable, Generator
from html import unescape
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from mustit_pipeline.access import users
from mustit_pipeline.access.console_sessions import open_session
from mustit_pipeline.api.context import Ground
from mustit_pipeline.domain.access import Role, UserName
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.web import create_web
from mustit_pipeline_tests.conftest import MakeSettings

ENGLISH, KOREAN = {"Accept-Language": "en"}, {"Accept-Language": "ko"}
MakeBrowser = Callable[..., "Browser"]


class Browser:
    """A client with cookies that sends forms as a page has them."""

    def __init__(self, app: FastAPI, language: dict[str, str] = ENGLISH, cookie: str | None = None) -> None:
        self.client = TestClient(app, headers=language, follow_redirects=False, raise_server_exceptions=False)
        if cookie is not None:
            self.client.cookies.set("mustit_session", cookie, domain="testserver.local")

    def get(self, path: str, **more: object) -> httpx.Response:
        return self.client.get(path, **more)  # pyright: ignore[reportArgumentType]

    def token(self, page: str = "/password") -> str:
        """The form token of a page."""
        found = re.search(r'name="form_token" value="([0-9a-f]+)"', self.get(page).text)
        assert found is not None
        return found[1]

    def post(self, path: str, /, *, page: str = "/password", **fields: object) -> httpx.Response:
        """Send a form with the token of a page."""
        return self.client.post(path, data={"form_token": self.token(page), **fields})

    def act(self, path: str, /, **fields: Any) -> str:
        """Send a form, confirmed, and say what the next page says of it."""
        answer = self.client.post(path, data={"form_token": self.token(), "confirmed": "yes", **fields})
        assert answer.status_code == 303, answer.text
        return self.notice(answer.headers["location"])

    def take_back(self, page: str) -> None:
        """Press Undo beside the notice on a page."""
        [(address, inside)] = re.findall(
            r'(?s)<form class="notice-undo" method="post" action="([^"]+)">(.*?)</form>', self.get(page).text
        )
        fields = [
            (unescape(name), unescape(value)) for name, value in re.findall(r'name="(\w+)" value="([^"]*)"', inside)
        ]
        sent = {name: [value for key, value in fields if key == name] for name, _ in fields}
        answer = self.client.post(unescape(address), data=sent)
        assert answer.status_code == 303, answer.text

    def notice(self, page: str) -> str:
        """What a page says of the last action."""
        found = re.search(r'<p class="notice \w+" role="\w+">(.*?)</p>', self.get(page).text, re.DOTALL)
        assert found is not None
        return unescape(found[1])


@pytest.fixture(autouse=True)
def _cheap(cheap_passwords: None) -> None:
    """How much work a password is, is tested in `access/`."""


@pytest.fixture
def ground(make_settings: MakeSettings, database: Database) -> Ground:
    settings = make_settings()
    return Ground(settings, database, settings.signing_keys())


@pytest.fixture
def app(ground: Ground) -> Generator[FastAPI]:
    made = create_web(ground)
    with TestClient(made):
        yield made


@pytest.fixture
def anyone(app: FastAPI) -> Browser:
    """A browser without a session."""
    return Browser(app)


@pytest.fixture
def log_in(app: FastAPI, ground: Ground) -> MakeBrowser:
    """Browsers of new users."""

    def make(role: Role, name: str | None = None, language: dict[str, str] = ENGLISH) -> Browser:
        user = users.add(ground.database, UserName(name or role.value), role, None)
        return Browser(app, language, open_session(ground.keys, user, utc_now()).text)

    return make


@pytest.fixture
def admin(log_in: MakeBrowser) -> Browser:
    return log_in(Role.ADMIN)


@pytest.fixture
def viewer(log_in: MakeBrowser) -> Browser:
    return log_in(Role.VIEWER)


@pytest.fixture
def make_console(make_settings: MakeSettings, database: Database) -> Callable[..., Browser]:
    """An admin's browser at a console with other settings."""

    def make(**changed: object) -> Browser:
        settings = make_settings(**changed)
        ground = Ground(settings, database, settings.signing_keys())
        user = users.add(database, UserName("kim"), Role.ADMIN, None)
        return Browser(create_web(ground), cookie=open_session(ground.keys, user, utc_now()).text)

    return make
