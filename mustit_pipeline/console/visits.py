"""One request to the console: who asks, in which language and theme, and how it is answered."""

from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Annotated, Any

import orjson
from fastapi import Depends, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from mustit_pipeline.access.audit import AuditedDatabase
from mustit_pipeline.access.tokens import Identity
from mustit_pipeline.api.context import Caller, Ground
from mustit_pipeline.api.languages import Language
from mustit_pipeline.api.requests import RequestInfo
from mustit_pipeline.console import languages, seals
from mustit_pipeline.console.cookies import Cookie, Cookies
from mustit_pipeline.console.rendering import render
from mustit_pipeline.console.seals import Purpose
from mustit_pipeline.domain.access import Role
from mustit_pipeline.foundation.audited import Target
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.settings import Settings

STATE = "mustit.visit"
LOGGED = languages.marked("Written to the audit log.")
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src {images}; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


class Theme(StrEnum):
    """The colours of the pages; automatic is what the browser prefers."""

    AUTOMATIC = "auto"
    LIGHT = "light"
    DARK = "dark"


@dataclass(frozen=True, slots=True)
class Undo:
    """The form that takes an action back."""

    address: str
    fields: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Notice:
    """What the last action came to, for the next page; with the way back where there is one."""

    text: str
    good: bool
    undo: Undo | None = None


@dataclass(frozen=True, slots=True)
class Visit:
    """One request, with all that its page needs."""

    ground: Ground
    request: RequestInfo
    path: str
    # Scheme and host as the browser knows them, for links that leave the page.
    origin: str
    language: Language
    theme: Theme
    cookies: Cookies
    # What the tokens of forms are bound to: the session, or before the login a cookie of its own.
    form_id: str
    identity: Identity | None
    notice: Notice | None

    @property
    def database(self) -> Database:
        return self.ground.database

    @property
    def settings(self) -> Settings:
        return self.ground.settings

    @property
    def who(self) -> Identity:
        """Who asks; the gate refuses a request without a session where a page needs it."""
        assert self.identity is not None
        return self.identity

    @property
    def may_change(self) -> bool:
        """Whether this person sees controls that change something."""
        return self.identity is not None and self.identity.role.includes(Role.ADMIN)

    @property
    def form_token(self) -> str:
        """What every form of this visit carries."""
        return seals.seal(self.ground.keys, Purpose.FORM, self.form_id)

    def audited(self, action: str, target: Target) -> AuditedDatabase:
        """The database for one change, which is written down with who made it."""
        return Caller(self.ground, self.request, self.who).audited(action, target)

    def say(self, text: str, **values: Any) -> str:
        """A text in the language of this visit."""
        return languages.say(self.language, text, **values)

    def say_number(self, one: str, many: str, number: int, **values: Any) -> str:
        """A text about a number of things."""
        return languages.say_number(self.language, one, many, number, **values)

    def say_logged(self, text: str) -> str:
        """What an action came to, in the language of this visit already, and that it is written down."""
        return f"{text} {self.say(LOGGED)}"

    def page(self, template: str, http_status: int = HTTPStatus.OK, **values: Any) -> Response:
        """A page in the visit's language."""
        response = HTMLResponse(render(template, self, values), int(http_status))
        images = "'self' https:" if self.settings.console_images else "'self'"
        response.headers["Content-Security-Policy"] = POLICY.format(images=images)
        response.headers["Vary"] = "Cookie, Accept-Language"
        if self.notice is not None:
            self.cookies.drop(response, Cookie.NOTICE)
        return response

    def go(self, address: str) -> Response:
        """On to another page, after a form."""
        return RedirectResponse(address, HTTPStatus.SEE_OTHER)

    def done(self, address: str, text: str, *, good: bool = True, undo: Undo | None = None) -> Response:
        """On to another page, which shows what the action came to."""
        response = self.go(address)
        way_back = None if undo is None else [undo.address, undo.fields]
        if len(orjson.dumps(way_back)) > LONGEST_UNDO:
            way_back = None
        said = orjson.dumps([text[:LONGEST_NOTICE], good, way_back]).decode()
        sealed = seals.sealed(self.ground.keys, Purpose.NOTICE, said)
        self.cookies.set(response, Cookie.NOTICE, sealed, seconds=60)
        return response


# A cookie holds 4 KB, and a Korean character takes four bytes of it.
LONGEST_NOTICE, LONGEST_UNDO = 500, 800


def read_notice(ground: Ground, given: str | None) -> Notice | None:
    """The notice of a cookie, if it is ours."""
    text = None if given is None else seals.unsealed(ground.keys, Purpose.NOTICE, given)
    if text is None:
        return None
    said, good, way_back = orjson.loads(text)
    undo = None if way_back is None else Undo(way_back[0], tuple((name, value) for name, value in way_back[1]))
    return Notice(said, good, undo)


def visit_of(request: Request) -> Visit:
    """The visit that the gate has made of a request."""
    return request.scope["state"][STATE]


async def _visiting(request: Request) -> Visit:
    return visit_of(request)


Visiting = Annotated[Visit, Depends(_visiting)]
