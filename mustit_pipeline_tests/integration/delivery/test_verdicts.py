"""Each answer of the product server, and what becomes of the row and of the effect."""

import asyncio
from collections.abc import Callable, Generator

import pytest
from structlog.testing import capture_logs

from mustit_pipeline.delivery.product_server import NOT_SENT, ProductServer
from mustit_pipeline.delivery.relay import relay
from mustit_pipeline.settings import Settings
from mustit_pipeline.simulator.control import ProductServerControl
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.catalog.shelf import Shelf
from mustit_pipeline_tests.own_servers import QuietHandler, serving
from mustit_pipeline_tests.unit.delivery.test_charges import ended

Effects = Callable[[], list[tuple[int, int, str]]]
SECRET = "p4ss-of-the-server"


def state(shelf: Shelf, item: int) -> tuple[str, int, int]:
    (row,) = shelf.outbox(item)
    return row["status"], row["attempts"], row["retry_count"]


def test_an_event_arrives_once_with_the_key_of_an_odd_seller_id(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects
) -> None:
    shelf.crawl(1)

    report = relay(shelf.database, settings)

    assert (report.sent, report.superseded, report.failed, report.waiting) == (1, 0, 0, 0)
    assert report.sent_by_seller == {shelf.seller_id: 1}
    assert effects() == [(1, 1, "PRODUCT_CREATED")]
    (key,) = (effect.key for effect in server.log() if effect.seller_id == shelf.seller_id)
    assert key.endswith("%3A%20a%2Fb%20%26%2050%25:1:1")
    assert key.startswith("%EC%85%80%EB%9F%AC%20")
    assert key == shelf.outbox(1)[0]["idempotency_key"]
    assert state(shelf, 1) == ("COMPLETED", 1, 0)
    assert server.audit()["rejected"] == 0


@pytest.mark.parametrize("status", [408, 422, 425, 429, 500, 501, 502, 503, 504])
def test_what_may_heal_is_tried_again_and_counts_as_a_failure(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects, status: int
) -> None:
    server.fault("status", "events", status=status, count=1, itemNo=1, retryAfter=None)
    shelf.crawl(1, 2)

    report = relay(shelf.database, settings, patience_seconds=5)

    assert (report.sent, report.failed, report.waiting) == (2, 0, 0)
    assert sorted(effects()) == [(1, 1, "PRODUCT_CREATED"), (2, 1, "PRODUCT_CREATED")]
    assert state(shelf, 1) == ("COMPLETED", 2, 1)
    assert state(shelf, 2) == ("COMPLETED", 1, 0)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413])
def test_what_cannot_heal_fails_at_once_and_holds_up_no_other(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects, status: int
) -> None:
    server.fault("status", "events", status=status, itemNo=1)
    shelf.crawl(1, 2)

    report = relay(shelf.database, settings, patience_seconds=5)

    assert (report.sent, report.failed, report.waiting) == (1, 1, 0)
    assert effects() == [(2, 1, "PRODUCT_CREATED")]
    assert state(shelf, 1) == ("FAILED", 1, 1)
    (row,) = shelf.outbox(1)
    assert row["last_status"] == status
    assert "injected" in row["last_error"]


def test_a_stale_version_is_done_and_counts_as_superseded(
    shelf: Shelf, settings: Settings, server: ProductServerControl
) -> None:
    server.fault("status", "events", status=409, itemNo=1)
    shelf.crawl(1)

    report = relay(shelf.database, settings)

    assert (report.sent, report.superseded, report.failed) == (0, 1, 0)
    assert state(shelf, 1) == ("COMPLETED", 1, 0)


def test_the_fifth_failure_is_final_and_the_row_is_never_taken_again(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects
) -> None:
    server.fault("status", "events", status=500, itemNo=1)
    shelf.crawl(1, 2, 3)

    report = relay(shelf.database, settings, patience_seconds=5)

    assert (report.sent, report.failed, report.waiting) == (2, 1, 0)
    assert state(shelf, 1) == ("FAILED", 5, 5)
    requests = server.audit()["requests"]["events"]
    assert requests == 7
    assert relay(shelf.database, settings, patience_seconds=5).sent == 0
    assert server.audit()["requests"]["events"] == requests
    assert sorted(item for item, _, _ in effects()) == [2, 3]


def test_a_hopeless_row_does_not_delay_the_others(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects
) -> None:
    slow = settings.model_copy(update={"outbox_retry_base_seconds": 3600.0, "relay_concurrent_sends": 1})
    server.fault("status", "events", status=500, itemNo=1)
    shelf.crawl(1, 2, 3)

    report = relay(shelf.database, slow)

    assert (report.sent, report.waiting) == (2, 1)
    assert [item for item, _, _ in effects()] == [2, 3]


def test_silence_before_and_after_applying_leads_to_one_effect_each(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects
) -> None:
    server.fault("timeout_before", "events", count=1, itemNo=1)
    server.fault("timeout_after", "events", count=1, itemNo=2)
    shelf.crawl(1, 2)

    report = relay(shelf.database, settings, patience_seconds=5)

    assert (report.sent, report.failed, report.waiting) == (2, 0, 0)
    assert sorted(effects()) == [(1, 1, "PRODUCT_CREATED"), (2, 1, "PRODUCT_CREATED")]
    assert [state(shelf, item) for item in (1, 2)] == [("COMPLETED", 2, 1)] * 2
    audit = server.audit()
    assert (audit["repeated"], audit["repeatsWithOtherContent"]) == (1, 0)


@pytest.mark.parametrize("kind", ["drop_before", "drop_after"])
def test_a_connection_that_drops_once_leads_to_one_effect_and_burns_no_try(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects, kind: str
) -> None:
    server.fault(kind, "events", count=1, itemNo=1)
    shelf.crawl(1)

    report = relay(shelf.database, settings, patience_seconds=5)

    assert (report.sent, report.waiting) == (1, 0)
    assert effects() == [(1, 1, "PRODUCT_CREATED")]
    assert state(shelf, 1) == ("COMPLETED", 2, 0)


def test_an_event_that_breaks_every_connection_fails_in_the_end_while_others_are_delivered(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects
) -> None:
    server.fault("drop_before", "events", itemNo=1)
    server.fault("slow", "events", seconds=0.2)
    others = range(10, 15)
    for other in others:
        shelf.crawl(1, other)
        shelf.change("UPDATE product_outbox SET next_attempt_at = now() - interval '1 minute' WHERE status = 'WAITING'")
        relay(shelf.database, settings)

    assert [item for item, _, _ in effects()] == list(others)
    (row,) = shelf.outbox(1)
    assert (row["status"], row["retry_count"]) == ("FAILED", 5)


class _Echo(QuietHandler):
    """A server that repeats the caller's secrets in its refusal."""

    def do_POST(self) -> None:
        self.body()
        self.answer(400, f"no entry for {self.headers['Authorization']} {SECRET}\x00".encode())


@pytest.fixture
def echo() -> Generator[str]:
    with serving(_Echo) as url:
        yield url


def test_no_secret_gets_into_the_rows_or_the_logs(shelf: Shelf, make_settings: MakeSettings, echo: str) -> None:
    shelf.crawl(1)
    with capture_logs() as logged:
        relay(shelf.database, make_settings(product_server_url=echo, product_server_token=SECRET))

    (row,) = shelf.outbox(1)
    assert row["status"] == "FAILED"
    assert "no entry for" in row["last_error"]
    assert SECRET not in str(row)
    assert SECRET not in str(logged)


class _Endless(QuietHandler):
    """A server whose answer never ends."""

    def do_POST(self) -> None:
        self.body()
        self.send_response(400)
        self.end_headers()
        try:
            while True:
                self.wfile.write(b"x" * 65536)
        except OSError:
            pass


def test_an_answer_without_end_is_not_read_to_its_end(make_settings: MakeSettings) -> None:
    async def send(url: str) -> int | None:
        async with ProductServer(make_settings(product_server_url=url), connections=1) as server:
            return (await server.deliver(ended(NOT_SENT).event)).status

    with serving(_Endless) as url:
        assert asyncio.run(send(url)) == 400
