"""Per product: one in flight, versions that only grow, and the newest speaks for those before it."""

import threading
from collections.abc import Callable
from itertools import pairwise

from mustit_pipeline.delivery.relay import RelayReport, relay
from mustit_pipeline.delivery.sql.settling import settle
from mustit_pipeline.outbox.sql import outbox
from mustit_pipeline.outbox.sql.outbox import ClaimedEvent, Settlement
from mustit_pipeline.settings import Settings
from mustit_pipeline.simulator.control import ProductServerControl
from mustit_pipeline_tests.integration.catalog.shelf import Shelf, assert_whole

Effects = Callable[[], list[tuple[int, int, str]]]


def claim(shelf: Shelf, lease_seconds: float) -> list[ClaimedEvent]:
    """What a relay does before it is killed."""
    with shelf.database.transaction() as connection:
        claimed, _ = outbox.claim(connection, owner="dead", limit=10, lease_seconds=lease_seconds)
    return claimed


def changes_of(server: ProductServerControl, shelf: Shelf, version: int) -> list[tuple[object, ...]]:
    (effect,) = (one for one in server.log() if one.seller_id == shelf.seller_id and one.version == version)
    return [(change["field"], change["old"], change["new"]) for change in effect.changes]


def test_of_several_waiting_versions_only_the_newest_is_sent_and_the_others_name_it(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects
) -> None:
    for stock in (1, 2, 3):
        shelf.crawl(1, stock=stock)

    report = relay(shelf.database, settings)

    assert report.sent == 1
    assert effects() == [(1, 3, "PRODUCT_CREATED")]
    assert changes_of(server, shelf, 3) == []
    first, second, third = shelf.outbox(1)
    assert [row["status"] for row in (first, second, third)] == ["COMPLETED"] * 3
    assert (first["superseded_by"], second["superseded_by"], third["superseded_by"]) == (
        second["outbox_id"],
        third["outbox_id"],
        None,
    )
    assert (first["attempts"], third["event_type"]) == (0, "PRODUCT_CREATED")
    assert_whole(shelf.database)


def test_changes_run_from_the_version_that_was_delivered_last(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects
) -> None:
    shelf.crawl(1, stock=1)
    relay(shelf.database, settings)
    shelf.crawl(1, stock=2, sellingPrice=5)
    shelf.crawl(1, stock=3, sellingPrice=621000)

    relay(shelf.database, settings)

    assert effects() == [(1, 1, "PRODUCT_CREATED"), (1, 3, "PRODUCT_UPDATED")]
    assert changes_of(server, shelf, 3) == [("stock", 1, 3)]
    shelf.crawl(1, stock=4)
    relay(shelf.database, settings)
    assert changes_of(server, shelf, 4) == [("stock", 3, 4)]


def test_changes_do_not_run_from_a_version_that_was_refused_as_stale(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects
) -> None:
    shelf.crawl(1, stock=1)
    relay(shelf.database, settings)
    server.fault("status", "events", status=409, itemNo=1, count=1)
    shelf.crawl(1, stock=2)
    report = relay(shelf.database, settings)
    assert (report.sent, report.superseded, report.waiting) == (0, 1, 0)

    shelf.crawl(1, stock=3)
    relay(shelf.database, settings)

    assert effects() == [(1, 1, "PRODUCT_CREATED"), (1, 3, "PRODUCT_UPDATED")]
    assert changes_of(server, shelf, 3) == [("stock", 1, 3)]


def test_a_version_refused_as_stale_after_its_answer_was_lost_is_the_one_that_arrived(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects
) -> None:
    """A server that remembers no keys calls our own repetition stale."""
    shelf.crawl(1, stock=1)
    relay(shelf.database, settings)
    server.fault("drop_after", "events", itemNo=1, count=1)
    server.fault("status", "events", status=409, itemNo=1, count=1)
    shelf.crawl(1, stock=2)
    assert relay(shelf.database, settings, patience_seconds=5).superseded == 1

    shelf.crawl(1, stock=3)
    relay(shelf.database, settings)

    assert effects()[1:] == [(1, 2, "PRODUCT_UPDATED"), (1, 3, "PRODUCT_UPDATED")]
    assert changes_of(server, shelf, 3) == [("stock", 2, 3)]


def test_a_failed_version_is_superseded_by_the_next_one(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects
) -> None:
    server.fault("status", "events", status=400, itemNo=1, count=1)
    shelf.crawl(1, stock=1)
    relay(shelf.database, settings)
    shelf.crawl(1, stock=2)

    assert relay(shelf.database, settings).sent == 1
    assert effects() == [(1, 2, "PRODUCT_CREATED")]
    first, second = shelf.outbox(1)
    assert (first["status"], first["superseded_by"]) == ("COMPLETED", second["outbox_id"])


def test_a_deleted_product_goes_out_as_deleted_and_returns_as_created_on_the_same_row(
    shelf: Shelf, settings: Settings, effects: Effects
) -> None:
    shelf.crawl(1)
    relay(shelf.database, settings)
    (before,) = shelf.rows("SELECT product_id FROM products")
    assert shelf.delete(1) == 1
    assert shelf.delete(1) == 0
    relay(shelf.database, settings)
    assert shelf.process().versions == {}

    shelf.crawl(1)
    relay(shelf.database, settings)
    shelf.crawl(1, stock=8)
    relay(shelf.database, settings)

    assert shelf.versions(1) == [(1, "CREATED"), (2, "DELETED"), (3, "RESTORED"), (4, "UPDATED")]
    assert effects() == [
        (1, 1, "PRODUCT_CREATED"),
        (1, 2, "PRODUCT_DELETED"),
        (1, 3, "PRODUCT_CREATED"),
        (1, 4, "PRODUCT_UPDATED"),
    ]
    assert shelf.rows("SELECT product_id FROM products") == [before]
    assert_whole(shelf.database)


def test_an_update_that_supersedes_an_undelivered_restoration_creates_the_product_again(
    shelf: Shelf, settings: Settings, effects: Effects
) -> None:
    shelf.crawl(1)
    relay(shelf.database, settings)
    shelf.delete(1)
    relay(shelf.database, settings)
    shelf.crawl(1)
    shelf.crawl(1, stock=8)
    relay(shelf.database, settings)

    assert effects()[-1] == (1, 4, "PRODUCT_CREATED")


def test_an_update_after_a_deletion_whose_answer_was_lost_creates_the_product_again(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects
) -> None:
    shelf.crawl(1, stock=1)
    shelf.crawl(1, stock=2)
    relay(shelf.database, settings)
    shelf.delete(1)
    server.fault("drop_after", "events", itemNo=1, count=1)
    relay(shelf.database, settings.model_copy(update={"outbox_retry_base_seconds": 600.0}))
    assert shelf.rows("SELECT delivered_version FROM products") == [{"delivered_version": 2}]
    shelf.crawl(1, stock=4)
    shelf.crawl(1, stock=5)

    relay(shelf.database, settings)

    assert [version for version, _ in shelf.versions(1)] == [1, 2, 3, 4, 5]
    assert effects() == [(1, 2, "PRODUCT_CREATED"), (1, 3, "PRODUCT_DELETED"), (1, 5, "PRODUCT_CREATED")]
    assert changes_of(server, shelf, 5) == []
    assert server.audit()["updatesOfUnknown"] == 0
    shelf.crawl(1, stock=6)
    relay(shelf.database, settings)
    assert changes_of(server, shelf, 6) == [("stock", 5, 6)]


def test_a_deletion_that_was_never_sent_leaves_a_product_to_update(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects
) -> None:
    shelf.crawl(1, stock=1)
    relay(shelf.database, settings)
    shelf.delete(1)
    shelf.crawl(1, stock=1)
    shelf.crawl(1, stock=4)

    relay(shelf.database, settings)

    assert effects() == [(1, 1, "PRODUCT_CREATED"), (1, 4, "PRODUCT_UPDATED")]
    assert changes_of(server, shelf, 4) == [("stock", 1, 4)]


def test_of_a_product_deleted_before_anything_was_sent_nothing_is_sent_however_often_it_returns(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects
) -> None:
    for _ in range(2):
        shelf.crawl(1)
        shelf.delete(1)
        report = relay(shelf.database, settings)
        assert (report.sent, report.waiting) == (0, 0)

    assert effects() == []
    assert server.audit()["requests"] == {}
    assert {row["status"] for row in shelf.outbox(1)} == {"COMPLETED"}

    shelf.crawl(1)
    relay(shelf.database, settings)
    assert effects() == [(1, 5, "PRODUCT_CREATED")]


def test_a_deletion_is_sent_where_a_lost_answer_leaves_open_whether_the_product_arrived(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects
) -> None:
    server.fault("drop_after", "events", count=1)
    shelf.crawl(1)
    relay(shelf.database, settings)
    shelf.delete(1)
    relay(shelf.database, settings)

    assert effects() == [(1, 1, "PRODUCT_CREATED"), (1, 2, "PRODUCT_DELETED")]


def test_two_relays_at_once_send_everything_once_and_one_version_at_a_time(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects
) -> None:
    server.fault("slow", "events", seconds=0.03)
    items = range(1, 13)
    shelf.crawl(*items)
    stop = threading.Event()
    reports: list[RelayReport] = []

    def keep_relaying() -> None:
        while not stop.is_set():
            reports.append(relay(shelf.database, settings))

    threads = [threading.Thread(target=keep_relaying) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for stock in range(10, 16):
            shelf.crawl(*items, stock=stock)
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    reports.append(relay(shelf.database, settings))

    audit = server.audit()
    assert audit["maxInFlightPerProduct"] == 1
    assert (audit["repeated"], audit["stale"], audit["rejected"]) == (0, 0, 0)
    log = effects()
    assert len(log) == len({(item, version) for item, version, _ in log}) == sum(one.sent for one in reports)
    for item in items:
        versions = [version for number, version, _ in log if number == item]
        assert all(older < newer for older, newer in pairwise(versions))
        assert versions[-1] == 7
    assert_whole(shelf.database)


def test_rows_of_a_killed_relay_return_when_their_lease_ends_and_its_late_result_is_ignored(
    shelf: Shelf, settings: Settings, effects: Effects
) -> None:
    shelf.crawl(1)
    (claimed,) = claim(shelf, lease_seconds=60)

    assert relay(shelf.database, settings).waiting == 1
    shelf.change("UPDATE product_outbox SET lease_expires_at = now() - interval '1 second'")
    report = relay(shelf.database, settings)

    assert (report.sent, report.waiting) == (1, 0)
    row = claimed.outbox(max_retries=5)
    row.fail("too late")
    with shelf.database.transaction() as connection:
        assert settle(connection, [Settlement(claimed, 500, row)]) == {}
    (row,) = shelf.outbox(1)
    assert (row["status"], row["retry_count"], row["last_error"]) == ("COMPLETED", 0, None)
    assert effects() == [(1, 1, "PRODUCT_CREATED")]


def test_a_newer_version_waits_while_an_older_one_is_in_flight_and_no_loop_spins(
    shelf: Shelf, settings: Settings, effects: Effects
) -> None:
    shelf.crawl(1, stock=1)
    (claimed,) = claim(shelf, lease_seconds=30)
    shelf.crawl(1, stock=2)

    assert relay(shelf.database, settings).sent == 0
    with shelf.database.reading() as connection:
        assert (outbox.next_due_in(connection) or 0) > 10

    with shelf.database.transaction() as connection:
        assert settle(connection, [Settlement(claimed, 200)]).keys() == {claimed.row_id}
    assert relay(shelf.database, settings).sent == 1
    assert effects() == [(1, 2, "PRODUCT_UPDATED")]


def test_a_row_whose_lease_may_end_in_flight_is_given_back_unsent(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects
) -> None:
    one_by_one = settings.model_copy(update={"relay_concurrent_sends": 1, "relay_lease_seconds": 4.0})
    server.fault("slow", "events", seconds=0.6)
    shelf.crawl(*range(1, 6))

    report = relay(shelf.database, one_by_one, patience_seconds=10)

    assert (report.sent, report.waiting) == (5, 0)
    assert len(effects()) == 5
    assert server.audit()["requests"]["events"] == 5
    assert shelf.rows("SELECT DISTINCT attempts FROM product_outbox") == [{"attempts": 1}]
