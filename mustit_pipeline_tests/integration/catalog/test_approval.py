"""Held deletions, decided by an admin: approval deletes exactly what is still absent, rejection nothing."""

import threading
import time

import pytest
from sqlalchemy import text

from mustit_pipeline.catalog import deletion
from mustit_pipeline.catalog.sql import deletions
from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.steering import open_or_join, resume
from mustit_pipeline.delivery.relay import relay
from mustit_pipeline.domain.errors import Conflict, NotFound
from mustit_pipeline.domain.filters import IdPrefix
from mustit_pipeline.domain.states import HoldStatus, LifeCycle
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.failures import ServerFailure
from mustit_pipeline.simulator.control import ProductServerControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline_tests.integration.catalog.guarded import Guarded
from mustit_pipeline_tests.integration.catalog.shelf import assert_whole, utc_now
from mustit_pipeline_tests.integration.crawls import differences


def open_hold(guarded: Guarded) -> IdPrefix:
    with guarded.database.reading() as connection:
        [hold] = deletions.newest_holds(connection, status=HoldStatus.OPEN, seller_id=None, limit=5).rows
    return IdPrefix(str(hold.id)[:8])


def approve(guarded: Guarded) -> list[int]:
    return deletion.approve(guarded.database, open_hold(guarded), utc_now()).deleted


@pytest.fixture
def effects(guarded: Guarded, product_server: RunningSimulator, receiver: ProductServerControl) -> "Effects":
    return Effects(guarded, product_server.url, receiver)


class Effects:
    """What the product server does for the seller, relay by relay."""

    def __init__(self, guarded: Guarded, url: str, receiver: ProductServerControl) -> None:
        self._guarded, self.receiver = guarded, receiver
        self._settings = guarded.settings.model_copy(update={"product_server_url": url})
        self._known = 0

    def relay(self) -> set[tuple[int, str]]:
        """Send all that waits; returns the new effects."""
        relay(self._guarded.database, self._settings)
        log = self.receiver.log()
        fresh, self._known = log[self._known :], len(log)
        found = {(effect.item_no, effect.event_type) for effect in fresh}
        assert len(found) == len(fresh)
        return found


@pytest.mark.parametrize("how", ["forty percent", "count zero"])
def test_approval_deletes_exactly_the_held_products_and_they_return_as_restored(
    guarded: Guarded, effects: Effects, how: str
) -> None:
    effects.relay()
    gone = guarded.items[:4] if how == "forty percent" else guarded.items
    if how == "forty percent":
        guarded.shop.remove(guarded.seller_id, gone)
    else:
        guarded.shop.fault("count_zero", "listing", sellerId=guarded.seller_id)
    guarded.crawl()
    assert guarded.holds() == [("OPEN", gone, 10)]
    assert effects.relay() == set()

    assert approve(guarded) == gone

    assert guarded.holds() == [("APPROVED", gone, 10)]
    assert guarded.deleted() == gone
    assert effects.relay() == {(item, "PRODUCT_DELETED") for item in gone}
    guarded.crawl()
    assert (effects.relay(), guarded.holds()) == (set(), [("APPROVED", gone, 10)])

    guarded.shop.clear_faults()
    if how == "forty percent":
        guarded.shop.restore(guarded.seller_id, gone)
    assert guarded.crawl().report.versions == {LifeCycle.RESTORED: len(gone)}
    assert effects.relay() == {(item, "PRODUCT_CREATED") for item in gone}
    assert differences(guarded.shop, effects.receiver, guarded.seller_id) == {}
    assert_whole(guarded.database)


def test_products_that_a_later_unfinished_sweep_has_seen_again_are_not_deleted(guarded: Guarded) -> None:
    gone = guarded.items[:4]
    guarded.shop.remove(guarded.seller_id, gone)
    guarded.crawl()
    guarded.shop.restore(guarded.seller_id, gone[:2])
    # An incomplete sweep does not judge and leaves the hold as it is, but it has eyes.
    guarded.crawl(limit=100)
    assert guarded.holds() == [("OPEN", gone, 10)]

    assert approve(guarded) == gone[2:]

    assert guarded.deleted() == gone[2:]
    assert [guarded.life(item) for item in gone] == [["CREATED"]] * 2 + [["CREATED", "DELETED"]] * 2
    assert_whole(guarded.database)


def test_products_that_a_resumed_older_crawl_has_seen_again_are_not_deleted(guarded: Guarded) -> None:
    gone = guarded.items[-4:]
    guarded.shop.fault("5xx", "listing", sellerId=guarded.seller_id)
    older = open_or_join(guarded.database, SellerId(guarded.seller_id), triggered_by="test", now=utc_now()).stored
    with pytest.raises(ServerFailure):
        Crawl(guarded.database, guarded.settings, older).sweep(60)
    guarded.shop.clear_faults()
    guarded.shop.remove(guarded.seller_id, gone)
    guarded.crawl()
    assert guarded.holds() == [("OPEN", gone, 10)]
    guarded.shop.restore(guarded.seller_id, gone[1:])
    # The page of the oldest products fails: a sweep that is complete would end the hold itself.
    guarded.shop.fault("5xx", "listing", sellerId=guarded.seller_id, pageNo=1)
    resume(guarded.database, older.execution.id)
    Crawl(guarded.database, guarded.settings, older).sweep(60)
    assert guarded.holds() == [("OPEN", gone, 10)]

    assert approve(guarded) == gone[:1]

    assert guarded.deleted() == gone[:1]
    assert_whole(guarded.database)


def test_a_product_that_the_next_sweep_sees_after_its_approved_deletion_is_restored_by_it(guarded: Guarded) -> None:
    gone = guarded.items[:4]
    guarded.shop.remove(guarded.seller_id, gone)
    guarded.crawl()
    opened = open_or_join(guarded.database, SellerId(guarded.seller_id), triggered_by="test", now=utc_now())
    guarded.shop.restore(guarded.seller_id, gone)
    assert approve(guarded) == gone

    Crawl(guarded.database, guarded.settings, opened.stored).sweep(60)

    assert guarded.crawl().report.versions == {LifeCycle.RESTORED: 4}
    assert guarded.deleted() == []


def test_rejection_deletes_nothing_and_a_sweep_that_still_misses_too_much_asks_again(guarded: Guarded) -> None:
    gone = guarded.items[:4]
    guarded.shop.remove(guarded.seller_id, gone)
    guarded.crawl()

    decision = deletion.reject(guarded.database, open_hold(guarded), utc_now())

    assert (decision.deleted, decision.hold.status) == ([], HoldStatus.REJECTED)
    assert guarded.holds() == [("REJECTED", gone, 10)]
    guarded.crawl()
    assert guarded.holds() == [("REJECTED", gone, 10), ("OPEN", gone, 10)]
    assert guarded.deleted() == []
    assert [guarded.life(item) for item in gone] == [["CREATED"]] * 4


def test_a_decided_or_closed_hold_cannot_be_decided_again(guarded: Guarded) -> None:
    guarded.shop.remove(guarded.seller_id, guarded.items[:4])
    guarded.crawl()
    decided = open_hold(guarded)
    deletion.reject(guarded.database, decided, utc_now())
    guarded.crawl()
    closed = open_hold(guarded)
    guarded.shop.restore(guarded.seller_id, guarded.items[:4])
    guarded.crawl()

    for hold in (decided, closed):
        for decide in (deletion.approve, deletion.reject):
            with pytest.raises(Conflict, match="CONFLICT_DELETION_HOLD_DECIDED"):
                decide(guarded.database, hold, utc_now())
    with pytest.raises(NotFound, match="NOT_FOUND_DELETION_HOLD"):
        deletion.approve(guarded.database, IdPrefix("00000000"), utc_now())
    assert [status for status, _, _ in guarded.holds()] == ["REJECTED", "CLOSED"]
    assert guarded.deleted() == []


def test_of_admins_who_decide_at_once_one_wins_and_the_others_get_a_conflict(guarded: Guarded) -> None:
    gone = guarded.items[:4]
    guarded.shop.remove(guarded.seller_id, gone)
    guarded.crawl()
    hold = open_hold(guarded)
    start = threading.Barrier(4)
    outcomes: list[list[int] | str] = []

    def decide() -> None:
        start.wait()
        try:
            outcomes.append(deletion.approve(guarded.database, hold, utc_now()).deleted)
        except Conflict as error:
            outcomes.append(error.code)

    admins = [threading.Thread(target=decide) for _ in range(4)]
    for admin in admins:
        admin.start()
    for admin in admins:
        admin.join(30)

    assert sorted(outcomes, key=str) == sorted([gone, *["CONFLICT_DELETION_HOLD_DECIDED"] * 3], key=str)
    assert [guarded.life(item) for item in gone] == [["CREATED", "DELETED"]] * 4
    assert_whole(guarded.database)


def test_an_approval_that_breaks_off_changes_nothing(guarded: Guarded) -> None:
    guarded.shop.remove(guarded.seller_id, guarded.items[:4])
    guarded.crawl()
    with guarded.database.transaction() as connection:
        connection.execute(
            text("ALTER TABLE product_outbox ADD CONSTRAINT broken CHECK (event_type <> 'PRODUCT_DELETED')")
        )

    with pytest.raises(Exception, match="broken"):
        approve(guarded)

    assert guarded.deleted() == []
    assert guarded.holds() == [("OPEN", guarded.items[:4], 10)]
    assert_whole(guarded.database)


def test_a_sweep_that_ends_while_an_approval_is_under_way_counts_its_products_as_deleted(guarded: Guarded) -> None:
    gone = guarded.items[:4]
    guarded.shop.remove(guarded.seller_id, gone)
    guarded.crawl()
    with guarded.database.transaction() as connection:
        connection.execute(text(SLOW_OUTBOX))
    approval, sweep = threading.Thread(target=approve, args=[guarded]), threading.Thread(target=guarded.crawl)

    with guarded.database.transaction() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(42)"))
        approval.start()
        wait_until_blocked(guarded, 1)
        sweep.start()
        wait_until_blocked(guarded, 2)
    approval.join(30)
    sweep.join(30)

    assert guarded.holds() == [("APPROVED", gone, 10)]
    assert guarded.deleted() == gone
    assert_whole(guarded.database)


# An approval reaches the outbox last, and waits there for as long as the test wants it to.
SLOW_OUTBOX = """
    CREATE FUNCTION wait_here() RETURNS trigger LANGUAGE plpgsql
    AS $$ BEGIN PERFORM pg_advisory_xact_lock(42); RETURN NEW; END $$;
    CREATE TRIGGER slow BEFORE INSERT ON product_outbox FOR EACH ROW EXECUTE FUNCTION wait_here()
"""


def wait_until_blocked(guarded: Guarded, count: int) -> None:
    query = text("""
        SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
    """)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with guarded.database.reading() as connection:
            if connection.execute(query).scalar_one() >= count:
                return
        time.sleep(0.02)
    raise AssertionError(f"{count} transactions should wait for each other by now")
