"""What a call must not do: reach another host, keep cookies, repeat itself, crowd the server."""

import asyncio

import pytest

from mustit_pipeline.foundation import failures
from mustit_pipeline.marketplace.session import issue_session
from mustit_pipeline_tests.integration.marketplace.server import Exchange, always, calling, response
from mustit_pipeline_tests.unit.marketplace.test_session import NOW

COOKIES = ("Set-Cookie: token=t1; Path=/; Max-Age=60", "Set-Cookie: nid=n1; Path=/", "Set-Cookie: mustit_uid=u1")


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{other}/",
        "https://127.0.0.1:{port}/",
        "http://localhost:{port}/",
        "http://127.0.0.1/",
        "http://127.0.0.1:{port}@evil.example/",
        "http://user:pass@127.0.0.1:{port}/",
        "http://127.0.0.2:{port}/",
        "ftp://127.0.0.1:{port}/",
        "//127.0.0.1:{port}/",
        "/item/7",
        "file:///etc/hosts",
        "http://[",
        "http://127.0.0.1:port/",
        "http://127.0.0.1:{port}/\n",
        "http://127.0.0.1:99999/",
        "",
    ],
)
def test_any_other_server_is_refused_before_a_connection_is_opened(url: str) -> None:
    async def scenario() -> None:
        async with (
            calling(always(response(b"other"))) as (other, _),
            calling(always(response(b"{}"))) as (server, client),
        ):
            with pytest.raises(failures.ForbiddenHost) as caught:
                await client.call(url.format(port=server.port, other=other.port), {"Authorization": "Bearer s3cret"})
            assert not caught.value.transient
            assert "s3cret" not in f"{caught.value} {caught.value.korean}"
            assert server.connections == other.connections == 0

    asyncio.run(scenario())


def test_a_redirect_to_another_host_is_not_followed() -> None:
    async def scenario() -> None:
        async with calling(always(response(b"other"))) as (other, _):
            moved = response(b"", f"Location: http://127.0.0.1:{other.port}/", status="302 Found")
            async with calling(always(moved)) as (server, client):
                with pytest.raises(failures.UnexpectedStatus):
                    await client.call(client.endpoints.session(), {})
                assert len(server.received) == 1
            assert other.connections == 0

    asyncio.run(scenario())


def test_a_session_comes_from_the_front_page_with_the_agent_alone() -> None:
    async def scenario() -> None:
        async with calling(always(response(b"<html></html>", *COOKIES))) as (server, client):
            session = await issue_session(client, "UA/1", NOW)
            assert (session.token.value, session.nid, session.mustit_uid) == ("t1", "n1", "u1")
            assert (session.expires_at - NOW).total_seconds() == 60
            request = server.received[0]
            assert request.target == "/"
            assert request.headers["user-agent"] == "UA/1"
            assert "authorization" not in request.headers
            assert "cookie" not in request.headers

    asyncio.run(scenario())


def test_a_front_page_without_a_token_is_a_refused_session() -> None:
    async def scenario() -> None:
        async with calling(always(response(b"<html></html>", "Set-Cookie: nid=n1"))) as (_, client):
            with pytest.raises(failures.SessionRefused):
                await issue_session(client, "UA/1", NOW)

    asyncio.run(scenario())


def test_a_throttled_front_page_is_throttling_and_no_refused_session() -> None:
    async def scenario() -> None:
        async with calling(always(response(b"", *COOKIES, status="429 Too Many Requests"))) as (_, client):
            with pytest.raises(failures.Throttled):
                await issue_session(client, "UA/1", NOW)

    asyncio.run(scenario())


def test_cookies_of_one_agent_never_reach_the_next_request() -> None:
    """HTTP clients keep cookies by default; agents would then carry each other's identity."""

    async def scenario() -> None:
        # By name, because aiohttp never keeps the cookies of a bare address.
        answer = always(response(b"{}", *COOKIES, "Set-Cookie: extra=1"))
        async with calling(answer, host="localhost") as (server, client):
            await issue_session(client, "UA/1", NOW)
            await client.call(client.endpoints.session() + "x", {"User-Agent": "UA/2"})
            await client.call(client.endpoints.session() + "y", {"Cookie": "nid=n2; mustit_uid=u2"})
            assert [request.headers.get("cookie") for request in server.received] == [
                None,
                None,
                "nid=n2; mustit_uid=u2",
            ]

    asyncio.run(scenario())


def test_a_request_lost_on_a_kept_connection_is_not_repeated_in_secret() -> None:
    """aiohttp repeats a GET whose kept-alive connection drops; the marketplace would count both."""

    async def scenario() -> None:
        async def answers_once(exchange: Exchange) -> None:
            if len(server.received) == 1:
                await exchange.send(response(b"first"))
            else:
                exchange.writer.close()

        async with calling(answers_once) as (server, client):
            assert (await client.call(client.endpoints.session(), {})).body == b"first"
            with pytest.raises(failures.NetworkFailure):
                await client.call(client.endpoints.session(), {})
            assert server.connections == 1, "the second call must use the kept connection"
            assert len(server.received) == 2

    asyncio.run(scenario())


def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with calling(always(response(b"proxy"))) as (proxy, _):
            for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
                monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
            async with calling(always(response(b"direct"))) as (_, client):
                assert (await client.call(client.endpoints.session(), {})).body == b"direct"
            assert proxy.connections == 0

    asyncio.run(scenario())


def test_no_more_connections_are_open_than_requests_are_allowed() -> None:
    async def scenario() -> None:
        full = asyncio.Event()

        async def waits_for_company(exchange: Exchange) -> None:
            if server.open_now == 3:
                full.set()
            await full.wait()
            await exchange.send(response(b"{}"))

        async with calling(waits_for_company, max_concurrent_requests=3) as (server, client):
            await asyncio.gather(*(client.call(client.endpoints.session(), {}) for _ in range(12)))
            assert server.most_open == 3
            assert len(server.received) == 12

    asyncio.run(scenario())


def test_a_cancelled_call_closes_its_connection_and_stays_cancelled() -> None:
    async def scenario() -> None:
        arrived, gone = asyncio.Event(), asyncio.Event()

        async def waits(exchange: Exchange) -> None:
            arrived.set()
            await exchange.client_is_gone()
            gone.set()

        async with calling(waits) as (_, client):
            call = asyncio.ensure_future(client.call(client.endpoints.session(), {}))
            await arrived.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            async with asyncio.timeout(5):
                await gone.wait()

    asyncio.run(scenario())


@pytest.mark.parametrize("value", ["토큰-s3cret", "s3cret\r\nX-Evil: 1", "s3cret\x00"])
def test_a_header_that_http_cannot_carry_is_refused_without_being_shown(value: str) -> None:
    async def scenario() -> None:
        async with calling(always(response(b"{}"))) as (server, client):
            with pytest.raises(ValueError, match="User-Agent takes printable ASCII") as caught:
                await client.call(client.endpoints.session(), {"User-Agent": value})
            assert "s3cret" not in repr(caught.value)
            assert server.connections == 0

    asyncio.run(scenario())
