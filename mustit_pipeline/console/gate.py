"""The gate of the console: every path needs a session but those that are named here, and every change an admin."""

from http import HTTPStatus
from secrets import token_urlsafe
from urllib.parse import quote

from anyio.to_thread import run_sync
from fastapi import Request, Response
from fastapi.responses import RedirectResponse
from sqlalchemy.exc import SQLAlchemyError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mustit_pipeline.access import console_sessions
from mustit_pipeline.access.tokens import Identity
from mustit_pipeline.api.context import IDENTITY, Ground, ground_of
from mustit_pipeline.api.languages import Language
from mustit_pipeline.api.problems import unavailable
from mustit_pipeline.api.requests import RequestInfo, info
from mustit_pipeline.console.cookies import Cookie, Cookies
from mustit_pipeline.console.errors import error_page
from mustit_pipeline.console.static_files import PREFIX
from mustit_pipeline.console.visits import STATE, Theme, Visit, read_notice
from mustit_pipeline.domain.access import Role
from mustit_pipeline.domain.errors import Forbidden, Unauthorized
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import is_away

READS = {"GET", "HEAD"}
OPEN = {"/login", "/login/link", "/preferences"}
# Forms that any person may send.
FOR_ALL = {"/logout", "/password"}
# Pages that need the role for reading too.
FOR_ADMINS = ("/users", "/audit")


def rule(method: str, path: str) -> Role | None:
    """What a request needs; None for what is open to all."""
    if path in OPEN or (path.startswith(PREFIX) and method in READS):
        return None
    if any(path == prefix or path.startswith(f"{prefix}/") for prefix in FOR_ADMINS):
        return Role.ADMIN
    return Role.VIEWER if method in READS or path in FOR_ALL else Role.ADMIN


class Gate:
    """Finds out who asks and what their browser remembers, before a route or a form is looked at."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        request = Request(scope)
        ground = ground_of(request)
        cookies = Cookies(ground.settings.api_is_https)
        away = False
        try:
            identity = await run_sync(_identify, ground, cookies.read(request, Cookie.SESSION))
        except SQLAlchemyError as error:
            if not is_away(error):
                raise
            identity, away = None, True
        login = cookies.read(request, Cookie.LOGIN)
        new_login = token_urlsafe(24) if identity is None and not login else None
        visit = _visit(request, ground, cookies, identity, login or new_login or "")
        scope["state"][STATE] = visit
        scope["state"][IDENTITY] = identity
        needed = rule(scope["method"], scope["path"])
        refusal = None if needed is None else _refusal(visit, needed, away=away)
        sent = Response()
        if new_login is not None and scope["path"] in OPEN:
            cookies.set(sent, Cookie.LOGIN, new_login)
        _renew(ground, cookies, identity, sent)
        more = [header for header in sent.raw_headers if header[0] == b"set-cookie"]

        async def with_cookies(message: Message) -> None:
            if message["type"] == "http.response.start" and more:
                given = list(message.get("headers", []))
                # A route that logs in or out has the last word about its cookie.
                named = {value.partition(b"=")[0] for name, value in given if name == b"set-cookie"}
                fresh = [header for header in more if header[1].partition(b"=")[0] not in named]
                message = {**message, "headers": [*given, *fresh]}
            await send(message)

        await (self._app if refusal is None else refusal)(scope, receive, with_cookies)


def _identify(ground: Ground, text: str | None) -> Identity | None:
    if not text:
        return None
    try:
        with ground.database.asking() as connection:
            return console_sessions.verify(connection, ground.keys, text)
    except Unauthorized:
        return None


def _renew(ground: Ground, cookies: Cookies, identity: Identity | None, response: Response) -> None:
    fresh = None if identity is None else console_sessions.renewed(ground.keys, identity, utc_now())
    if fresh is not None:
        cookies.set(response, Cookie.SESSION, fresh.text)


def _refusal(visit: Visit, needed: Role, *, away: bool) -> Response | None:
    if away:
        return error_page(visit, unavailable())
    if visit.identity is None:
        whole = visit.path if visit.path != "/" else ""
        return RedirectResponse(f"/login?next={quote(whole, safe='')}" if whole else "/login", HTTPStatus.SEE_OTHER)
    try:
        visit.identity.require(needed)
    except Forbidden as error:
        return error_page(visit, error)
    return None


def _visit(request: Request, ground: Ground, cookies: Cookies, identity: Identity | None, login: str) -> Visit:
    about: RequestInfo = info(request.scope)
    query = request.scope["query_string"].decode("latin-1")
    path = about.path + (f"?{query}" if query else "") if request.method in READS else "/"
    language, theme = cookies.read(request, Cookie.LANGUAGE), cookies.read(request, Cookie.THEME)
    return Visit(
        ground=ground,
        request=about,
        path=path,
        origin=str(request.base_url).rstrip("/"),
        language=Language(language) if language in set(Language) else about.language,
        theme=Theme(theme) if theme in set(Theme) else Theme.AUTOMATIC,
        cookies=cookies,
        form_id=f"session {identity.jti}" if identity is not None else f"login {login}",
        identity=identity,
        # A page that looks again, maybe in another tab, takes nothing away from the page that shows it.
        notice=None if "x-live" in request.headers else read_notice(ground, cookies.read(request, Cookie.NOTICE)),
    )
