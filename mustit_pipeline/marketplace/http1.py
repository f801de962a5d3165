"""HTTP/1.1 as far as the marketplace needs it: one GET at a time on connections that are kept for the next.

A general client spends three times the CPU time on a call, for cookies, redirects, proxies, retries and streams; none
of that is wanted here: a request is sent once, whatever becomes of it. The protocol itself is read by llhttp.
"""

import asyncio
import socket
import ssl
from dataclasses import dataclass, field
from typing import cast

import aiohappyeyeballs
import httptools

from mustit_pipeline.failures import NetworkReason

# Other servers close a connection that nobody used for so long: a request would meet that.
KEPT_SECONDS = 15.0
MOST_HEAD_BYTES = 65_536
SECOND_ADDRESS_AFTER_SECONDS = 0.25


class Broken(Exception):
    """No whole answer arrived."""

    def __init__(self, reason: NetworkReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class TooLarge(Exception):
    """The body is larger than it may be."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer as it came; of one that is no success the body may be missing."""

    status: int
    headers: list[tuple[str, str]] = field(repr=False)
    body: bytes = field(repr=False)

    def first(self, name: str) -> str | None:
        """The first header of that name, in small letters."""
        return next((value for found, value in self.headers if found == name), None)

    def all(self, name: str) -> tuple[str, ...]:
        """Every header of that name."""
        return tuple(value for found, value in self.headers if found == name)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long a connection, a silence and a body may be."""

    connect_seconds: float
    read_seconds: float
    body_bytes: int


class Connections:
    """Connections to one server, at most so many at once."""

    def __init__(self, host: str, port: int, *, tls: bool, most: int, bounds: Bounds) -> None:
        self._host = host
        self._port = port
        self._tls = ssl.create_default_context() if tls else None
        self._bounds = bounds
        self._places = asyncio.Semaphore(most)
        self._idle: list[_Connection] = []
        self._loop = asyncio.get_running_loop()

    async def exchange(self, request: bytes, deadline: float) -> Reply:
        """Send a request once and bring its answer, until `deadline` on the loop's clock; Broken or TooLarge if not."""
        await self._take_a_place(deadline)
        connection = None
        try:
            connection = self._kept() or await self._open(deadline)
            return await connection.ask(request, deadline)
        finally:
            if connection is not None:
                if connection.is_free:
                    self._idle.append(connection)
                else:
                    connection.drop()
            self._places.release()

    async def _take_a_place(self, deadline: float) -> None:
        if not self._places.locked():
            await self._places.acquire()
            return
        try:
            async with asyncio.timeout_at(deadline):
                await self._places.acquire()
        except TimeoutError:
            raise Broken(NetworkReason.DEADLINE) from None

    def close(self) -> None:
        """Hang up."""
        for connection in self._idle:
            connection.drop()
        self._idle.clear()

    def _kept(self) -> "_Connection | None":
        """The connection that was used last: the others may be too old soon."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_free and self._loop.time() - connection.heard < KEPT_SECONDS:
                return connection
            connection.drop()
        return None

    async def _open(self, deadline: float) -> "_Connection":
        try:
            async with asyncio.timeout_at(min(deadline, self._loop.time() + self._bounds.connect_seconds)):
                found = await self._loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
                connected = await aiohappyeyeballs.start_connection(
                    found, happy_eyeballs_delay=SECOND_ADDRESS_AFTER_SECONDS, interleave=1
                )
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                _, connection = await self._loop.create_connection(
                    lambda: _Connection(self._loop, self._bounds),
                    sock=connected,
                    ssl=self._tls,
                    server_hostname=self._host if self._tls else None,
                )
                return connection
        except TimeoutError:
            late = self._loop.time() >= deadline
            raise Broken(NetworkReason.DEADLINE if late else NetworkReason.CONNECT_TIMEOUT) from None
        except OSError:
            raise Broken(NetworkReason.CONNECT) from None


class _Connection(asyncio.Protocol):
    """One connection; the methods from on_header on are called by the parser."""

    def __init__(self, loop: asyncio.AbstractEventLoop, bounds: Bounds) -> None:
        self._loop = loop
        self._bounds = bounds
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        # As forgiving as browsers are; none of it can make one answer look like two.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self._answer: asyncio.Future[Reply] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self.heard = loop.time()
        self._begin()

    def _begin(self) -> None:
        self._status = 0
        self._head_bytes = 0
        self._headers: list[tuple[str, str]] = []
        self._parts: list[bytes] = []
        self._size = 0
        self._whole = self._kept = self._oversized = False

    @property
    def is_free(self) -> bool:
        """Whether the next request may be sent on it."""
        return self._answer is None and self._transport is not None and not self._transport.is_closing()

    def ask(self, request: bytes, deadline: float) -> asyncio.Future[Reply]:
        """Send a request; whoever no longer waits for the answer drops the connection."""
        answer = self._answer = self._loop.create_future()
        self._begin()
        self._deadline = deadline
        self.heard = self._loop.time()
        self._timer = self._loop.call_at(min(deadline, self.heard + self._bounds.read_seconds), self._look_at_the_clock)
        if self._transport is None or self._transport.is_closing():
            self._fail(Broken(NetworkReason.BROKEN))
        else:
            self._transport.write(request)
        return answer

    def drop(self) -> None:
        """Close at once."""
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            # Nobody asked for anything.
            self.drop()
            return
        self.heard = self._loop.time()
        if not self._status:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._kept = False
            if not self._whole:
                self._fail(Broken(NetworkReason.BROKEN))
                return
        if self._oversized:
            self._fail(TooLarge())
        elif self._whole or (self._status and not 200 <= self._status < 300):
            self._deliver()
        elif not self._status and self._head_bytes > MOST_HEAD_BYTES:
            self._fail(Broken(NetworkReason.BROKEN))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is None:
            return
        framed = any(name in ("content-length", "transfer-encoding") for name, _ in self._headers)
        if exc is None and self._status and not framed:
            # Of a body without a length the end of the connection is the end.
            self._deliver()
        else:
            self._fail(Broken(NetworkReason.BROKEN))

    def on_message_begin(self) -> None:
        if self._whole:
            # A second answer to one request.
            self._kept = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._whole:
            self._headers.append((name.decode("latin-1").lower(), value.decode("latin-1").strip()))

    def on_headers_complete(self) -> None:
        if self._whole:
            return
        status = self._parser.get_status_code()
        if status < 200:
            # On the way to the real answer.
            self._headers.clear()
            return
        self._status = status
        announced = next((value for name, value in self._headers if name == "content-length"), "")
        self._oversized = announced.isdigit() and int(announced[:20]) > self._bounds.body_bytes

    def on_body(self, body: bytes) -> None:
        if self._whole:
            return
        self._size += len(body)
        if self._size > self._bounds.body_bytes:
            self._oversized = True
            self._parts.clear()
        else:
            self._parts.append(body)

    def on_message_complete(self) -> None:
        if self._status and not self._whole:
            self._whole = True
            self._kept = self._parser.should_keep_alive()

    def _look_at_the_clock(self) -> None:
        now, silent_at = self._loop.time(), self.heard + self._bounds.read_seconds
        if now >= self._deadline:
            self._fail(Broken(NetworkReason.DEADLINE))
        elif now >= silent_at:
            self._fail(Broken(NetworkReason.READ_TIMEOUT))
        else:
            self._timer = self._loop.call_at(min(self._deadline, silent_at), self._look_at_the_clock)

    def _deliver(self) -> None:
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        reply = Reply(self._status, self._headers, body)
        answer, self._answer = self._answer, None
        if self._timer is not None:
            self._timer.cancel()
        if not self._kept:
            self.drop()
        if answer is not None and not answer.done():
            answer.set_result(reply)

    def _fail(self, error: Exception) -> None:
        answer, self._answer = self._answer, None
        self.drop()
        if answer is not None and not answer.done():
            answer.set_exception(error)
