"""The connections of the client: how answers are framed, and which connection carries the next call."""

import asyncio

import pytest

from mustit_pipeline_tests.integration.marketplace.server import Exchange, Send, always, calling, chunked, response
from mustit_pipeline_tests.integration.marketplace.test_client import fetched


async def without_a_length(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\n\r\nwh")
    await exchange.send(b"ole")
    exchange.writer.close()


async def in_pieces(exchange: Exchange) -> None:
    for byte in response(b"whole"):
        await exchange.send(bytes([byte]))


@pytest.mark.parametrize(
    "answer",
    [
        always(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + response(b"whole")),
        always(response(b"whole", "Connection: close")),
        always(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nwhole"),
        always(b"HTTP/1.1 200 OK\nContent-Length: 5\n\nwhole"),
        always(response(b"whole") + response(b"and another")),
        always(response(b"whole") + b"\x00and more"),
        always(chunked(b"whole")),
        without_a_length,
        in_pieces,
    ],
    ids=["hints", "closed", "1.0", "no CR", "two answers", "rest", "chunked", "no length", "pieces"],
)
def test_an_answer_is_whole_however_it_is_framed_and_no_rest_of_it_answers_the_next_call(answer: Send) -> None:
    async def scenario() -> None:
        async with calling(answer, max_concurrent_requests=1) as (server, client):
            for _ in range(3):
                assert await fetched(client) == b"whole"
            assert len(server.received) == 3

    asyncio.run(scenario())


def test_an_answer_that_nobody_asked_for_is_nobodys_answer() -> None:
    async def scenario() -> None:
        async def then_speaks_again(exchange: Exchange) -> None:
            await exchange.send(response(b"asked"))
            await asyncio.sleep(0.05)
            await exchange.send(response(b"unasked"))

        async with calling(then_speaks_again, max_concurrent_requests=1) as (server, client):
            assert await fetched(client) == b"asked"
            await asyncio.sleep(0.2)
            assert await fetched(client) == b"asked"
            assert server.connections == 2

    asyncio.run(scenario())


def test_one_connection_carries_call_after_call() -> None:
    async def scenario() -> None:
        async with calling(always(response(b"{}"))) as (server, client):
            for _ in range(5):
                await fetched(client)
            assert (server.connections, len(server.received)) == (1, 5)

    asyncio.run(scenario())


def test_a_connection_that_was_closed_meanwhile_is_replaced() -> None:
    async def scenario() -> None:
        async def once(exchange: Exchange) -> None:
            await exchange.send(response(b"{}"))
            exchange.writer.close()

        async with calling(once) as (server, client):
            for _ in range(3):
                await fetched(client)
                await asyncio.sleep(0.05)
            assert (server.connections, len(server.received)) == (3, 3)

    asyncio.run(scenario())


def test_a_call_that_is_broken_off_takes_its_connection_with_it() -> None:
    async def scenario() -> None:
        asked = asyncio.Event()

        async def never_at_first(exchange: Exchange) -> None:
            if asked.is_set():
                await exchange.send(response(b"second"))
            asked.set()
            await exchange.client_is_gone()

        async with calling(never_at_first, max_concurrent_requests=1) as (server, client):
            broken_off = asyncio.create_task(fetched(client))
            await asked.wait()
            broken_off.cancel()
            with pytest.raises(asyncio.CancelledError):
                await broken_off
            assert await fetched(client) == b"second"
            assert server.connections == 2

    asyncio.run(scenario())


def test_no_more_connections_are_open_than_requests_may_be() -> None:
    async def scenario() -> None:
        async def slowly(exchange: Exchange) -> None:
            await asyncio.sleep(0.02)
            await exchange.send(response(b"{}"))

        async with calling(slowly, max_concurrent_requests=3) as (server, client):
            await asyncio.gather(*(fetched(client) for _ in range(12)))
            assert (server.most_open, len(server.received)) == (3, 12)

    asyncio.run(scenario())
