"""Dagster's UI behind the console's login: admins reach the full one, viewers the one that changes nothing."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from http import HTTPStatus
from urllib.parse import quote

import aiohttp
import structlog
from anyio.to_thread import run_sync
from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState
from yarl import URL

from mustit_pipeline.access import console_sessions
from mustit_pipeline.access.tokens import Identity
from mustit_pipeline.api.context import Ground
from mustit_pipeline.api.problems import problem
from mustit_pipeline.api.requests import info
from mustit_pipeline.console.cookies import Cookie, Cookies
from mustit_pipeline.domain.access import Role
from mustit_pipeline.domain.errors import Forbidden, Unauthorized, Unavailable

PREFIX = "/dagster"
HOST = "127.0.0.1"
GRAPHQL = "/graphql"
# Files whose names change with their content.
LASTING = "/_next/static/"
# Some of them run as workers, which obey the policy of their own answer: that of our data would let them load nothing.
FILES_POLICY = "default-src 'self'; frame-ancestors 'none'"
FORWARDED = {"accept", "accept-language", "content-type", "if-none-match", "if-modified-since", "range"}
RETURNED = {
    "content-type",
    "content-encoding",
    "content-disposition",
    "content-security-policy",
    "etag",
    "last-modified",
    "content-range",
    "accept-ranges",
    "vary",
}
CONNECT_SECONDS, ANSWER_SECONDS = 5.0, 300.0
# How often an open WebSocket's session is looked at again.
RECHECK_SECONDS = 30.0
LARGEST_MESSAGE = 8 * 1024 * 1024
PROTOCOLS = ("graphql-transport-ws", "graphql-ws")

log = structlog.get_logger(__name__)


class DagsterProxy:
    """An ASGI application for everything below /dagster."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._cookies = Cookies(ground.settings.api_is_https)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = HTTPConnection(scope)
        identity = await run_sync(self._identify, connection)
        if scope["type"] == "websocket":
            await self._talk(WebSocket(scope, receive, send), identity)
        else:
            response = await self._answer(Request(scope, receive), identity)
            await response(scope, receive, send)

    def _identify(self, connection: HTTPConnection) -> Identity | None:
        text = self._cookies.read(connection, Cookie.SESSION)
        if not text:
            return None
        try:
            with self._ground.database.reading() as found:
                return console_sessions.verify(found, self._ground.keys, text)
        except Unauthorized:
            return None

    async def _answer(self, request: Request, identity: Identity | None) -> Response:
        path = _path(request.scope)
        if identity is None:
            return RedirectResponse(f"/login?next={quote(PREFIX + path, safe='')}", HTTPStatus.SEE_OTHER)
        refusal = _refusal(request, identity, path)
        if refusal is not None:
            return problem(info(request.scope), refusal)
        server = self._server(identity)
        if server is None:
            return problem(info(request.scope), _no_server())
        try:
            return await _forwarded(request, server)
        except (aiohttp.ClientError, TimeoutError) as error:
            log.warning("Dagster UI away", error=type(error).__name__)
            return problem(info(request.scope), _no_server())

    def _server(self, identity: Identity) -> str | None:
        """The UI for this person's role; a viewer without one for viewers gets none."""
        settings = self._ground.settings
        port = settings.dagster_port if identity.role.includes(Role.ADMIN) else settings.dagster_viewer_port
        return None if port is None else f"http://{HOST}:{port}"

    async def _talk(self, client: WebSocket, identity: Identity | None) -> None:
        """Pass the messages of a WebSocket on, both ways, for as long as its session lasts."""
        server = None if identity is None else self._server(identity)
        if server is None or _path(client.scope) != GRAPHQL or not _is_own_page(client):
            await client.close(1008)
            return
        wanted = [one for one in client.scope.get("subprotocols", []) if one in PROTOCOLS]
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.ws_connect(f"{server}{GRAPHQL}", protocols=wanted, max_msg_size=LARGEST_MESSAGE) as upstream,
            ):
                await client.accept(upstream.protocol)
                parts = [_up(client, upstream), _down(client, upstream), self._until_session_ends(client)]
                tasks = [asyncio.ensure_future(part) for part in parts]
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        except aiohttp.ClientError:
            await client.close(1013)
            return
        if client.application_state is WebSocketState.CONNECTED:
            await client.close()

    async def _until_session_ends(self, client: WebSocket) -> None:
        while True:
            await asyncio.sleep(RECHECK_SECONDS)
            if await run_sync(self._identify, client) is None:
                return


def _path(scope: Scope) -> str:
    """The path below /dagster."""
    return scope["path"].removeprefix(PREFIX) or "/"


def _refusal(request: Request, identity: Identity, path: str) -> Forbidden | None:
    # Dagster executes a mutation in an address as well, and an image of another site can ask for any address.
    executes = path == GRAPHQL and "query" in request.query_params
    if request.method in ("GET", "HEAD") and not executes:
        return None
    # A browser sends the session's cookie with a form of another site too.
    if not _is_own_page(request):
        return Forbidden(
            "FORBIDDEN_ORIGIN", korean="다른 사이트에서 온 요청입니다", english="The request comes from elsewhere"
        )
    if path == GRAPHQL or (request.method == "POST" and identity.role.includes(Role.ADMIN)):
        return None
    return Forbidden("FORBIDDEN_ROLE", korean="admin 권한이 필요합니다", english="This needs the role admin")


def _is_own_page(connection: HTTPConnection) -> bool:
    """Whether a page of this server asks: browsers say where a request that may change something comes from."""
    origin = connection.headers.get("origin")
    return origin is not None and origin.partition("://")[2] == connection.headers.get("host")


async def _forwarded(request: Request, server: str) -> Response:
    headers = {name: value for name, value in request.headers.items() if name in FORWARDED}
    path = _path(request.scope)
    # What is rewritten here must come as it is.
    plain = not path.startswith((LASTING, GRAPHQL))
    headers["accept-encoding"] = "identity" if plain else request.headers.get("accept-encoding", "identity")
    opened = _opened(request.method, _address(request, server), headers, await request.body())
    answer = await anext(opened)
    kept = {name.lower(): value for name, value in answer.headers.items() if name.lower() in RETURNED}
    if path.startswith(LASTING) and answer.status == HTTPStatus.OK:
        kept["cache-control"] = "private, max-age=86400"
        kept.setdefault("content-security-policy", FILES_POLICY)
    if plain and answer.content_type == "text/html":
        body = below_prefix(await answer.text())
        await opened.aclose()
        return Response(body, answer.status, kept)
    return StreamingResponse(_body(answer, opened), answer.status, kept)


def _address(request: Request, server: str) -> URL:
    """The same address below the server's root, encoded as the browser has sent it."""
    path = request.scope["raw_path"].decode("ascii").partition("?")[0].removeprefix(PREFIX) or "/"
    query = request.scope["query_string"].decode("latin-1")
    return URL(f"{server}{path}?{query}" if query else f"{server}{path}", encoded=True)


async def _opened(
    method: str, url: URL, headers: Mapping[str, str], body: bytes
) -> AsyncGenerator[aiohttp.ClientResponse]:
    """The answer's head; its connection is open until this is closed."""
    timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS, connect=CONNECT_SECONDS)
    async with (
        aiohttp.ClientSession(auto_decompress=False, timeout=timeout) as session,
        session.request(method, url, headers=headers, data=body or None, allow_redirects=False) as answer,
    ):
        yield answer


async def _body(
    answer: aiohttp.ClientResponse, opened: AsyncGenerator[aiohttp.ClientResponse]
) -> AsyncGenerator[bytes]:
    try:
        async for chunk in answer.content.iter_any():
            yield chunk
    finally:
        await opened.aclose()


def below_prefix(page: str) -> str:
    """Dagster's one page, made for the root of a server, for a place below /dagster: as its own --path-prefix does."""
    for root, below in (
        ('__webpack_public_path__ = ""', f'__webpack_public_path__ = "{PREFIX}"'),
        ('"pathPrefix": ""', f'"pathPrefix": "{PREFIX}"'),
        ('"assetPrefix":""', f'"assetPrefix":"{PREFIX}"'),
        ('href="/', f'href="{PREFIX}/'),
        ('src="/', f'src="{PREFIX}/'),
    ):
        page = page.replace(root, below)
    return page


async def _up(client: WebSocket, upstream: aiohttp.ClientWebSocketResponse) -> None:
    try:
        while True:
            await upstream.send_str(await client.receive_text())
    except (WebSocketDisconnect, ConnectionError, KeyError):
        return


async def _down(client: WebSocket, upstream: aiohttp.ClientWebSocketResponse) -> None:
    async for message in upstream:
        if message.type is aiohttp.WSMsgType.TEXT:
            await client.send_text(message.data)


def _no_server() -> Unavailable:
    return Unavailable(
        "UNAVAILABLE_DAGSTER",
        korean="이 권한으로 볼 수 있는 Dagster UI가 실행되고 있지 않습니다",
        english="No Dagster UI runs for this role: `mustit up` runs both, MUSTIT_DAGSTER_VIEWER_PORT is the viewers'",
    )
