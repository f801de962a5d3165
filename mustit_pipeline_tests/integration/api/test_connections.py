"""Raw connections, as no polite client opens them: slow ones, endless heads, and paths that are not normalized."""

import json
import resource
import socket
import time
from collections.abc import Generator, Iterable
from contextlib import ExitStack, closing, contextmanager

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from mustit_pipeline.api import connections, edge
from mustit_pipeline.api.connections import LARGEST_HEAD, MOST_FILES, allow_many_connections
from mustit_pipeline.api.context import Ground
from mustit_pipeline.domain.access import Role
from mustit_pipeline_tests.integration.api.conftest import token
from mustit_pipeline_tests.integration.api.served import served

PATIENCE_SECONDS = 20.0
LOGIN = b"POST /api/v1/auth/login HTTP/1.1\r\nHost: x\r\n"
GET = b"GET /health/live HTTP/1.1\r\nHost: x\r\n"
SPELLINGS = (
    b"//api/v1/sellers",
    b"/./api/v1/sellers",
    b"/api/../api/v1/sellers",
    b"/api/v1/auth/login/../../sellers",
    b"/api/v1/auth/login/%2e%2e/%2e%2e/sellers",
    b"/api/v1/auth/login%2F..%2F..%2Fsellers",
    b"/health/live/../../api/v1/sellers",
    b"/%61pi/v1/sellers",
    b"/api%2Fv1%2Fsellers",
    b"/API/v1/sellers",
    b"/api/v1/sellers/",
    b"/api/v1/sellers;login",
    b"/api/v1/sellers%00",
    b"*",
    b"\\api\\v1\\sellers",
    b"http://evil.example/api/v1/sellers",
    b"/metrics/",
    b"/metrics%2f",
    b"/metrics/../health/live",
)
AMBIGUOUS = (
    LOGIN + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    LOGIN + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\n{}{}}",
    LOGIN + b"Content-Length: -4\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
)


@pytest.fixture
def address(app: FastAPI) -> Generator[str]:
    with served(app) as found:
        yield found


@contextmanager
def connected(address: str) -> Generator[socket.socket]:
    host, port = address.removeprefix("http://").split(":")
    with closing(socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)) as opened:
        yield opened


def until_closed(opened: socket.socket) -> bytes:
    """All that the server says before it ends the connection; a connection that it keeps open fails here."""
    said = b""
    while chunk := opened.recv(65536):
        said += chunk
    return said


def sent_until_closed(opened: socket.socket, parts: Iterable[bytes], *, every: float = 0) -> int:
    """How many bytes can be sent until the server ends the connection; if it takes them all, that fails here."""
    sent = 0
    try:
        for part in parts:
            opened.sendall(part)
            sent += len(part)
            time.sleep(every)
    except ConnectionError:
        return sent
    raise AssertionError(f"{sent} bytes were taken")


def asked(address: str, target: bytes, *headers: bytes) -> tuple[int, bytes]:
    """Status and whole answer to a request with exactly this target."""
    with connected(address) as opened:
        lines = [b"GET " + target + b" HTTP/1.1", b"Host: evil.example", b"Connection: close", *headers, b"", b""]
        opened.sendall(b"\r\n".join(lines))
        said = until_closed(opened)
    return int(said.split(b" ", 2)[1]), said


def test_a_head_that_does_not_come_ends_its_connection(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)
    with ExitStack() as held:
        for begun in (b"", b"G", GET, GET + b"X-Slow: a"):
            opened = held.enter_context(connected(address))
            opened.sendall(begun)
            assert until_closed(opened).startswith(b"HTTP/1.1 408 "), begun


def test_a_byte_now_and_then_gains_no_time_on_a_connection_that_was_used(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.5)
    with connected(address) as opened:
        opened.sendall(GET + b"\r\n")
        assert opened.recv(65536).startswith(b"HTTP/1.1 200 ")
        # Blank lines before a request are allowed, and are the beginning of none.
        sent = sent_until_closed(opened, (b"\r\n" for _ in range(200)), every=0.05)
        assert 5 < sent / 2 < 100


def test_a_head_without_an_end_is_refused(address: str) -> None:
    for line in (b"\r\nX: " + b"a" * 1000, b"a" * 1000):
        with connected(address) as opened:
            opened.sendall(GET + b"X: a")
            # What the two systems' buffers hold is accepted by them, not by the server.
            assert sent_until_closed(opened, (line for _ in range(40_000))) < 20_000_000


def test_a_large_head_that_ends_in_time_is_read(address: str) -> None:
    with connected(address) as opened:
        opened.sendall(GET + b"Connection: close\r\nX: " + b"a" * (LARGEST_HEAD // 2) + b"\r\n\r\n")
        assert until_closed(opened).startswith(b"HTTP/1.1 200 ")


def test_requests_one_after_the_other_share_a_connection(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.5)
    with httpx.Client(base_url=address, trust_env=False) as client, connected(address) as opened:
        for _ in range(4):
            assert client.get("/health/live").status_code == 200
            opened.sendall(GET + b"\r\n")
            assert opened.recv(65536).startswith(b"HTTP/1.1 200 ")
            # Together longer than one head may take.
            time.sleep(0.2)


def test_no_spelling_of_a_path_opens_what_it_names_or_leads_elsewhere(address: str) -> None:
    for target in SPELLINGS:
        status, said = asked(address, target)
        assert status in (303, 400, 401, 404), (target, said)
        assert b"totalElements" not in said, target
        assert b"evil.example" not in said.partition(b"\r\n\r\n")[0], target


def test_a_slash_too_many_sends_no_client_to_the_host_that_it_named(address: str, ground: Ground) -> None:
    bearer = b"Authorization: Bearer " + token(ground, Role.ADMIN).encode()
    for target in (b"/api/v1/sellers/", b"/docs/", b"/health/live/"):
        status, said = asked(address, target, bearer)
        assert status == 404, said
        assert b"evil.example" not in said.partition(b"\r\n\r\n")[0]


def test_a_request_that_can_be_read_in_two_ways_is_read_in_none(address: str) -> None:
    for ambiguous in (*AMBIGUOUS, "GET /api/v1/sellers/럭셔리 HTTP/1.1\r\nHost: x\r\n\r\n".encode()):
        with connected(address) as opened:
            # The second one would be the smuggled one.
            opened.sendall(ambiguous + GET + b"\r\n")
            said = until_closed(opened)
        assert said.startswith(b"HTTP/1.1 400 "), ambiguous
        assert said.count(b"HTTP/1.1 ") == 1, ambiguous
        head, _, body = said.partition(b"\r\n\r\n")
        answered = json.loads(body)
        assert (answered["errorCode"], answered["status"]) == ("VALIDATION_HTTP", 400), ambiguous
        assert f"x-request-id: {answered['requestId']}".encode() in head


def test_beyond_so_many_requests_at_once_a_client_is_told_to_come_back(
    anyone: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge, "MOST_AT_ONCE", 0)
    answer = anyone.get("/health/live")
    assert (answer.status_code, answer.json()["errorCode"]) == (503, "UNAVAILABLE_BUSY")
    assert int(answer.headers["retry-after"]) >= 1
    monkeypatch.setattr(edge, "MOST_AT_ONCE", 1)
    assert [anyone.get("/health/live").status_code for _ in range(3)] == [200, 200, 200]


def test_a_server_may_open_a_file_for_each_of_thousands_of_streams() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        allow_many_connections()
        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert allowed == min(MOST_FILES, before[1] if before[1] != resource.RLIM_INFINITY else MOST_FILES)
