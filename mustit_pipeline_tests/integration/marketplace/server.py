"""A real HTTP server on a free loopback port that answers with exactly the bytes a test wants."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from mustit_pipeline.marketplace.client import MarketplaceClient
from mustit_pipeline.settings import Settings

Send = Callable[["Exchange"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it came over the wire."""

    target: str
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and the connection that waits for its answer."""

    request: Received
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def client_is_gone(self) -> None:
        """Returns once the other side has closed."""
        await self.reader.read()


@dataclass(slots=True)
class Marketplace:
    """Answers every request through `answer`, and remembers requests and connections."""

    answer: Send
    received: list[Received] = field(default_factory=list)
    connections: int = 0
    open_now: int = 0
    most_open: int = 0
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open_now += 1
        self.most_open = max(self.most_open, self.open_now)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                start, *lines = head.strip().split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
                request = Received(start.split(" ")[1], headers)
                self.received.append(request)
                await self.answer(Exchange(request, reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self.open_now -= 1
            writer.close()


def response(body: bytes, *headers: str, status: str = "200 OK", length: int | None = None) -> bytes:
    """A whole HTTP response; a `length` of its own may lie."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body) if length is None else length}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def always(data: bytes) -> Send:
    return lambda exchange: exchange.send(data)


@asynccontextmanager
async def marketplace(answer: Send) -> AsyncIterator[Marketplace]:
    """A running server; it and every connection are closed at the end."""
    running = Marketplace(answer)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(running.serve(reader, writer))
        tasks.add(task)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    running.port = server.sockets[0].getsockname()[1]
    try:
        yield running
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()
        broken = [result for result in results if isinstance(result, Exception)]
        assert not broken, broken


def client_of(address: str, **changes: Any) -> MarketplaceClient:
    """A client with a body limit small enough for tests."""
    chosen: dict[str, Any] = {
        "connect_timeout_seconds": 5,
        "read_timeout_seconds": 5,
        "total_timeout_seconds": 10,
        "max_body_bytes": 65536,
    }
    return MarketplaceClient(Settings(base_url=address, **chosen | changes))


@asynccontextmanager
async def calling(
    answer: Send, *, scheme: str = "http", host: str = "127.0.0.1", **changes: Any
) -> AsyncIterator[tuple[Marketplace, MarketplaceClient]]:
    """A server and a client for it."""
    async with (
        marketplace(answer) as server,
        client_of(f"{scheme}://{host}:{server.port}", **changes) as client,
    ):
        yield server, client
