"""Answers that are no clean HTTP, and events that cannot be written: one row's failure, never the run's."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

import pytest
from structlog.testing import capture_logs

from mustit_pipeline.delivery.product_server import NOT_SENT, Answer, ProductServer, Verdict
from mustit_pipeline.delivery.relay import relay
from mustit_pipeline.settings import Settings
from mustit_pipeline.simulator.control import ProductServerControl
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.catalog.shelf import Shelf
from mustit_pipeline_tests.integration.delivery.asking import look
from mustit_pipeline_tests.own_servers import QuietHandler, serving
from mustit_pipeline_tests.unit.delivery.test_charges import ended

Effects = Callable[[], list[tuple[int, int, str]]]
BROKEN = {
    "garbage": b"garbage garbage\r\n\r\n",
    "a header without end": b"HTTP/1.1 400 Bad\r\nX-Why: " + b"x" * 20_000 + b"\r\nContent-Length: 0\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "a chunk without length": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "another protocol": b"HTTP/2 200 OK\r\nContent-Length: 0\r\n\r\n",
}

CALLED_GZIP = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}"


@contextmanager
def a_server_that_breaks_the_answer_about(item: int, answer: bytes) -> Generator[str]:
    """To one product it answers so, byte for byte; all others are fine."""

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.body()
            self._answer(self.headers["Idempotency-Key"].split(":")[-2], 200, b"{}")

        def do_GET(self) -> None:
            known = self.path.startswith("/api/v1/products/")
            self._answer(self.path.rpartition("/")[2], 404, b"not held" if known else b"no such call")

        def _answer(self, about: str, usual: int, said: bytes) -> None:
            if about == str(item):
                self.wfile.write(answer)
                self.close_connection = True
                return
            self.answer(usual, said)

    with serving(Handler) as url:
        yield url


@pytest.mark.parametrize("answer", BROKEN.values(), ids=BROKEN)
def test_an_answer_that_is_no_http_is_a_failure_of_its_row_alone(
    shelf: Shelf, settings: Settings, answer: bytes
) -> None:
    shelf.crawl(1, 2, 3)

    with a_server_that_breaks_the_answer_about(1, answer) as url:
        report = relay(shelf.database, settings.model_copy(update={"product_server_url": url}), patience_seconds=5)

    assert (report.sent, report.failed, report.waiting) == (2, 1, 0)
    (row,) = shelf.outbox(1)
    assert (row["status"], row["retry_count"], row["last_status"]) == ("FAILED", 5, None)
    assert row["last_error"].startswith("answer ")


def test_a_success_counts_whatever_its_body_is_called(shelf: Shelf, settings: Settings) -> None:
    shelf.crawl(1, 2, 3)

    with a_server_that_breaks_the_answer_about(1, CALLED_GZIP) as url:
        report = relay(shelf.database, settings.model_copy(update={"product_server_url": url}))

    assert (report.sent, report.failed, report.waiting) == (3, 0, 0)


def test_a_status_counts_whatever_the_encoding_of_its_reason(shelf: Shelf, settings: Settings) -> None:
    shelf.crawl(1, 2, 3)

    answer = "HTTP/1.1 400 잘못된 요청\r\nContent-Length: 0\r\n\r\n".encode("euc-kr")
    with a_server_that_breaks_the_answer_about(1, answer) as url:
        report = relay(shelf.database, settings.model_copy(update={"product_server_url": url}), patience_seconds=5)

    assert (report.sent, report.failed, report.waiting) == (2, 1, 0)
    (row,) = shelf.outbox(1)
    assert (row["status"], row["retry_count"], row["last_status"]) == ("FAILED", 1, 400)


@pytest.mark.parametrize("start", [b"HTTP/1.1 400 B", b"HTTP/1.1 400 Bad\r\nContent-Length: 9000\r\n\r\n"])
def test_however_slowly_an_answer_drips_the_call_ends_in_the_time_that_its_lease_was_measured_by(
    make_settings: MakeSettings, start: bytes
) -> None:
    def drip(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.sendall(start)
            while True:
                time.sleep(0.05)
                connection.sendall(b"x")

    async def send(url: str) -> Answer:
        settings = make_settings(
            product_server_url=url, product_server_connect_seconds=0.3, product_server_read_seconds=0.3
        )
        async with ProductServer(settings, connections=1) as server:
            return await server.deliver(ended(NOT_SENT).event)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        dripping = threading.Thread(target=lambda: drip(listening.accept()[0]))
        dripping.start()
        answer = asyncio.run(send(f"http://127.0.0.1:{listening.getsockname()[1]}"))
        dripping.join()

    assert (answer.verdict, answer.reason) == (Verdict.RETRY, "no whole answer within 0.9 s")


def test_a_broken_answer_to_the_oldest_event_starves_none_of_those_claimed_with_it(
    shelf: Shelf, settings: Settings
) -> None:
    shelf.crawl(*range(1, 151))
    shelf.change("UPDATE product_outbox SET next_attempt_at = next_attempt_at - interval '1 second' WHERE item_no = 1")

    with a_server_that_breaks_the_answer_about(1, BROKEN["a header without end"]) as url:
        report = relay(shelf.database, settings.model_copy(update={"product_server_url": url}), patience_seconds=5)

    assert (report.sent, report.failed, report.waiting) == (149, 1, 0)


@pytest.mark.parametrize("answer", BROKEN.values(), ids=BROKEN)
def test_a_product_about_which_no_http_is_said_is_one_without_an_answer(
    shelf: Shelf, settings: Settings, answer: bytes
) -> None:
    shelf.crawl(1, 2)
    relay(shelf.database, settings)

    with a_server_that_breaks_the_answer_about(1, answer) as url:
        result = look(shelf, settings.model_copy(update={"product_server_url": url}))

    assert (result.compared, result.unanswered, result.differences) == (1, 1, 1)


def test_an_event_that_cannot_be_written_fails_alone_and_its_values_stay_out_of_the_log(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects
) -> None:
    shelf.crawl(1, stock=1)
    relay(shelf.database, settings)
    for stock in (2, 3):
        shelf.crawl(1, 2, stock=stock)
    # The changes since what was delivered cannot be told any more.
    shelf.change("UPDATE product_change_sets SET product_data = '{secret' WHERE item_no = 1 AND version = 1")

    with capture_logs() as logged:
        report = relay(shelf.database, settings, patience_seconds=5)

    assert (report.sent, report.failed, report.waiting) == (1, 1, 0)
    assert effects()[1:] == [(2, 2, "PRODUCT_CREATED")]
    assert shelf.outbox(1)[-1]["last_error"] == "JSONDecodeError while sending it"
    told = [line for line in logged if line["event"] == "event cannot be sent"]
    assert len(told) == 5
    assert "event_body" in told[0]["where"]
    assert "secret" not in str(told)
