"""Which sellers are crawled next."""

from datetime import timedelta

import pytest
from sqlalchemy import text

from mustit_pipeline.crawling import steering
from mustit_pipeline.crawling.steering import deactivate_seller, open_or_join
from mustit_pipeline.domain.values import CrawlingInterval, ExecutionId, SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.foundation.failures import NetworkFailure, NetworkReason
from mustit_pipeline.scheduling.due import DueSlice, begin_slices
from mustit_pipeline.sellers import registry
from mustit_pipeline_tests.integration.crawls import ROW_LOCK, once_before


def registered(database: Database, **overdue_hours: float) -> None:
    """Sellers that have been due for so many hours."""
    for seller, hours in overdue_hours.items():
        at = utc_now() - timedelta(hours=hours)
        registry.register(database, SellerId(seller), seller, CrawlingInterval.hours(1), at)


def slices(database: Database, free: int = 10, busy: tuple[str, ...] = ()) -> list[DueSlice]:
    return begin_slices(database, busy=busy, free=free, now=utc_now(), slice_seconds=600)


def chosen(database: Database, free: int = 10, busy: tuple[str, ...] = ()) -> list[str]:
    return [entry.seller_id for entry in slices(database, free, busy)]


def end(database: Database, seller: str) -> None:
    opened = open_or_join(database, SellerId(seller), triggered_by="test", now=utc_now())
    steering.cancel(database, opened.stored.execution.id, utc_now())


def test_the_longest_overdue_come_first_and_only_as_many_as_there_are_slots(database: Database) -> None:
    registered(database, a=1, b=5, c=3, later=-1)
    assert chosen(database, free=0) == []
    assert chosen(database, free=2) == ["b", "c"]
    assert chosen(database, free=2, busy=("b", "c")) == ["a"]


def test_times_missed_in_an_outage_are_caught_up_once(database: Database) -> None:
    registered(database, a=100)
    assert chosen(database) == ["a"]
    end(database, "a")
    assert chosen(database) == []


def test_inactive_sellers_and_sellers_with_a_run_are_left_alone(database: Database) -> None:
    registered(database, a=1, b=2, c=3)
    deactivate_seller(database, SellerId("c"), utc_now())
    assert chosen(database, busy=("b",)) == ["a"]
    with database.reading() as connection:
        opened = connection.execute(text("SELECT seller_id FROM crawling_schedule_executions")).scalars().all()
    assert opened == ["a"]


def test_a_seller_that_is_deactivated_while_it_is_chosen_keeps_no_other_from_a_crawl(database: Database) -> None:
    registered(database, a=1, b=2)
    with once_before(database, ROW_LOCK, lambda: deactivate_seller(database, SellerId("b"), utc_now())):
        assert chosen(database) == ["a"]


def test_an_open_crawl_is_continued_each_slice_with_a_key_of_its_own(database: Database) -> None:
    registered(database, a=1)
    first = open_or_join(database, SellerId("a"), triggered_by="api", now=utc_now()).stored.execution.id
    keys = [[entry.key for entry in slices(database, free=1)] for _ in range(3)]
    assert keys == [[f"{first}:{number}"] for number in (1, 2, 3)]
    assert chosen(database, free=1, busy=("a",)) == []


def test_huge_crawls_keep_no_seller_from_a_first_slice(database: Database) -> None:
    """Open crawls once came first: four sellers of hours each, and no other was crawled until one had ended."""
    registered(database, huge=9, large=9)
    assert chosen(database, free=2) == ["huge", "large"]
    registered(database, small=1, tiny=2)
    assert chosen(database, free=2) == ["tiny", "small"]


def test_whichever_sellers_are_due_meanwhile_a_crawl_comes_to_its_next_slice(database: Database) -> None:
    """Its slices count against it, but its waiting counts for it."""
    registered(database, huge=9)
    assert chosen(database, free=1) == ["huge"]
    with database.transaction() as connection:
        connection.execute(
            text("UPDATE crawling_schedule_executions SET created_at = created_at - interval '5 hours', slice_no = 12")
        )
    registered(database, small=2, tiny=4)
    assert [chosen(database, free=1, busy=busy)[0] for busy in ((), ("tiny",), ("tiny", "huge"))] == [
        "tiny",
        "huge",
        "small",
    ]


def test_a_paused_crawl_is_neither_continued_nor_replaced(database: Database) -> None:
    registered(database, a=1)
    stored = open_or_join(database, SellerId("a"), triggered_by="api", now=utc_now()).stored
    with database.transaction() as connection:
        connection.execute(text("UPDATE crawling_schedule_executions SET status = 'RUNNING'"))
        connection.execute(text("UPDATE crawling_schedules SET next_due_at = now() - interval '1 hour'"))
    steering.pause(database, stored.execution.id)
    assert chosen(database) == []


def come_to_no_plan(database: Database, *sellers: str, base: float = 3600) -> None:
    for seller in sellers:
        opened = open_or_join(database, SellerId(seller), triggered_by="test", now=utc_now())
        failed = NetworkFailure("/", NetworkReason.CONNECT)
        steering.fail_plan(database, opened.stored.execution.id, failed, utc_now(), base=base, longest=3600)


def test_sellers_that_come_to_no_plan_keep_no_other_from_a_slot(database: Database) -> None:
    registered(database, broken=9, wrong=8, late=1)
    come_to_no_plan(database, "broken", "wrong", base=0.001)
    assert chosen(database, free=2) == ["late", "broken"]
    come_to_no_plan(database, "broken", "wrong")
    assert chosen(database, free=3, busy=("late",)) == []


@pytest.mark.parametrize("by_interval", [True, False])
def test_a_crawl_that_came_to_no_plan_is_tried_again_once_by_any_clock(database: Database, by_interval: bool) -> None:
    registered(database, a=1)
    come_to_no_plan(database, "a", base=0.001)
    again = begin_slices(database, busy=(), free=4, now=utc_now(), slice_seconds=600, by_interval=by_interval)
    assert [entry.seller_id for entry in again] == ["a"]
    steering.cancel(database, ExecutionId(again[0].execution_id), utc_now())
    assert begin_slices(database, busy=(), free=4, now=utc_now(), slice_seconds=600, by_interval=by_interval) == []


def test_a_crawl_started_by_hand_restarts_the_interval(database: Database) -> None:
    registered(database, a=1)
    end(database, "a")
    assert chosen(database) == []
