"""`mustit serve` as real processes: TLS, proxies, several of them, their end, and PostgreSQL that goes away."""

import json
import resource
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import psutil
import pytest
from sqlalchemy import make_url, text

from mustit_pipeline.access.tokens import issue_for_cli
from mustit_pipeline.api.connections import MOST_FILES
from mustit_pipeline.domain.access import Role
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.settings import SigningKeys
from mustit_pipeline_tests.certificates import certificate
from mustit_pipeline_tests.conftest import JWT_SECRET, TOKEN_KEY, dagster_beside, free_port
from mustit_pipeline_tests.e2e.conftest import Mustit

PATIENCE_SECONDS = 120.0

Serve = Callable[..., "Server"]


class Server:
    """A running `mustit serve` and a client with an admin's token."""

    def __init__(self, process: subprocess.Popen[str], url: str, verify: ssl.SSLContext | bool) -> None:
        token = issue_for_cli(SigningKeys(JWT_SECRET), "test", Role.ADMIN, datetime.now(UTC), timedelta(hours=1)).text
        self.process = process
        self.url = url
        self.client = httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {token}"}, verify=verify, trust_env=False, timeout=20
        )

    def wait(self) -> None:
        """Until it is ready."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.process.stderr and self.process.stderr.read()
            try:
                if self.client.get("/health/ready").status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.1)
        raise AssertionError("the server was not ready in time")

    def register(self, seller_id: str, **headers: str) -> httpx.Response:
        return self.client.post("/api/v1/sellers", json={"sellerId": seller_id, "name": "x"}, headers=headers)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_SECONDS)


@pytest.fixture
def serve(database_url: str, tmp_path: Path) -> Generator[Serve]:
    """Starts servers on the test's database; what still runs at the end is killed."""
    started: list[Server] = []

    def start(*options: str, url: str = database_url, verify: ssl.SSLContext | bool = True, **changed: str) -> Server:
        port = free_port()
        mustit = Mustit(
            tmp_path / "home",
            {
                "MUSTIT_DATABASE_URL": url,
                "MUSTIT_DAGSTER_DATABASE_URL": dagster_beside(database_url),
                "MUSTIT_TOKEN_KEY": TOKEN_KEY,
                "MUSTIT_JWT_SECRET": JWT_SECRET,
                "MUSTIT_API_PORT": str(port),
                "MUSTIT_REDIS_URL": "off",
                # Its output is read at the end only.
                "MUSTIT_LOG_LEVEL": "error",
            },
        )
        scheme = "https" if "MUSTIT_API_TLS_CERT" in changed else "http"
        server = Server(mustit.start("serve", *options, **changed), f"{scheme}://127.0.0.1:{port}", verify)
        started.append(server)
        return server

    yield start
    for server in started:
        server.client.close()
        # Workers outlive a parent that is killed, and hold its output open.
        with suppress(psutil.NoSuchProcess):
            for process in psutil.Process(server.process.pid).children(recursive=True):
                process.kill()
        server.process.kill()
        server.process.communicate()


def test_with_a_certificate_it_speaks_tls_of_today_only(serve: Serve, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=str(cert))
    server = serve(verify=trusting, MUSTIT_API_TLS_CERT=str(cert), MUSTIT_API_TLS_KEY=str(key))
    server.wait()
    assert server.client.get("/health/live").headers["strict-transport-security"].startswith("max-age=")
    outdated = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    outdated.check_hostname, outdated.verify_mode = False, ssl.CERT_NONE
    outdated.options |= ssl.OP_NO_TLSv1_2 | ssl.OP_NO_TLSv1_3
    host, port = server.url.removeprefix("https://").split(":")
    with socket.create_connection((host, int(port))) as plain, pytest.raises(ssl.SSLError):
        outdated.wrap_socket(plain)


def test_an_address_that_others_reach_needs_tls_or_a_proxy(serve: Serve) -> None:
    server = serve("--host", "0.0.0.0")
    _, said = server.process.communicate(timeout=PATIENCE_SECONDS)
    assert server.process.returncode == 1
    assert "MUSTIT_API_BEHIND_PROXY" in said
    for secret in (JWT_SECRET, TOKEN_KEY, "database_url", "input_value"):
        assert secret not in said


def test_what_a_proxy_says_counts_only_behind_one(serve: Serve, database: Database) -> None:
    direct, behind = serve(), serve(MUSTIT_API_BEHIND_PROXY="yes")
    direct.wait()
    behind.wait()
    forged = {"X-Forwarded-For": "203.0.113.7", "X-Forwarded-Proto": "https"}
    assert direct.register("direct", **forged).status_code == 201
    assert behind.register("behind", **forged).status_code == 201
    with database.reading() as connection:
        rows = connection.execute(text("SELECT target, address FROM audit_log ORDER BY id")).all()
    assert [tuple(row) for row in rows] == [("seller direct", "127.0.0.1"), ("seller behind", "203.0.113.7")]


@pytest.fixture
def few_files() -> Generator[None]:
    """As a shell allows them."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, before[0]), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("few_files")
def test_two_workers_share_a_port_allow_many_streams_and_no_endless_head_and_end_together(serve: Serve) -> None:
    server = serve("--workers", "2", "--json")
    server.wait()
    assert server.register("x").status_code == 201
    for process in psutil.Process(server.process.pid).children(recursive=True):
        soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        assert soft == (MOST_FILES if hard == resource.RLIM_INFINITY else min(MOST_FILES, hard))
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS) as endless:
        endless.sendall(b"GET /health/live HTTP/1.1\r\nX: ")
        with pytest.raises(ConnectionError):
            _send_for_ever(endless)
    assert server.stop() == 0
    assert server.process.stdout is not None
    assert json.loads(server.process.stdout.read()) == {"url": server.url, "workers": 2}
    with pytest.raises(httpx.TransportError):
        server.client.get("/health/live")


def _send_for_ever(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"a" * 65536)


def test_one_server_after_the_other_is_restarted_and_no_request_is_answered_wrongly(serve: Serve) -> None:
    first, second = serve(), serve()
    for server in (first, second):
        server.wait()
    first.register("x")
    wrong: list[object] = []
    ended = threading.Event()

    def ask() -> None:
        """As a load balancer does: a server that is gone is left out."""
        while not ended.is_set():
            for server in (first, second):
                try:
                    answer = server.client.get("/api/v1/sellers/x")
                except httpx.TransportError:
                    continue
                if answer.status_code != 200 or answer.json()["sellerId"] != "x":
                    wrong.append((answer.status_code, answer.text))

    asking = [threading.Thread(target=ask) for _ in range(4)]
    for thread in asking:
        thread.start()
    assert first.stop() == 0
    third = serve()
    third.wait()
    assert second.stop() == 0
    assert third.register("y").status_code == 201
    ended.set()
    for thread in asking:
        thread.join()
    assert wrong == []


class Gateway:
    """A way to PostgreSQL that can be closed: what goes over it is cut at once."""

    def __init__(self, path: Path, target: str) -> None:
        self._path, self._target = path, target
        self._listener: socket.socket | None = None
        self._pairs: list[socket.socket] = []

    def open(self) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._path))
        self._listener.listen()
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def close(self) -> None:
        """As a killed server: nothing listens, and every connection breaks."""
        assert self._listener is not None
        self._listener.close()
        self._path.unlink()
        pairs, self._pairs = self._pairs, []
        for one in pairs:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._target)
            self._pairs += [client, server]
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=_pump, args=(one, other), daemon=True).start()


def _pump(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
    with suppress(OSError):
        other.shutdown(socket.SHUT_RDWR)


def test_while_postgresql_is_away_it_says_so_and_it_recovers_by_itself(serve: Serve, database_url: str) -> None:
    real = make_url(database_url)
    folder = Path(tempfile.mkdtemp(prefix="mustit-"))
    path = folder / ".s.PGSQL.5432"
    gateway = Gateway(path, f"{real.query['host']}/.s.PGSQL.5432")
    gateway.open()
    try:
        through = real.update_query_dict({"host": str(folder)}).render_as_string(hide_password=False)
        server = serve(url=through)
        server.wait()
        assert server.register("before").status_code == 201
        gateway.close()
        for _ in range(3):
            answer = server.client.get("/api/v1/sellers")
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "5"), answer.text
        refused = server.client.post("/api/v1/auth/login", json={"username": "kim", "password": "x"})
        assert (refused.status_code, refused.json()["errorCode"]) == (503, "UNAVAILABLE_LOGIN")
        assert server.client.get("/health/live").status_code == 200
        ready = server.client.get("/health/ready")
        assert (ready.status_code, ready.json()["missing"]) == (503, ["database"])
        gateway.open()
        server.wait()
        assert server.client.get("/api/v1/sellers").json()["totalElements"] == 1
    finally:
        path.unlink(missing_ok=True)
        folder.rmdir()
