"""The client against a real server that behaves well, badly and worse."""

import asyncio
import gzip
import socket
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from mustit_pipeline.domain.values import ItemNo, SellerId
from mustit_pipeline.foundation import failures
from mustit_pipeline.foundation.failures import NetworkReason
from mustit_pipeline.marketplace.client import MarketplaceClient
from mustit_pipeline.marketplace.session import read_session
from mustit_pipeline_tests.integration.marketplace.server import Exchange, Send, always, calling, client_of, response
from mustit_pipeline_tests.unit.marketplace.test_session import NOW

AGENT = "Mozilla/5.0 (s3cret agent)"
SESSION = read_session(["token=s3cret-token", "nid=s3cret-nid", "mustit_uid=s3cret-uid"], NOW)


async def fetched(client: MarketplaceClient) -> bytes:
    return (await client.call(client.endpoints.detail(ItemNo(7)).value, SESSION.headers(AGENT))).body


async def failure(client: MarketplaceClient) -> failures.FetchError:
    """The failure of one call, which names its path and no secret."""
    with pytest.raises(failures.FetchError) as caught:
        await fetched(client)
    error = caught.value
    assert error.path == "/mustit-api/facade-api/v1/item/7/detail/top"
    assert error.path in error.korean
    assert error.path in error.english
    assert "s3cret" not in f"{error} {error!r} {error.korean} {error.english} {error.__dict__}"
    return error


def failing(answer: Send, *, scheme: str = "http", **changes: Any) -> failures.FetchError:
    async def scenario() -> failures.FetchError:
        async with calling(answer, scheme=scheme, **changes) as (server, client):
            error = await failure(client)
            assert len(server.received) <= 1, "one call is one request"
            return error

    return asyncio.run(scenario())


def network_reason(answer: Send, *, scheme: str = "http", **changes: Any) -> NetworkReason:
    error = failing(answer, scheme=scheme, **changes)
    assert isinstance(error, failures.NetworkFailure)
    return error.reason


def test_a_call_sends_agent_token_and_cookies_and_brings_the_body() -> None:
    async def scenario() -> None:
        async with calling(always(response(b'{"a": 1}'))) as (server, client):
            answer = await client.call(client.endpoints.detail(ItemNo(7)).value + "#top", SESSION.headers(AGENT))
            assert answer.body == b'{"a": 1}'
            assert server.received[0].target == "/mustit-api/facade-api/v1/item/7/detail/top"
            assert 0 < answer.seconds < 10
            sent = server.received[0].headers
            assert sent["user-agent"] == AGENT
            assert sent["authorization"] == "Bearer s3cret-token"
            assert sent["cookie"] == "nid=s3cret-nid; mustit_uid=s3cret-uid"
            assert sent["accept-encoding"] == "gzip"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "seller", ["디몬트", "a b", "a&b=c", "a/b?c#d", "50%", "%20", "%2F", "a+b", "'\"~:@;,", "{}|\\^`"]
)
def test_the_server_reads_the_seller_id_that_was_meant(seller: str) -> None:
    async def scenario() -> None:
        async with calling(always(response(b"{}"))) as (server, client):
            await client.call(client.endpoints.listing(SellerId(seller), 2).value, SESSION.headers(AGENT))
            query = parse_qs(urlsplit(server.received[0].target).query, strict_parsing=True)
            assert query["sellerId"] == [seller]
            assert query["pageNo"] == ["2"]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("201 Created", failures.MalformedBody),
        ("202 Accepted", failures.MalformedBody),
        ("206 Partial Content", failures.MalformedBody),
        ("301 Moved", failures.UnexpectedStatus),
        ("302 Found", failures.UnexpectedStatus),
        ("307 Temporary Redirect", failures.UnexpectedStatus),
        ("400 Bad Request", failures.UnexpectedStatus),
        ("401 Unauthorized", failures.Unauthorized),
        ("403 Forbidden", failures.Unauthorized),
        ("404 Not Found", failures.NotFoundAnswer),
        ("408 Request Timeout", failures.NetworkFailure),
        ("410 Gone", failures.NotFoundAnswer),
        ("429 Too Many Requests", failures.Throttled),
        ("500 Internal Server Error", failures.ServerFailure),
        ("503 Service Unavailable", failures.ServerFailure),
    ],
)
def test_each_status_is_its_failure_after_one_request(status: str, kind: type[failures.FetchError]) -> None:
    assert type(failing(always(response(b"{}", "Location: /elsewhere", status=status)))) is kind


def test_an_error_is_known_by_its_head_however_long_its_body_takes() -> None:
    error = failing(always(response(b"", status="503 Service Unavailable", length=100)), read_timeout_seconds=0.2)
    assert type(error) is failures.ServerFailure


def test_a_throttled_answer_brings_its_retry_after() -> None:
    error = failing(always(response(b"", "Retry-After: 90", status="429 Too Many Requests")))
    assert isinstance(error, failures.Throttled)
    assert error.retry_after == 90


async def silence(exchange: Exchange) -> None:
    await exchange.client_is_gone()


async def stops_halfway(exchange: Exchange) -> None:
    await exchange.send(response(b'{"a":', length=100))
    await exchange.client_is_gone()


async def drips(exchange: Exchange) -> None:
    await exchange.send(response(b"", length=60000))
    for _ in range(10_000):
        await exchange.send(b" ")
        await asyncio.sleep(0.02)


async def drips_headers(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    for _ in range(10_000):
        await exchange.send(b"x")
        await asyncio.sleep(0.02)


async def resets(exchange: Exchange) -> None:
    raw = exchange.writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    exchange.writer.transport.abort()


async def hangs_up(exchange: Exchange) -> None:
    exchange.writer.close()


async def hangs_up_halfway(exchange: Exchange) -> None:
    await exchange.send(response(b'{"a": 1}', length=100))
    exchange.writer.close()


async def speaks_no_http(exchange: Exchange) -> None:
    await exchange.send(b"220 smtp.example ESMTP\r\n\r\n")
    exchange.writer.close()


def test_a_server_that_never_answers_is_a_read_timeout() -> None:
    assert network_reason(silence, read_timeout_seconds=0.2) is NetworkReason.READ_TIMEOUT


def test_a_server_that_stops_in_the_middle_is_a_read_timeout() -> None:
    assert network_reason(stops_halfway, read_timeout_seconds=0.2) is NetworkReason.READ_TIMEOUT


@pytest.mark.parametrize("answer", [drips, drips_headers, silence])
def test_however_slowly_an_answer_drips_the_deadline_ends_it(answer: Send) -> None:
    assert network_reason(answer, total_timeout_seconds=0.3) is NetworkReason.DEADLINE


@pytest.mark.parametrize("answer", [resets, hangs_up, hangs_up_halfway, speaks_no_http])
def test_an_answer_that_breaks_off_is_a_network_failure(answer: Send) -> None:
    assert network_reason(answer) is NetworkReason.BROKEN


@pytest.mark.parametrize(
    ("answer", "may_still_arrive"),
    [(silence, True), (hangs_up, True), (drips_headers, True), (hangs_up_halfway, False), (stops_halfway, False)],
)
def test_a_request_may_still_arrive_until_something_of_its_answer_has(answer: Send, may_still_arrive: bool) -> None:
    error = failing(answer, read_timeout_seconds=0.2, total_timeout_seconds=0.4)
    assert isinstance(error, failures.NetworkFailure)
    assert error.may_still_arrive is may_still_arrive


def test_a_handshake_that_never_ends_is_a_connect_timeout() -> None:
    assert network_reason(silence, scheme="https", connect_timeout_seconds=0.2) is NetworkReason.CONNECT_TIMEOUT


def test_a_closed_port_is_no_connection_and_is_named_with_its_setting() -> None:
    async def scenario() -> tuple[failures.FetchError, str]:
        with socket.socket() as taken:
            # Bound but not listening: no other process can take the port, and none answers on it.
            taken.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{taken.getsockname()[1]}"
            async with client_of(url) as client:
                return await failure(client), url

    error, url = asyncio.run(scenario())
    assert isinstance(error, failures.NetworkFailure)
    assert error.reason is NetworkReason.CONNECT
    assert not error.may_still_arrive
    assert f"MUSTIT_BASE_URL={url})" in error.english


def zipped(body: bytes, *, length: int | None = None) -> bytes:
    return response(gzip.compress(body), "Content-Encoding: gzip", length=length)


def chunked(body: bytes, *headers: str) -> bytes:
    lines = ["HTTP/1.1 200 OK", "Transfer-Encoding: chunked", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


async def announces_too_much(exchange: Exchange) -> None:
    await exchange.send(response(b"", length=65537))
    await exchange.client_is_gone()


@pytest.mark.parametrize(
    "answer",
    [
        announces_too_much,
        always(chunked(b" " * 65537)),
        always(zipped(b" " * 65537)),
        always(zipped(b" " * 5_000_000)),
        always(chunked(gzip.compress(b" " * 5_000_000), "Content-Encoding: gzip")),
    ],
    ids=["announced", "chunked", "zipped", "bomb", "chunked bomb"],
)
def test_a_body_over_the_limit_is_refused_however_it_is_packed(answer: Send) -> None:
    error = failing(answer)
    assert isinstance(error, failures.BodyTooLarge)
    assert error.limit == 65536


def test_a_bomb_never_unfolds_in_memory() -> None:
    bomb = always(zipped(b" " * 5_000_000))
    tracemalloc.start()
    try:
        assert isinstance(failing(bomb), failures.BodyTooLarge)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("pack", [response, zipped, chunked])
def test_a_body_of_exactly_the_limit_is_whole(pack: Callable[[bytes], bytes]) -> None:
    async def scenario() -> None:
        async with calling(always(pack(b"7" * 65536))) as (_, client):
            assert await fetched(client) == b"7" * 65536

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "answer",
    [
        response(gzip.compress(b'{"a": 1}')[:-9], "Content-Encoding: gzip"),
        response(b'{"a": 1}', "Content-Encoding: gzip"),
        response(b"", "Content-Encoding: gzip"),
        response(b'{"a": 1}', "Content-Encoding: br"),
        response(gzip.compress(gzip.compress(b"{}")), "Content-Encoding: gzip, gzip"),
        response(gzip.compress(b"{}") + gzip.compress(b"{}"), "Content-Encoding: gzip"),
        chunked(gzip.compress(b"{}") + b"\x00" * 20_000, "Content-Encoding: gzip"),
    ],
    ids=["cut off", "not zipped", "empty", "brotli", "twice", "two in a row", "endless rest"],
)
def test_a_body_that_cannot_be_unpacked_is_malformed(answer: bytes) -> None:
    assert type(failing(always(answer))) is failures.MalformedBody


FAILING: list[Callable[[Exchange], Awaitable[None]]] = [
    always(response(b"{}" * 9000, status="500 Internal Server Error")),
    announces_too_much,
    always(zipped(b" " * 1_000_000)),
    hangs_up_halfway,
    stops_halfway,
    resets,
    always(response(b"{}", "Content-Encoding: br")),
]


def test_after_every_kind_of_failure_the_only_connection_is_free_again() -> None:
    async def scenario() -> None:
        answers = iter([*FAILING, always(response(b"done"))])

        async def the_next(exchange: Exchange) -> None:
            await next(answers)(exchange)

        limits = {"max_concurrent_requests": 1, "read_timeout_seconds": 0.3, "total_timeout_seconds": 5}
        async with calling(the_next, **limits) as (server, client):
            for _ in FAILING:
                await failure(client)
            assert await fetched(client) == b"done"
            assert len(server.received) == len(FAILING) + 1

    asyncio.run(scenario())
