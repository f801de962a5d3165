"""Everything that can be left behind is found and set free, and nothing else is touched."""

from collections import Counter
from datetime import timedelta

import pytest
from sqlalchemy import text

from mustit_pipeline.domain.states import OutboxStatus, TaskStatus
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.upkeep.recovery import Recovered, recover
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.catalog.shelf import Shelf, assert_whole
from mustit_pipeline_tests.integration.rows import Ground, add_outbox, add_task, ground
from mustit_pipeline_tests.integration.upkeep.conftest import Pass

ONE_OF_EACH = Recovered(tasks=1, executions=1, events=1, agents=1)


def change(database: Database, statement: str, **values: object) -> None:
    with database.transaction() as connection:
        connection.execute(text(statement), values)


def left_behind(database: Database) -> tuple[Ground, Shelf]:
    """A silent worker, a silent relay, a rested agent, and a crawl whose run died before its change sets."""
    standing = ground(database)
    with database.transaction() as connection:
        add_task(connection, standing.home, TaskStatus.IN_PROGRESS, 1, expires="-1 second")
        add_task(connection, standing.home, TaskStatus.IN_PROGRESS, 2, expires="1 minute")
        add_task(connection, standing.home, TaskStatus.PUBLISHED, 3)
        add_outbox(connection, OutboxStatus.SENDING, 1)
        add_outbox(connection, OutboxStatus.WAITING, 2)
    rest = "UPDATE user_agents SET status = 'SUSPENDED', health = 20, suspended_until = :until WHERE agent_id = "
    for number, until in enumerate((utc_now() - timedelta(seconds=1), utc_now() + timedelta(hours=1))):
        chosen = f"(SELECT agent_id FROM user_agents ORDER BY agent_id OFFSET {number} LIMIT 1)"
        change(database, rest + chosen, until=until)
    shelf = Shelf(database, "unended")
    shelf.listing(7)
    shelf.detail(7)
    shelf.options(7)
    shelf.swept()
    change(database, "UPDATE crawling_schedule_executions SET updated_at = now() - interval '2 minutes'")
    return standing, shelf


def test_nothing_is_found_where_nothing_is_stuck(database: Database, recovered: Pass) -> None:
    Shelf(database).crawl(1, 2)
    assert recovered() == Recovered()


def test_one_pass_sets_each_kind_free_and_a_second_one_finds_nothing(database: Database, recovered: Pass) -> None:
    standing, shelf = left_behind(database)

    assert recovered() == ONE_OF_EACH

    with database.reading() as connection:
        tasks = {
            row.item_no: row.status for row in connection.execute(text("SELECT item_no, status FROM crawler_tasks"))
        }
        agents = Counter(connection.execute(text("SELECT status FROM user_agents")).scalars())
        rested = connection.execute(text("SELECT count(*) FROM user_agents WHERE health = 70")).scalar()
        sent = connection.execute(text("SELECT DISTINCT status FROM product_outbox")).scalars().all()
    assert tasks == {1: "PUBLISHED", 2: "IN_PROGRESS", 3: "PUBLISHED", 7: "COMPLETED"}
    assert agents == {"AVAILABLE": 49, "SUSPENDED": 1}
    assert rested == 1
    assert sent == ["WAITING"]
    assert standing.scalar("SELECT status FROM crawling_schedule_executions WHERE seller_id = 'dmont'") == "RUNNING"
    assert shelf.rows("SELECT status FROM crawling_schedule_executions WHERE execution_id = :e") == [
        {"status": "COMPLETED"}
    ]
    assert recovered() == Recovered()


def test_a_crawl_is_ended_only_after_its_change_sets_are_written(database: Database, recovered: Pass) -> None:
    shelf = Shelf(database)
    shelf.listing(7)
    shelf.detail(7)
    shelf.options(7)
    shelf.swept()
    shelf.change("UPDATE crawling_schedule_executions SET updated_at = now() - interval '2 minutes'")

    assert recovered() == Recovered(executions=1)

    assert shelf.versions(7) == [(1, "CREATED")]
    assert_whole(database)


@pytest.mark.parametrize(
    "still",
    [
        "updated_at = now()",
        "sweep_status = 'PENDING'",
        "total_tasks = total_tasks + 1",
        "status = 'PAUSED'",
    ],
)
def test_a_crawl_that_is_not_over_is_left_alone(still: str, database: Database, recovered: Pass) -> None:
    shelf = Shelf(database)
    shelf.swept()
    shelf.change("UPDATE crawling_schedule_executions SET updated_at = now() - interval '2 minutes'")
    shelf.change(f"UPDATE crawling_schedule_executions SET {still}")
    assert recovered() == Recovered()


def test_a_crawl_that_a_run_works_on_is_that_runs_to_end(database: Database, recovered: Pass) -> None:
    left_behind(database)
    assert recovered("unended", "dmont") == Recovered(tasks=1, executions=0, events=1, agents=1)


def test_a_crawl_is_ended_without_what_drift_blocks(database: Database, make_settings: MakeSettings) -> None:
    _, shelf = left_behind(database)
    shelf.change("""UPDATE product_raw_data SET body = replace(body, '"stock"', '"coupon": 1, "stock"')""")
    settings = make_settings(drift_block="detail.ProductInfoModule.coupon")

    assert recover(database, settings, utc_now, busy=()) == ONE_OF_EACH

    assert shelf.versions(7) == []
    assert shelf.rows("SELECT source, error_code FROM product_raw_data WHERE status = 'FAILED'") == [
        {"source": "PRODUCT_DETAIL", "error_code": "EXTERNAL_BLOCKED_DRIFT"}
    ]


def test_a_schedule_change_whose_sender_is_gone_waits_again(database: Database, recovered: Pass) -> None:
    """Only the next relay of schedule changes took it up, whenever that came."""
    ground(database)
    change(
        database,
        """
        UPDATE scheduler_outbox SET status = 'SENDING', lease_owner = 'gone', lease_no = 1,
            lease_expires_at = now() - interval '1 second'
        """,
    )
    with database.reading() as connection:
        assert connection.execute(text("SELECT count(*) FROM scheduler_outbox")).scalar_one() == 1

    assert recovered() == Recovered(events=1)

    with database.reading() as connection:
        assert connection.execute(text("SELECT status, lease_owner FROM scheduler_outbox")).one() == ("WAITING", None)
