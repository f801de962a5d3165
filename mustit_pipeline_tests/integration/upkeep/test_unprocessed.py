"""Fetched changes of crawls that are over become versions before the next crawl, whatever was stopped on the way."""

import orjson
import pytest

from mustit_pipeline.catalog.processing import ProcessingReport, catalog_work
from mustit_pipeline.catalog.sql import raw
from mustit_pipeline.crawling.steering import complete_if_done
from mustit_pipeline.domain.states import ExecutionStatus
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.foundation.liveness import hold_liveness
from mustit_pipeline.upkeep.recovery import Recovered, recover
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.catalog.shelf import Shelf, assert_whole
from mustit_pipeline_tests.integration.upkeep.conftest import Pass

A_WHILE_AGO = "UPDATE crawling_schedule_executions SET updated_at = now() - interval '2 minutes'"
PENDING = "SELECT count(*) AS n FROM product_raw_data WHERE status = 'PENDING'"


@pytest.fixture
def shelf(database: Database) -> Shelf:
    return Shelf(database)


def stop(shelf: Shelf, status: str) -> None:
    """The open crawl is over, in that state, and nothing of it has moved for a while."""
    shelf.change(f"UPDATE crawling_schedule_executions SET status = '{status}' WHERE status = 'RUNNING'")
    shelf.change(A_WHILE_AGO)


def fetch(shelf: Shelf, item: int, **changes: object) -> None:
    shelf.listing(item)
    shelf.detail(item, **changes)
    shelf.options(item)


def absorb(shelf: Shelf) -> None:
    """A process is killed between what the bodies say and its publication."""

    def killed(so_far: ProcessingReport) -> None:
        if so_far.bodies == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shelf.process(progress=killed)


@pytest.mark.parametrize("status", ["COMPLETED", "CANCELLED", "FAILED"])
def test_bodies_that_a_crawl_left_behind_are_processed_however_it_ended(
    status: str, shelf: Shelf, recovered: Pass
) -> None:
    fetch(shelf, 7)
    stop(shelf, status)

    assert recovered() == Recovered(sellers=1)

    assert shelf.versions(7) == [(1, "CREATED")]
    assert_whole(shelf.database)
    assert recovered() == Recovered()


def test_those_of_a_seller_that_was_deactivated_in_mid_crawl_too(shelf: Shelf, recovered: Pass) -> None:
    fetch(shelf, 7)
    shelf.change("UPDATE sellers SET status = 'INACTIVE'")
    stop(shelf, "CANCELLED")

    assert recovered() == Recovered(sellers=1)
    assert shelf.versions(7) == [(1, "CREATED")]


def test_what_was_absorbed_but_not_published_is_published(shelf: Shelf, recovered: Pass) -> None:
    fetch(shelf, 7)
    absorb(shelf)
    assert shelf.rows(PENDING) == [{"n": 0}]
    stop(shelf, "COMPLETED")

    assert recovered() == Recovered(sellers=1)

    assert shelf.versions(7) == [(1, "CREATED")]
    assert_whole(shelf.database)
    assert recovered() == Recovered()


def test_a_replay_that_was_stopped_is_brought_to_its_end(shelf: Shelf, recovered: Pass) -> None:
    shelf.crawl(7, 8)
    shelf.change(A_WHILE_AGO)
    with shelf.database.transaction() as connection:
        assert raw.reopen_newest(connection, shelf.seller_id) == 5

    assert recovered() == Recovered(sellers=1)

    assert shelf.rows(PENDING) == [{"n": 0}]
    assert shelf.versions(7) == [(1, "CREATED")]


def test_a_seller_with_an_open_or_a_recent_crawl_a_run_or_a_process_at_it_is_left_to_that(
    shelf: Shelf, recovered: Pass
) -> None:
    fetch(shelf, 7)
    shelf.change(A_WHILE_AGO)
    assert recovered() == Recovered()

    stop(shelf, "COMPLETED")
    with hold_liveness(shelf.database, catalog_work(shelf.seller_id)):
        assert recovered() == Recovered()
    assert recovered(shelf.seller_id) == Recovered()

    shelf.change("UPDATE crawling_schedule_executions SET updated_at = now()")
    assert recovered() == Recovered()
    assert shelf.versions(7) == []


def test_a_processor_of_a_seller_is_seen_at_it_until_the_last_version(shelf: Shelf, recovered: Pass) -> None:
    fetch(shelf, 7)
    stop(shelf, "COMPLETED")
    found: list[Recovered] = []

    shelf.process(progress=lambda _: found.append(recovered()))

    assert found[:1] == [Recovered()]
    assert set(found) == {Recovered()}


def test_held_changes_wait_for_a_crawl_or_a_person_and_not_for_recovery(
    shelf: Shelf, recovered: Pass, make_settings: MakeSettings
) -> None:
    items = range(1, 41)
    shelf.crawl(*items, sellingPrice=100_000, normalPrice=100_000)
    shelf.open()
    shelf.listing(*items)
    for item in items:
        shelf.detail(item, sellingPrice=1_000, normalPrice=1_000)
    stop(shelf, "CANCELLED")

    assert recovered() == Recovered(sellers=1)
    assert shelf.rows("SELECT status FROM change_holds") == [{"status": "OPEN"}]
    assert shelf.versions(7) == [(1, "CREATED")]
    assert recovered() == Recovered()


def test_a_product_whose_return_is_not_proven_waits_for_its_next_crawl(shelf: Shelf, recovered: Pass) -> None:
    shelf.crawl(7)
    shelf.delete(7)
    shelf.open()
    shelf.listing(7)
    shelf.process()
    stop(shelf, "COMPLETED")

    assert recovered() == Recovered()
    assert shelf.versions(7)[-1] == (2, "DELETED")


def test_a_crawl_is_not_over_while_a_body_that_came_late_waits(shelf: Shelf, recovered: Pass) -> None:
    """A worker of its own stores the last tasks after the run has looked for the last time."""
    fetch(shelf, 7)
    shelf.swept()
    shelf.process()
    fetch(shelf, 8)

    refused = complete_if_done(shelf.database, shelf.stored.execution.id, utc_now())
    assert refused.execution.status is ExecutionStatus.RUNNING

    shelf.change(A_WHILE_AGO)
    assert recovered() == Recovered(executions=1)
    assert shelf.versions(8) == [(1, "CREATED")]
    assert recovered() == Recovered()


def test_a_second_change_within_one_crawl_is_published_after_its_end(shelf: Shelf, recovered: Pass) -> None:
    """A crawl makes one version of a product: what a later page of it says waits, but not for the next crawl."""
    fetch(shelf, 7)
    shelf.swept()
    shelf.process()
    shelf.listing(7, name="other")
    shelf.process()
    assert complete_if_done(shelf.database, shelf.stored.execution.id, utc_now()).execution.ended_at is not None

    shelf.change(A_WHILE_AGO)
    assert recovered() == Recovered(sellers=1)
    assert shelf.versions(7) == [(1, "CREATED"), (2, "UPDATED")]


def test_a_seller_whose_processing_breaks_keeps_no_other_waiting(
    database: Database, make_settings: MakeSettings
) -> None:
    """The pass is red for it, minute by minute, but only after everybody else has been helped."""
    broken, healthy = Shelf(database, "a"), Shelf(database, "b")
    broken.crawl(7)
    broken.open()
    broken.change("UPDATE products SET detail_data = 'no JSON'")
    for shelf in (broken, healthy):
        fetch(shelf, 7, sellingPrice=5)
    stop(healthy, "CANCELLED")

    with pytest.raises(orjson.JSONDecodeError):
        recover(database, make_settings(), utc_now, busy=())

    assert healthy.versions(7) == [(1, "CREATED")]
