"""Each criterion at its edge: what just passes, what just fails, and what does not count."""

from bisect import bisect_left
from datetime import timedelta
from typing import Any

import pytest

from mustit_pipeline.foundation.database import Database
from mustit_pipeline.monitoring.criteria import CRITERIA
from mustit_pipeline.tallies.sql.tallies import Subject
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.monitoring.standing import DAY, HOUR, NOW, Standing

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


@pytest.fixture
def standing(database: Database, make_settings: MakeSettings) -> Standing:
    made = Standing(database, make_settings(suspicious_least=3))
    made.sellers("dmont", "한글 & a/b")
    return made


def test_an_empty_pipeline_fails_nothing(database: Database, make_settings: MakeSettings) -> None:
    empty = Standing(database, make_settings())

    assert [one.name for one in CRITERIA if not empty.judge(one.name).passed] == []


@pytest.mark.parametrize(("completed", "passed"), [(95, True), (94, False)])
def test_95_of_100_tasks_must_succeed(standing: Standing, completed: int, passed: bool) -> None:
    standing.crawl("dmont", HOUR, total_tasks=100, completed_tasks=completed, failed_tasks=100 - completed)
    # Not of this window, and ended by a person.
    standing.crawl("dmont", DAY + SECOND, total_tasks=100, completed_tasks=0, failed_tasks=100)
    standing.crawl("한글 & a/b", HOUR, status="CANCELLED", total_tasks=100, completed_tasks=0, failed_tasks=100)

    found = standing.judge("crawl_success")

    assert (found.passed, found.metadata["success_percent"], found.metadata["crawls"]) == (passed, completed, 1)


@pytest.mark.parametrize(("failed", "passed"), [(1, True), (2, False)])
def test_19_of_20_crawls_must_succeed_though_those_without_a_plan_have_no_tasks(
    standing: Standing, failed: int, passed: bool
) -> None:
    unplanned = {"status": "FAILED", "started_at": None, "total_tasks": 0, "completed_tasks": 0, "listed_count": None}
    for number in range(20):
        standing.crawl("dmont", HOUR, **(unplanned if number < failed else {}))
    # Not of this window, under way, and ended by a person.
    standing.crawl("dmont", DAY + HOUR, **unplanned)
    standing.crawl("dmont", HOUR, status="RUNNING", ended_at=None, total_tasks=0, completed_tasks=0)
    standing.crawl("한글 & a/b", HOUR, **unplanned | {"status": "CANCELLED"})

    found = standing.judge("crawl_success")

    assert (found.passed, found.metadata["success_percent"]) == (passed, 100 - 5 * failed)
    assert (found.metadata["crawls"], found.metadata["failed_crawls"]) == (20, failed)
    assert found.summary == f"100 % of {10 * (20 - failed)} tasks and {100 - 5 * failed} % of 20 crawls succeeded"


@pytest.mark.parametrize(("unit", "failed"), [("DAYS", 0), ("HOURS", 5)])
def test_a_crawl_that_came_to_no_plan_counts_by_its_next_try_unless_that_is_an_interval_later(
    standing: Standing, unit: str, failed: int
) -> None:
    """An outage of hours is one crawl that was late, however often it was tried; of an hourly seller it is many."""
    standing.write("UPDATE sellers SET interval_amount = 1, interval_unit = :unit", unit=unit)
    unplanned = {"status": "FAILED", "started_at": None, "total_tasks": 0, "completed_tasks": 0}
    for ago in range(2, 7):
        standing.crawl("dmont", ago * (HOUR + MINUTE), **unplanned)
    standing.crawl("dmont", HOUR)

    found = standing.judge("crawl_success")

    assert (found.metadata["crawls"], found.metadata["failed_crawls"]) == (1 + failed, failed)


def test_no_seller_that_could_be_planned_is_no_success(standing: Standing) -> None:
    for seller in ("dmont", "한글 & a/b"):
        standing.crawl(seller, HOUR, status="FAILED", started_at=None, total_tasks=0, completed_tasks=0)

    found = standing.judge("crawl_success")

    assert (found.passed, found.summary) == (False, "100 % of 0 tasks and 0 % of 2 crawls succeeded")


@pytest.mark.parametrize(("seen", "passed"), [(98, True), (97, False)])
def test_the_last_sweeps_together_see_99_of_100_products(standing: Standing, seen: int, passed: bool) -> None:
    standing.crawl("dmont", DAY, sweep_status="INCOMPLETE")
    sweep = standing.crawl("dmont", HOUR, sweep_status="INCOMPLETE")
    standing.crawl("dmont", HOUR / 2, sweep_status="INCOMPLETE", product_limit=5)
    standing.crawl("dmont", HOUR / 3, sweep_status="INCOMPLETE", listed_count=None)
    standing.crawl("한글 & a/b", HOUR)
    standing.products("dmont", range(1, seen + 1))
    standing.write("UPDATE products SET last_seen_execution_id = :e", e=sweep)

    found = standing.judge("listing_coverage")

    assert (found.passed, found.metadata["listed"], found.metadata["seen"]) == (passed, 200, 100 + seen)
    assert found.metadata["sellers"] == f"dmont ({seen} of 100)"


@pytest.mark.parametrize(("incomplete", "passed"), [(2, True), (3, False)])
def test_99_of_100_listed_products_are_complete_after_a_day(standing: Standing, incomplete: int, passed: bool) -> None:
    standing.products("dmont", range(1, incomplete + 1), complete=False)
    standing.products("dmont", range(10, 40), complete=False, age=HOUR)
    standing.products("dmont", range(50, 90), complete=False)
    standing.write("UPDATE products SET deleted_at = now() WHERE item_no >= 50")
    standing.products("dmont", range(200, 240), complete=False)
    standing.write("UPDATE products SET foreign_at = now() WHERE item_no >= 200")

    found = standing.judge("completeness")

    assert (found.passed, found.metadata["incomplete"], found.metadata["listed"]) == (passed, incomplete, 200)
    assert found.metadata["sellers"] == f"dmont ({incomplete})"


@pytest.mark.parametrize(
    ("events", "late", "overdue"),
    [
        ([("COMPLETED", DAY + HOUR, HOUR)], 0, 0),
        ([("COMPLETED", DAY + HOUR + SECOND, HOUR)], 1, 0),
        ([("COMPLETED", 3 * DAY, DAY + HOUR)], 0, 0),
        ([("WAITING", DAY, None), ("SENDING", DAY, None), ("FAILED", DAY, None)], 0, 0),
        ([("WAITING", DAY + SECOND, None), ("SENDING", DAY + SECOND, None), ("FAILED", DAY + SECOND, None)], 0, 3),
    ],
    ids=["in time", "late", "late long ago", "on their way", "late and still here"],
)
def test_a_change_is_delivered_within_24_hours(
    standing: Standing, events: list[tuple[str, Any, Any]], late: int, overdue: int
) -> None:
    for item, (status, made, done) in enumerate(events, start=1):
        standing.event(item, status, made, done)

    found = standing.judge("delivered_in_time")

    assert (found.metadata["late"], found.metadata["overdue"]) == (late, overdue)
    assert found.passed is (not late and not overdue)


def test_a_product_that_goes_on_changing_during_an_outage_has_waited_since_its_first_change(
    standing: Standing,
) -> None:
    """Each version supersedes the last one that waited: the newest is never older than the next change."""
    standing.event(1, "COMPLETED", 9 * DAY, 9 * DAY - HOUR, version=1, superseded=True)
    standing.event(1, "COMPLETED", 9 * DAY - HOUR, 8 * DAY, version=2)
    for version in range(3, 9):
        ago = 5 * DAY - (version - 3) * 20 * HOUR
        standing.event(1, "COMPLETED", ago, ago - 20 * HOUR, version=version, superseded=True)
    standing.event(1, "WAITING", HOUR, version=9)
    standing.event(2, "WAITING", HOUR)

    assert standing.judge("outbox_age").metadata["oldest_hours"] == 120.0
    assert standing.judge("delivered_in_time").metadata["overdue"] == 1

    standing.write("UPDATE product_outbox SET status = 'COMPLETED', completed_at = :now WHERE version = 9", now=NOW)
    found = standing.judge("delivered_in_time").metadata
    assert (found["overdue"], found["late"], found["longest_hours"]) == (0, 1, 120.0)
    assert standing.judge("outbox_age").metadata["oldest_hours"] == 1.0

    # What went out since then starts anew.
    standing.event(1, "WAITING", HOUR / 2, version=10)
    assert standing.judge("delivered_in_time").metadata["overdue"] == 0


@pytest.mark.parametrize(
    ("fetched", "opened", "passed"),
    [(5, DAY + SECOND, False), (6, DAY + SECOND, True), (0, HOUR, True)],
    ids=["too few while some wait", "enough", "nothing has waited for a day"],
)
def test_so_many_products_a_day_while_some_wait(
    database: Database, make_settings: MakeSettings, fetched: int, opened: timedelta, passed: bool
) -> None:
    standing = Standing(database, make_settings(products_per_day=6))
    standing.sellers("dmont")
    standing.crawl("dmont", opened, status="RUNNING", ended_at=None, total_tasks=100, completed_tasks=40)
    standing.write(
        """INSERT INTO product_raw_data (seller_id, execution_id, task_id, source, item_no, body, status, fetched_at)
           SELECT 'dmont', gen_random_uuid(), gen_random_uuid(), s, n, '{}',
                  CASE WHEN n <= :n THEN 'PROCESSED' ELSE 'FAILED' END, :at
           FROM generate_series(1, :n + 50) n, unnest(ARRAY['PRODUCT_DETAIL', 'PRODUCT_OPTION']) s""",
        n=fetched,
        at=NOW - HOUR,
    )

    found = standing.judge("products_a_day")

    assert (found.passed, found.metadata["fetched"]) == (passed, fetched)


def test_events_that_wait_or_failed_are_counted_with_the_age_of_the_oldest(standing: Standing) -> None:
    standing.event(1, "WAITING", 2 * HOUR)
    assert standing.judge("outbox_age").passed
    standing.event(2, "SENDING", 2 * HOUR + SECOND)
    standing.event(3, "FAILED", HOUR)

    assert standing.judge("outbox_age").metadata == {"unsent": 2, "oldest_hours": 2.0, "wanted_hours": 2}
    assert not standing.judge("outbox_age").passed
    assert standing.judge("no_failed_events").metadata == {"failed": 1}


def test_a_seller_is_failing_while_its_last_crawl_is_a_failure(standing: Standing) -> None:
    standing.crawl("dmont", 2 * HOUR)
    standing.crawl("dmont", HOUR, status="FAILED", error_code="EXTERNAL_TIMEOUT", started_at=None, completed_tasks=0)
    standing.crawl("dmont", HOUR / 2, status="CANCELLED")
    standing.crawl("한글 & a/b", HOUR, total_tasks=100, completed_tasks=94, failed_tasks=6)

    found = standing.judge("sellers_succeeding")

    assert found.metadata == {
        "failing": 2,
        "sellers": "dmont (EXTERNAL_TIMEOUT, 2026-11-16 20:01), 한글 & a/b (6 of 100 tasks failed, 2026-11-16 20:01)",
    }
    standing.crawl("dmont", HOUR / 4)
    standing.write("UPDATE sellers SET status = 'INACTIVE' WHERE seller_id <> 'dmont'")
    assert standing.judge("sellers_succeeding").passed


def test_one_product_that_always_fails_is_no_failing_seller_however_few_its_tasks(standing: Standing) -> None:
    for hours in (3, 2, 1):
        standing.crawl("dmont", hours * HOUR, total_tasks=3, completed_tasks=1, failed_tasks=2)
    assert standing.judge("sellers_succeeding").passed
    standing.crawl("dmont", HOUR / 2, total_tasks=4, completed_tasks=1, failed_tasks=3)
    assert standing.judge("sellers_succeeding").metadata["failing"] == 1


def test_a_small_crawl_is_judged_with_the_other_tasks_of_the_day(standing: Standing) -> None:
    standing.crawl("dmont", 25 * HOUR, total_tasks=1000, completed_tasks=1000)
    standing.crawl("dmont", HOUR, total_tasks=8, completed_tasks=2, failed_tasks=6)
    assert not standing.judge("sellers_succeeding").passed
    standing.crawl("dmont", 20 * HOUR, total_tasks=200, completed_tasks=200)
    assert standing.judge("sellers_succeeding").passed


def test_a_seller_of_which_nothing_was_fetched_is_failing(standing: Standing) -> None:
    standing.crawl("dmont", HOUR, total_tasks=1, completed_tasks=0, failed_tasks=1)
    assert not standing.judge("sellers_succeeding").passed


def test_a_seller_is_overdue_after_two_of_its_own_intervals_without_a_whole_crawl(standing: Standing) -> None:
    standing.crawl("dmont", 2 * DAY + HOUR)
    standing.crawl("dmont", HOUR, product_limit=3)
    standing.crawl("한글 & a/b", 13 * HOUR)
    standing.crawl("한글 & a/b", HOUR, sweep_status="INCOMPLETE", listed_count=None)
    standing.write("UPDATE sellers SET interval_unit = 'HOURS', interval_amount = 6 WHERE seller_id <> 'dmont'")

    found = standing.judge("sellers_on_time")

    assert found.metadata["overdue"] == 2
    assert found.metadata["sellers"] == "dmont (2026-11-14 20:01), 한글 & a/b (2026-11-16 08:01)"
    standing.write("UPDATE sellers SET interval_unit = 'DAYS', interval_amount = 2")
    assert standing.judge("sellers_on_time").passed


def test_of_many_ailing_sellers_the_first_are_named_and_all_are_counted(standing: Standing) -> None:
    standing.sellers(*(f"late {n:02}" for n in range(23)))

    found = standing.judge("sellers_on_time")

    assert found.metadata["overdue"] == 25
    assert str(found.metadata["sellers"]).count("(") == 20
    assert str(found.metadata["sellers"]).endswith(" and 5 more")


def test_of_many_sellers_with_incomplete_products_the_worst_are_named_and_all_are_counted(standing: Standing) -> None:
    names = [f"s{number:02}" for number in range(25)]
    standing.sellers(*names)
    for number, name in enumerate(names):
        standing.products(name, range(1, number + 2), complete=False)

    told = str(standing.judge("completeness").metadata["sellers"])

    assert told.startswith("s24 (25), s23 (24)")
    assert told.endswith("s05 (6) and 5 more")


def test_a_seller_with_many_jumping_prices_is_named(standing: Standing) -> None:
    for item in range(1, 22):
        standing.version("dmont", item, old=30_000, new=9_999)
        standing.version("한글 & a/b", item, old=30_000, new=10_000)

    found = standing.judge("price_jumps")

    assert (found.passed, found.metadata["sellers"]) == (False, "dmont (21 of 100)")
    standing.write("DELETE FROM product_change_sets WHERE item_no = 21")
    assert standing.judge("price_jumps").passed


@pytest.mark.parametrize(
    "lost",
    [{"sellingPrice": None}, {"images": []}, {"brandName": ""}, {"category": {"header": None}}],
    ids=str,
)
def test_new_versions_that_lack_a_field_are_noticed(standing: Standing, lost: dict[str, Any]) -> None:
    for item in range(1, 11):
        standing.version("dmont", item, data=lost if item <= 2 else None)
    assert standing.judge("null_share").passed

    standing.version("dmont", 11, data=lost)
    [field] = lost
    found = standing.judge("null_share")
    assert (found.passed, found.metadata[f"without_{field}"], found.metadata["versions"]) == (False, 3, 11)


def test_drift_that_is_not_accepted_is_a_warning_with_its_paths(standing: Standing) -> None:
    standing.write(
        """INSERT INTO schema_drift (path, kind, observed, expected, sample, count, seller_id)
           VALUES ('listing.items.price', 'RETYPED', 'number', 'string', '1', 3, 'dmont')"""
    )
    found = standing.judge("schema_drift")

    assert (found.passed, found.metadata) == (False, {"fields": 1, "paths": "listing.items.price"})


@pytest.mark.parametrize(("wrong", "passed"), [(1, True), (2, False)])
@pytest.mark.untouched_database
def test_99_of_100_sampled_products_are_right(standing: Standing, wrong: int, passed: bool) -> None:
    standing.write(
        """INSERT INTO truth_samples (seller_id, item_no, verdict, difference, sampled_at, judged_at)
           SELECT 'dmont', n, CASE WHEN n <= :wrong THEN 'WRONG' WHEN n <= 50 THEN 'EXPLAINED' ELSE 'EQUAL' END,
                  'detail', :at, :at FROM generate_series(1, 100) n""",
        wrong=wrong,
        at=NOW - DAY,
    )
    standing.write(
        """INSERT INTO truth_samples (seller_id, item_no, verdict, sampled_at, judged_at)
           VALUES ('dmont', 200, 'OPEN', :at, NULL), ('dmont', 201, 'WRONG', :old, :old)""",
        at=NOW,
        old=NOW - 8 * DAY,
    )
    found = standing.judge("sampled_truth")

    assert (found.passed, found.metadata["wrong"], found.metadata["undecided"]) == (passed, wrong, 1)
    assert str(found.metadata["wrong_products"]).count("dmont") == wrong


def fetches(standing: Standing, ago: timedelta, quick: int, slow: int, outcome: str = "ok") -> None:
    """Fetches of one hour, quick ones below 1 s, slow ones just above the limit of 5 s."""
    buckets = [0] * (len(Subject.FETCH.bounds) + 1)
    buckets[bisect_left(Subject.FETCH.bounds, 1.0)] = quick
    buckets[bisect_left(Subject.FETCH.bounds, 5.1)] = slow
    standing.write(
        """INSERT INTO tallies (subject, hour, labels, slot, number, seconds, buckets)
           VALUES ('FETCH', :hour, ARRAY['PRODUCT_DETAIL', CAST(:outcome AS text)], 0, :number, 1, :buckets)""",
        hour=NOW - ago,
        outcome=outcome,
        number=quick + slow,
        buckets=buckets,
    )


@pytest.mark.parametrize(("slow", "passed"), [(4, True), (6, False)])
def test_95_of_100_fetches_must_be_answered_in_time(standing: Standing, slow: int, passed: bool) -> None:
    fetches(standing, HOUR, quick=90 - slow, slow=slow)
    fetches(standing, 2 * HOUR, quick=10, slow=0)
    # Not of this window, and broken off by us.
    fetches(standing, 25 * HOUR, quick=0, slow=100)
    fetches(standing, HOUR, quick=0, slow=100, outcome="abandoned")

    found = standing.judge("fetch_p95")

    assert (found.passed, found.metadata["fetches"]) == (passed, 100)
    assert found.metadata["slow_hours"] == (0 if passed else 1)
    assert (float(found.metadata["p95_seconds"]) < 5) == passed
