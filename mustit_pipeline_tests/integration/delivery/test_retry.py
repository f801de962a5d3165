"""Failed events, retried by hand: with all their tries, in order, and nothing but failed ones."""

import threading
from collections.abc import Callable

import pytest

from mustit_pipeline.delivery.relay import RelayReport, relay
from mustit_pipeline.delivery.sql.settling import settle
from mustit_pipeline.domain.errors import Conflict, NotFound
from mustit_pipeline.domain.filters import IdPrefix
from mustit_pipeline.domain.states import PRODUCT_OUTBOX, OutboxStatus
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.outbox.sql import outbox, outbox_list
from mustit_pipeline.outbox.sql.outbox import Settlement
from mustit_pipeline.outbox.sql.outbox_list import Retried
from mustit_pipeline.settings import Settings
from mustit_pipeline.simulator.control import ProductServerControl
from mustit_pipeline_tests.integration.catalog.shelf import Shelf, assert_whole
from mustit_pipeline_tests.own_servers import QuietHandler, serving

Effects = Callable[[], list[tuple[int, int, str]]]


def fail(shelf: Shelf, settings: Settings, server: ProductServerControl, *items: int) -> None:
    """The product server refuses these for good."""
    for item in items:
        server.fault("status", "events", status=400, itemNo=item)
    shelf.crawl(*items)
    assert relay(shelf.database, settings).failed == len(items)
    server.clear_faults()


def retry_all(shelf: Shelf, seller_id: str | None = None) -> Retried:
    wanted = None if seller_id is None else SellerId(seller_id)
    with shelf.database.transaction() as connection:
        return outbox_list.retry_all(connection, status=OutboxStatus.FAILED, seller_id=wanted)


def retry_one(shelf: Shelf, wanted: str) -> Retried:
    with shelf.database.transaction() as connection:
        return outbox_list.retry_one(connection, IdPrefix(wanted))


def test_one_failed_event_is_sent_again_with_all_its_tries_and_the_others_stay(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects
) -> None:
    fail(shelf, settings, server, 1, 2)
    (row,) = shelf.outbox(1)

    done = retry_one(shelf, str(row["outbox_id"])[:8])

    assert done == Retried(waiting=[row["outbox_id"]], superseded=[])
    (row,) = shelf.outbox(1)
    assert (row["status"], row["retry_count"]) == ("WAITING", 0)
    assert relay(shelf.database, settings).sent == 1
    assert effects() == [(1, 1, "PRODUCT_CREATED")]
    assert shelf.outbox(2)[0]["status"] == "FAILED"


def test_all_failed_events_of_one_seller_or_of_everybody_wait_again(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects
) -> None:
    fail(shelf, settings, server, 1, 2)
    other = Shelf(shelf.database, "other")
    fail(other, settings, server, 3)

    assert len(retry_all(shelf, "other").waiting) == 1
    assert [row["status"] for row in (*shelf.outbox(1), *other.outbox(3))] == ["FAILED", "WAITING"]
    assert len(retry_all(shelf).waiting) == 2
    assert retry_all(shelf) == Retried([], [])

    assert relay(shelf.database, settings).sent == 3
    assert sorted(effects()) == [(1, 1, "PRODUCT_CREATED"), (2, 1, "PRODUCT_CREATED")]
    assert_whole(shelf.database)


def fail_beside_a_newer_one(shelf: Shelf) -> None:
    """Refused in the very moment in which the newer version is written: neither sees what becomes of the other."""
    shelf.crawl(1, stock=1)
    with shelf.database.transaction() as connection:
        [claimed], _ = outbox.claim(connection, owner="slow", limit=1, lease_seconds=60)
    shelf.crawl(1, stock=2)
    row = claimed.outbox(max_retries=5)
    row.fail("HTTP 400", permanent=True)
    with shelf.database.transaction() as connection:
        assert settle(connection, [Settlement(claimed, 400, row)])
    assert [row["status"] for row in shelf.outbox(1)] == ["FAILED", "WAITING"]


@pytest.mark.parametrize("by_id", [True, False])
def test_a_failed_version_that_a_newer_one_has_overtaken_never_goes_out_after_it(
    shelf: Shelf, settings: Settings, effects: Effects, by_id: bool
) -> None:
    fail_beside_a_newer_one(shelf)
    older, newer = shelf.outbox(1)

    done = retry_one(shelf, str(older["outbox_id"])) if by_id else retry_all(shelf)

    assert done == Retried(waiting=[], superseded=[older["outbox_id"]])
    older, newer = shelf.outbox(1)
    assert (older["status"], older["superseded_by"]) == ("COMPLETED", newer["outbox_id"])
    relay(shelf.database, settings)
    assert [(item, version) for item, version, _ in effects()] == [(1, 2)]


@pytest.mark.parametrize(("refused", "end"), [(False, "COMPLETED"), (True, "FAILED")])
def test_a_failed_version_needs_no_retry_once_a_newer_one_has_had_its_answer(
    shelf: Shelf, settings: Settings, server: ProductServerControl, refused: bool, end: str
) -> None:
    fail_beside_a_newer_one(shelf)
    if refused:
        server.fault("status", "events", status=400, itemNo=1)

    report = relay(shelf.database, settings)

    older, newer = shelf.outbox(1)
    assert (report.superseded, report.failed) == (1, int(refused))
    assert (older["status"], older["superseded_by"], newer["status"]) == ("COMPLETED", newer["outbox_id"], end)
    # What it was refused with stays to be seen.
    assert (older["last_status"], older["last_error"]) == (400, "HTTP 400")


def test_a_version_that_is_refused_while_a_newer_one_waits_is_superseded_at_once(
    shelf: Shelf, settings: Settings
) -> None:
    asked, published = threading.Event(), threading.Event()

    class Slow(QuietHandler):
        def do_POST(self) -> None:
            self.body()
            asked.set()
            published.wait(5)
            self.answer(400 if self.headers["Idempotency-Key"].endswith(":1") else 200)

    reports: list[RelayReport] = []
    with serving(Slow) as url:
        elsewhere = settings.model_copy(update={"product_server_url": url})
        shelf.crawl(1, stock=1)
        sending = threading.Thread(target=lambda: reports.append(relay(shelf.database, elsewhere, patience_seconds=5)))
        sending.start()
        assert asked.wait(60)
        shelf.crawl(1, stock=2)
        published.set()
        sending.join()

    older, newer = shelf.outbox(1)
    assert (older["status"], older["superseded_by"], newer["status"]) == ("COMPLETED", newer["outbox_id"], "COMPLETED")
    assert [(one.sent, one.superseded, one.failed) for one in reports] == [(1, 1, 0)]


def test_a_version_that_comes_after_the_retry_supersedes_it(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects
) -> None:
    fail(shelf, settings, server, 1)
    retry_all(shelf)
    shelf.crawl(1, stock=9)

    relay(shelf.database, settings)

    assert effects() == [(1, 2, "PRODUCT_CREATED")]


@pytest.mark.parametrize("status", OutboxStatus)
def test_exactly_the_states_that_the_domain_allows_are_retried(shelf: Shelf, status: OutboxStatus) -> None:
    shelf.crawl(1)
    shelf.change(
        "UPDATE product_outbox SET status = :status, lease_owner = :owner, retry_count = 5",
        status=status.value,
        owner="another worker" if status is OutboxStatus.SENDING else None,
    )
    (row,) = shelf.outbox(1)
    if status in PRODUCT_OUTBOX.sources("retry"):
        assert retry_one(shelf, str(row["outbox_id"])).waiting == [row["outbox_id"]]
        return

    with pytest.raises(Conflict, match="FAILED"):
        retry_one(shelf, str(row["outbox_id"]))
    with (
        pytest.raises(Conflict, match="FAILED"),
        shelf.database.transaction() as connection,
    ):
        outbox_list.retry_all(connection, status=status, seller_id=None)

    assert retry_all(shelf) == Retried([], [])
    assert shelf.outbox(1) == [row]


def test_an_id_that_nothing_has_is_not_found_and_one_that_two_have_is_not_guessed(shelf: Shelf) -> None:
    shelf.crawl(1, 2)
    for number in (1, 2):
        shelf.change(
            "UPDATE product_outbox SET outbox_id = CAST(:id AS uuid) WHERE item_no = :item",
            id=f"0b6f13c2-0000-4000-8000-00000000000{number}",
            item=number,
        )

    for wanted in ("0b6f13c2", "ffffffff"):
        with pytest.raises(NotFound, match="NOT_FOUND_OUTBOX"), shelf.database.reading() as connection:
            outbox_list.find(connection, IdPrefix(wanted))
    with shelf.database.reading() as connection:
        assert outbox_list.find(connection, IdPrefix("0b6f13c2-0000-4000-8000-000000000002")).item_no == 2
