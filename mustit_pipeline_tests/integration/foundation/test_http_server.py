"""Kept connections: what an answer's framing allows, and which connection is used again."""

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mustit_pipeline.foundation import http_server
from mustit_pipeline.foundation.failures import NetworkReason
from mustit_pipeline.foundation.http_server import CallFailed, HttpServer
from mustit_pipeline_tests.integration.marketplace.server import (
    Exchange,
    Marketplace,
    Send,
    always,
    marketplace,
    response,
)

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
UNTIL_CLOSED = b"HTTP/1.1 200 OK\r\n\r\n"
EARLY_HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\nContent-Encoding: br\r\n\r\n"
CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n"


def calling(answer: Send, work: Callable[[Marketplace, HttpServer], Awaitable[None]], **changes: Any) -> None:
    """Let a client of one connection work against a server that answers so."""
    chosen: dict[str, Any] = {"connections": 1, "connect_seconds": 5, "read_seconds": 5, "call_seconds": 10}

    async def scenario() -> None:
        async with marketplace(answer) as server:
            url = f"http://127.0.0.1:{server.port}"
            async with HttpServer(url, reads_errors=True, **chosen | changes) as client:
                await work(server, client)

    asyncio.run(scenario())


def then_closed(data: bytes) -> Send:
    async def send(exchange: Exchange) -> None:
        await exchange.send(data)
        exchange.writer.close()

    return send


def byte_by_byte(data: bytes) -> Send:
    async def send(exchange: Exchange) -> None:
        for byte in data:
            await exchange.send(bytes([byte]))
            await asyncio.sleep(0)

    return send


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (always(response(b"abc")), b"abc"),
        (always(CHUNKS + b"\r\n"), b"abc"),
        (always(CHUNKS + b"Content-Encoding: br\r\nX-Checksum: 1\r\n\r\n"), b"abc"),
        (always(EARLY_HINTS + response(b"abc")), b"abc"),
        (always(b"HTTP/1.1 204 No Content\r\n\r\n"), b""),
        # These have no body, whatever length they name.
        (always(response(b"", status="204 No Content", length=3)), b""),
        (always(response(b"", status="304 Not Modified", length=3)), b""),
        (always(response(b"abc", status="200")), b"abc"),
        (byte_by_byte(EARLY_HINTS + response(b"abc")), b"abc"),
        (byte_by_byte(CHUNKS + b"X-Checksum: 1\r\n\r\n"), b"abc"),
    ],
    ids=[
        "length",
        "chunks",
        "chunks and trailers",
        "informational first",
        "no content",
        "no content with a length",
        "not modified with a length",
        "no reason",
        "byte by byte",
        "chunks byte by byte",
    ],
)
def test_a_framed_answer_is_whole_and_its_connection_is_kept(answer: Send, body: bytes) -> None:
    async def work(server: Marketplace, client: HttpServer) -> None:
        for _ in range(3):
            found = await client.call(GET, 10)
            assert (found.unpacked(10), found.whole, found.headers.get(b"content-encoding")) == (body, True, None)
        assert server.connections == 1

    calling(answer, work)


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (then_closed(UNTIL_CLOSED + b"abc"), b"abc"),
        (always(response(b"abc", "Connection: close")), b"abc"),
        (always(response(b"abc").replace(b"1.1", b"1.0")), b"abc"),
        # A second answer that was not asked for: a later request must not be answered with it.
        (always(response(b"abc") + response(b"other")), b"abc"),
        (always(response(b"abc" + response(b"other"), length=3)), b"abc"),
        (always(response(b"abc", status="204 No Content")), b""),
        (always(response(b"abc", status="304 Not Modified")), b""),
    ],
    ids=["until closed", "told to close", "an old protocol", "two answers", "too short a length", "204", "304"],
)
def test_a_connection_that_may_bring_more_than_its_answer_is_not_used_again(answer: Send, body: bytes) -> None:
    async def work(server: Marketplace, client: HttpServer) -> None:
        for number in range(1, 4):
            assert (await client.call(GET, 10)).body == body
            assert server.connections == number

    calling(answer, work)


def test_what_arrives_between_two_calls_ends_the_connection() -> None:
    async def work(server: Marketplace, client: HttpServer) -> None:
        assert (await client.call(GET, 10)).body == b"abc"
        answered.set()
        async with asyncio.timeout(5):
            await gone.wait()
        assert (await client.call(GET, 10)).body == b"abc"
        assert server.connections == 2

    answered, gone = asyncio.Event(), asyncio.Event()

    async def says_more(exchange: Exchange) -> None:
        await exchange.send(response(b"abc"))
        await answered.wait()
        await exchange.send(response(b"other"))
        await exchange.client_is_gone()
        gone.set()

    calling(says_more, work)


def test_a_connection_that_its_server_is_closing_takes_no_further_request() -> None:
    """It would be lost, and counted as one that may have arrived."""

    async def work(server: Marketplace, client: HttpServer) -> None:
        assert (await client.call(GET, 10)).body == b"abc"
        (kept,) = client._idle
        while not kept._closed_by_server:  # noqa: ASYNC110 - no other moment shows it
            await asyncio.sleep(0)
        assert not kept.has_ended
        assert (await client.call(GET, 10)).body == b"abc"
        assert (server.connections, len(server.received)) == (2, 2)

    calling(then_closed(response(b"abc")), work)


def test_a_connection_that_was_idle_for_long_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "LONGEST_IDLE_SECONDS", 0.0)

    async def work(server: Marketplace, client: HttpServer) -> None:
        await client.call(GET, 10)
        await client.call(GET, 10)
        assert server.connections == 2

    calling(always(response(b"abc")), work)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\nabc",
        b"HTTP/1.1 099 Odd\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX-Endless: " + b"y" * 200_000,
    ],
    ids=[
        "another protocol",
        "an upgrade",
        "two framings",
        "a negative length",
        "no such status",
        "many headers",
        "an endless header",
    ],
)
def test_what_is_no_http_is_a_garbled_answer(answer: bytes) -> None:
    async def work(_: Marketplace, client: HttpServer) -> None:
        with pytest.raises(CallFailed) as caught:
            await client.call(GET, 10)
        assert (caught.value.reason, caught.value.garbled) == (NetworkReason.BROKEN, True)

    calling(always(answer), work)


@pytest.mark.parametrize("answer", [response(b"a" * 11), CHUNKS.replace(b"1\r\nc", b"b\r\ncccccccccc") + b"\r\n"])
def test_an_answer_longer_than_asked_for_is_cut_and_its_connection_ended(answer: bytes) -> None:
    async def work(server: Marketplace, client: HttpServer) -> None:
        for number in range(1, 3):
            found = await client.call(GET, 10)
            assert not found.whole
            assert len(found.body) <= 10
            with pytest.raises(http_server.TooLarge):
                found.unpacked(10)
            assert server.connections == number

    calling(always(answer), work)


def test_those_who_wait_for_the_only_connection_get_it_one_after_the_other_also_past_a_cancelled_one() -> None:
    async def work(server: Marketplace, client: HttpServer) -> None:
        calls = [asyncio.create_task(client.call(GET, 10)) for _ in range(5)]
        await asyncio.sleep(0)
        turn = client._queue[0]
        calls[3].cancel()
        # One whose turn has come, before it knows.
        while not turn.done():  # noqa: ASYNC110 - no other moment shows it
            await asyncio.sleep(0)
        calls[1].cancel()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [getattr(answer, "body", None) for answer in answers] == [b"abc", None, b"abc", None, b"abc"]
        assert server.connections == 1

    calling(always(response(b"abc")), work, call_seconds=5)


def test_a_wait_for_a_connection_ends_with_the_calls_time() -> None:
    async def never(exchange: Exchange) -> None:
        await exchange.client_is_gone()

    async def work(_: Marketplace, client: HttpServer) -> None:
        first = asyncio.create_task(client.call(GET, 10))
        await asyncio.sleep(0)
        with pytest.raises(CallFailed) as caught:
            await client.call(GET, 10)
        assert caught.value.reason is NetworkReason.DEADLINE
        with pytest.raises(CallFailed):
            await first

    calling(never, work, call_seconds=0.2)


def test_a_packed_body_is_unpacked_up_to_the_limit() -> None:
    async def work(_: Marketplace, client: HttpServer) -> None:
        found = await client.call(GET, 1000)
        assert found.unpacked(1000) == b"a" * 1000
        with pytest.raises(http_server.TooLarge):
            found.unpacked(999)

    calling(always(response(gzip.compress(b"a" * 1000), "Content-Encoding: gzip")), work)
