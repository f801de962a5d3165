"""Logging in and out, the password, and what the browser remembers."""

from datetime import timedelta
from http import HTTPStatus

from fastapi import APIRouter, Response

from mustit_pipeline.access import console_sessions, login_links, users
from mustit_pipeline.access.login import authenticate
from mustit_pipeline.access.sql import users as stored_users
from mustit_pipeline.access.sql.users import User
from mustit_pipeline.api.languages import Language
from mustit_pipeline.api.problems import retry_after
from mustit_pipeline.console.cookies import Cookie
from mustit_pipeline.console.forms import Sending, local_path
from mustit_pipeline.console.languages import marked
from mustit_pipeline.console.visits import Theme, Visit, Visiting
from mustit_pipeline.domain.access import SHORTEST_PASSWORD, Password, UserName
from mustit_pipeline.domain.errors import DomainError, Unauthorized
from mustit_pipeline.foundation.audited import Target
from mustit_pipeline.foundation.clock import utc_now

REMEMBERED = int(timedelta(days=365).total_seconds())
DIFFERENT = marked("The two new passwords differ.")
CHANGED = marked("Your password is changed. Other sessions of yours have ended.")

router = APIRouter()


@router.get("/login")
def login_page(visit: Visiting, next: str = "") -> Response:
    """The login; who has a session goes on."""
    if visit.identity is not None:
        return visit.go(local_path(next) or "/")
    return _login(visit, next)


@router.post("/login")
def login(visit: Visiting, sent: Sending) -> Response:
    """Log in with a password."""
    name, after = sent.text("username"), sent.text("next")
    try:
        user = authenticate(visit.database, name, sent.untouched("password"), visit.request.address)
    except DomainError as error:
        return _login(visit, after, name=name, error=error)
    return _open(visit, user, local_path(after) or "/")


@router.get("/login/link")
def link_page(visit: Visiting, key: str = "") -> Response:
    """A page between the link and the login: whatever looks at links for a preview does not use them up."""
    return visit.page("link.html", key=key)


@router.post("/login/link")
def use_link(visit: Visiting, sent: Sending) -> Response:
    """Log in by a link; a user without a password sets one next."""
    try:
        user = login_links.use_link(visit.database, sent.text("key"))
    except Unauthorized as error:
        return _login(visit, "", error=error)
    return _open(visit, user, "/" if user.has_password else "/password")


@router.post("/logout")
def logout(visit: Visiting) -> Response:
    """End the session, in every tab and for every copy of its cookie."""
    with visit.database.transaction() as connection:
        console_sessions.end(connection, visit.who)
    response = visit.go("/login")
    visit.cookies.drop(response, Cookie.SESSION)
    return response


@router.get("/password")
def password_page(visit: Visiting) -> Response:
    """The form for another password."""
    return _password(visit)


@router.post("/password")
def change_password(visit: Visiting, sent: Sending) -> Response:
    """Set one's own password; the session goes on under a new token."""
    name = UserName(visit.who.name)
    with visit.database.reading() as connection:
        user = stored_users.get(connection, name)
    try:
        if user.has_password:
            authenticate(visit.database, name.value, sent.untouched("present"), visit.request.address)
        if sent.untouched("fresh") != sent.untouched("again"):
            return _password(visit, visit.say(DIFFERENT), HTTPStatus.BAD_REQUEST)
        password = Password(sent.untouched("fresh"), name)
    except DomainError as error:
        return _password(visit, error.message(visit.language), error.status)
    user = users.change_password(visit.audited("user.password", Target(f"user {name}")), name, password)
    return _open(visit, user, "/", visit.say(CHANGED))


@router.post("/preferences")
def remember(visit: Visiting, sent: Sending) -> Response:
    """Keep the language or the colours."""
    response = visit.go(sent.back or "/")
    if sent.text("language") in set(Language):
        visit.cookies.set(response, Cookie.LANGUAGE, sent.text("language"), seconds=REMEMBERED)
    if sent.text("theme") in set(Theme):
        visit.cookies.set(response, Cookie.THEME, sent.text("theme"), seconds=REMEMBERED)
    return response


def _open(visit: Visit, user: User, address: str, text: str | None = None) -> Response:
    token = console_sessions.open_session(visit.ground.keys, user, utc_now())
    response = visit.go(address) if text is None else visit.done(address, text)
    visit.cookies.set(response, Cookie.SESSION, token.text)
    visit.cookies.drop(response, Cookie.LOGIN)
    return response


def _login(visit: Visit, after: str, *, name: str = "", error: DomainError | None = None) -> Response:
    status = HTTPStatus.OK if error is None else error.status
    said = None if error is None else error.message(visit.language)
    response = visit.page("login.html", status, next=local_path(after), username=name, error=said)
    if error is not None:
        response.headers.update(retry_after(error))
    return response


def _password(visit: Visit, error: str | None = None, status: int = HTTPStatus.OK) -> Response:
    with visit.database.reading() as connection:
        has_password = stored_users.get(connection, UserName(visit.who.name)).has_password
    return visit.page("password.html", status, has_password=has_password, shortest=SHORTEST_PASSWORD, error=error)
