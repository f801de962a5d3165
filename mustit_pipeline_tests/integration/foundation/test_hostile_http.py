"""What a hostile server can do to connections: real sockets, and the same client that meets the marketplace."""

import asyncio
import os
import random
import socket
import ssl
import struct
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from mustit_pipeline.foundation.failures import NetworkReason
from mustit_pipeline.foundation.http_server import CallFailed, HttpServer
from mustit_pipeline_tests.certificates import certificate

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@asynccontextmanager
async def serving(serve: Serve, **options: Any) -> AsyncIterator[int]:
    """The port of a server whose connections may break in any way."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (OSError, RuntimeError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(accept, options.pop("host", "127.0.0.1"), 0, **options)
    async with server:
        yield server.sockets[0].getsockname()[1]


def client(address: str, **changes: Any) -> HttpServer:
    chosen: dict[str, Any] = {"connections": 1, "connect_seconds": 5, "read_seconds": 5, "call_seconds": 20}
    return HttpServer(address, reads_errors=True, **chosen | changes)


async def failure(calls: HttpServer) -> CallFailed:
    with pytest.raises(CallFailed) as caught:
        await calls.call(GET, 100)
    return caught.value


def answered(number: bytes) -> bytes:
    return OK + b"Content-Length: %d\r\n\r\n%b" % (len(number), number)


def reset(writer: asyncio.StreamWriter) -> None:
    """Not an end but a break."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: 5\r\n\r\nabc",
        OK + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        OK + b"Content-Length: 3\r\nContent-Length: 2\r\n\r\nabc",
        OK + b"Content-Length: 3, 3\r\n\r\nabc",
        OK + b"Content-Length: +3\r\n\r\nabc",
        OK + b"Content-Length: 0x3\r\n\r\nabc",
        OK + b"Content-Length:\r\n\r\nabc",
        OK + b"Content-Length : 3\r\n\r\nabc",
        OK + b"Content-Length: 99999999999999999999999\r\n\r\nabc",
        OK + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: xchunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked, gzip\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        CHUNKED + b"5\r\nabc",
        CHUNKED + b"3\r\nabc\r\n",
        CHUNKED + b"3\r\nabc\r\n0\r\n",
        CHUNKED + b"-3\r\nabc\r\n0\r\n\r\n",
        CHUNKED + b"FFFFFFFFFFFFFFFF\r\nabc\r\n0\r\n\r\n",
        CHUNKED + b"3\r\nabcXX0\r\n\r\n",
        CHUNKED + b"3\nabc\n0\n\n",
        OK + b"X: a\r\n Content-Length: 3\r\n\r\nabc",
        OK + b"X: a\x00b\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\nContent-Length: 3\n\nabc",
        b"HTTP/1.1 20 OK\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 2000 OK\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 099 Odd\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/9.9 200 OK\r\nContent-Length: 3\r\n\r\nabc",
        b"ICY 200 OK\r\n\r\nabc",
        b"",
    ],
)
@pytest.mark.parametrize("end", ["closed", "reset"])
def test_an_answer_that_contradicts_itself_or_breaks_off_is_none_and_the_next_call_gets_its_own(
    answer: bytes, end: str
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer if len(connections) == 1 else answered(b"own"))
        await writer.drain()
        if len(connections) == 1:
            await asyncio.sleep(0.01)
            if end == "reset":
                reset(writer)

    async def scenario() -> None:
        async with serving(serve) as port, client(f"http://127.0.0.1:{port}") as calls:
            assert (await failure(calls)).reason is NetworkReason.BROKEN
            assert (await calls.call(GET, 100)).body == b"own"

    connections: list[asyncio.StreamWriter] = []
    uvloop.run(scenario())


def test_a_body_without_a_length_whose_connection_breaks_is_not_whole() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK + b"\r\nabc")
        await writer.drain()
        await asyncio.sleep(0.01)
        reset(writer)

    async def scenario() -> None:
        async with serving(serve) as port, client(f"http://127.0.0.1:{port}") as calls:
            assert (await failure(calls)).answered

    uvloop.run(scenario())


@pytest.mark.parametrize(
    ("start", "part"),
    [
        (CHUNKED + b"1\r\na\r\n0\r\nX-Trailer: ", b"y" * 65536),
        (CHUNKED + b"1\r\na\r\n0\r\n", b"X-Trailer: y\r\n" * 4096),
        (CHUNKED + b"1;", b"y" * 65536),
        (CHUNKED, b"0" * 65536),
        (b"HTTP/1.1 200 ", b"y" * 65536),
        (b"", b"\r\n" * 32768),
        (b"", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 1000),
    ],
    ids=["a trailer", "trailers", "a chunk's extension", "a chunk's size", "a reason", "empty lines", "early hints"],
)
def test_what_never_ends_is_ended_before_it_fills_the_memory(start: bytes, part: bytes) -> None:
    """Trailers were kept until the call's time was over: a server that sends fast filled hundreds of megabytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(start)
        while True:
            writer.write(part)
            sent += len(part)
            await writer.drain()

    async def scenario() -> None:
        async with serving(serve) as port, client(f"http://127.0.0.1:{port}", call_seconds=2) as calls:
            failed = await failure(calls)
            assert (failed.reason, failed.garbled) == (NetworkReason.BROKEN, True)
            assert sent < 30_000_000

    sent = 0
    uvloop.run(scenario())


def test_a_body_in_the_smallest_of_chunks_takes_its_own_size_of_memory() -> None:
    size = 200_000

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(CHUNKED)
        for _ in range(100):
            writer.write(b"2\r\nab\r\n" * (size // 200))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await reader.read()

    async def scenario() -> None:
        async with serving(serve) as port, client(f"http://127.0.0.1:{port}") as calls:
            tracemalloc.start()
            try:
                assert (await calls.call(GET, size)).body == b"ab" * (size // 2)
                assert tracemalloc.get_traced_memory()[1] < 10 * size
            finally:
                tracemalloc.stop()

    uvloop.run(scenario())


def test_no_call_is_ever_given_the_answer_to_another() -> None:
    """Calls are given up at any moment; answers come late, twice, in pieces, cut off, with something after them."""
    chance = random.Random(13)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            number = (await reader.readuntil(b"\r\n\r\n")).split()[1]
            whole, at = answered(number), chance.randrange(40)
            await asyncio.sleep(chance.random() * 0.004)
            match chance.randrange(8):
                case 0:
                    writer.write(whole + whole)
                case 1:
                    writer.write(whole[:at])
                    return
                case 2:
                    writer.write(whole[:at])
                    reset(writer)
                    return
                case 3:
                    writer.write(whole + b"\r\nHTTP")
                case 4:
                    writer.write(CHUNKED + b"%x\r\n%b\r\n0\r\n\r\n" % (len(number), number))
                case _:
                    writer.write(whole[:at])
                    await asyncio.sleep(0.001)
                    writer.write(whole[at:])

    async def call(calls: HttpServer, number: int) -> bool:
        try:
            async with asyncio.timeout(chance.random() * 0.1):
                answer = await calls.call(GET.replace(b"/", b"%d" % number, 1), 100)
        except (TimeoutError, CallFailed):
            return False
        assert answer.body == b"%d" % number
        return True

    async def scenario() -> None:
        async with serving(serve) as port:
            before = len(os.listdir("/proc/self/fd"))
            async with client(f"http://127.0.0.1:{port}", connections=10) as calls:
                found = [await asyncio.gather(*(call(calls, 20 * turn + n) for n in range(20))) for turn in range(60)]
                assert sum(map(sum, found)) > 200
            await asyncio.sleep(0.1)
            assert len(os.listdir("/proc/self/fd")) <= before

    uvloop.run(scenario())


def test_an_answer_that_overtakes_its_request_ends_the_connection() -> None:
    """The rest of the request would have been sent first, and read as the next one."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        # It reads no more than the head.
        await reader.read(10)
        writer.write(answered(b"early"))
        await asyncio.Event().wait()

    async def scenario() -> None:
        body = b"a" * 20_000_000
        async with serving(serve) as port, client(f"http://127.0.0.1:{port}") as calls:
            for number in (1, 2):
                request = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
                assert (await calls.call(request + body, 100)).body == b"early"
                assert len(connections) == number

    connections: list[asyncio.StreamWriter] = []
    uvloop.run(scenario())


async def own(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(answered(b"own"))
    await reader.read()


def test_a_host_whose_first_address_is_dead_is_reached_at_its_next_one() -> None:
    """The whole time for connecting went into the first address, call after call."""

    async def scenario() -> None:
        # A queue that is full: further connections are neither accepted nor refused.
        dead = socket.create_server(("127.0.0.2", 0), backlog=0)
        port = dead.getsockname()[1]
        full = [socket.socket() for _ in range(3)]
        for one in full:
            one.setblocking(False)
            one.connect_ex(("127.0.0.2", port))
        server = await asyncio.start_server(own, "127.0.0.1", port)

        async def resolve(host: str, *_: Any, **__: Any) -> list[Any]:
            addresses = ("127.0.0.2", "127.0.0.1") if host == "marketplace.example" else (host,)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

        loop: Any = asyncio.get_running_loop()
        loop.getaddrinfo = resolve
        async with server, client(f"http://marketplace.example:{port}", connect_seconds=2) as calls:
            assert (await calls.call(GET, 100)).body == b"own"
        for one in (*full, dead):
            one.close()

    uvloop.run(scenario())


@pytest.mark.parametrize("host", ["a..b", "a" * 64 + ".example", "nothing.invalid"])
def test_a_name_that_cannot_be_is_no_connection(host: str) -> None:
    async def scenario() -> None:
        async with client(f"http://{host}") as calls:
            assert (await failure(calls)).reason is NetworkReason.CONNECT

    uvloop.run(scenario())


def test_a_server_is_reached_over_ipv6() -> None:
    async def scenario() -> None:
        async with serving(own, host="::1") as port, client(f"http://[::1]:{port}") as calls:
            assert calls.host_line == f"Host: [::1]:{port}\r\n"
            assert (await calls.call(GET, 100)).body == b"own"

    uvloop.run(scenario())


@pytest.fixture
def tls(tmp_path: Path) -> tuple[Path, ssl.SSLContext]:
    """A certificate for 127.0.0.1, and a server's side of it."""
    cert, key = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return cert, context


@pytest.mark.parametrize(
    ("host", "is_trusted", "is_reached"),
    [("127.0.0.1", True, True), ("127.0.0.1", False, False), ("localhost", True, False)],
    ids=["trusted", "unknown issuer", "another name"],
)
def test_only_a_server_with_a_certificate_for_its_name_is_asked(
    tls: tuple[Path, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch, host: str, is_trusted: bool, is_reached: bool
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            asked.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(answered(b"own"))

    async def scenario() -> None:
        async with serving(serve, ssl=tls[1]) as port, client(f"https://{host}:{port}") as calls:
            if is_reached:
                assert [(await calls.call(GET, 100)).body for _ in range(3)] == [b"own", b"own", b"own"]
            else:
                assert (await failure(calls)).reason is NetworkReason.CONNECT
        assert bool(asked) is is_reached

    asked: list[bytes] = []
    if is_trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(tls[0]))
    uvloop.run(scenario())


@pytest.mark.parametrize("is_said", [True, False], ids=["told", "cut off"])
def test_a_body_without_a_length_is_whole_only_if_tls_says_where_it_ends(
    tls: tuple[Path, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch, is_said: bool
) -> None:
    """Without a word of the server the connection may have been cut off on its way."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK + b"\r\nabc")
        await writer.drain()
        if not is_said:
            below = socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno()))
            below.shutdown(socket.SHUT_WR)
            below.close()
            await asyncio.Event().wait()

    async def scenario() -> None:
        async with serving(serve, ssl=tls[1]) as port, client(f"https://127.0.0.1:{port}") as calls:
            if is_said:
                answer = await calls.call(GET, 100)
                assert (answer.body, answer.whole) == (b"abc", True)
            else:
                assert (await failure(calls)).reason is NetworkReason.BROKEN

    monkeypatch.setenv("SSL_CERT_FILE", str(tls[0]))
    uvloop.run(scenario())
