"""States that are alerts for as long as they last."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import text

from mustit_pipeline.delivery.sql import breakers
from mustit_pipeline.delivery.sql.breakers import PRODUCT_SERVER
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.monitoring.alerting import observe
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.monitoring.standing import DAY, HOUR, NOW, Standing

MINUTE = timedelta(minutes=1)


def hold_deletions(standing: Standing) -> None:
    standing.write(
        """INSERT INTO deletion_holds (seller_id, execution_id, status, live_count, item_nos)
           VALUES ('dmont', gen_random_uuid(), 'OPEN', 10, '{1,2,3}')"""
    )


def hold_changes(standing: Standing) -> None:
    standing.write(
        """INSERT INTO change_holds (seller_id, status, jumped, emptied, suspicious, looked_at, examples)
           VALUES ('dmont', 'OPEN', 30, 0, 30, 90, '{1}')"""
    )


def miss_a_page(standing: Standing) -> None:
    standing.crawl("dmont", HOUR, sweep_status="INCOMPLETE")


def open_breaker(standing: Standing) -> None:
    standing.write("UPDATE pool_state SET breaker_open_until = :at", at=NOW + HOUR)


def storm(standing: Standing) -> None:
    standing.write("UPDATE pool_state SET paused_until = :at", at=NOW - MINUTE)


def lose_the_product_server(standing: Standing) -> None:
    with standing.database.transaction() as connection:
        breakers.record_failures(connection, PRODUCT_SERVER, failures=5, threshold=5, cooldown=30)


def fail_the_schedule(standing: Standing) -> None:
    standing.write("UPDATE crawling_schedules SET status = 'FAILED'")


def park_messages(standing: Standing) -> None:
    for reason in ("NOT_JSON", "NOT_JSON", "UNKNOWN_SELLER"):
        standing.write(
            """INSERT INTO trigger_messages (queue, message_id, reason, body, received_at)
               VALUES ('q', gen_random_uuid(), :reason, 'x', now())""",
            reason=reason,
        )


STATES: dict[Callable[[Standing], None], tuple[str, str, str]] = {
    hold_deletions: ("HELD_DELETIONS", "3 deletions of dmont", "UPDATE deletion_holds SET status = 'REJECTED'"),
    hold_changes: ("HELD_CHANGES", "Changes of dmont", "UPDATE change_holds SET status = 'CLOSED'"),
    miss_a_page: (
        "INCOMPLETE_SWEEP",
        "The listing of dmont",
        "UPDATE crawling_schedule_executions SET sweep_status = 'COMPLETE'",
    ),
    open_breaker: ("BREAKER_OPEN", "Too few user agents", "UPDATE pool_state SET breaker_open_until = NULL"),
    storm: ("THROTTLED", "The marketplace throttles us", "UPDATE pool_state SET paused_until = NULL"),
    lose_the_product_server: ("BREAKER_OPEN", "The product server", "DELETE FROM circuit_breakers"),
    park_messages: (
        "PARKED_MESSAGES",
        "3 messages that ask for crawls",
        "UPDATE trigger_messages SET dismissed_at = now()",
    ),
    fail_the_schedule: ("SCHEDULE_FAILED", "The schedule of dmont", "UPDATE crawling_schedules SET status = 'ACTIVE'"),
}


@pytest.mark.parametrize("begin", STATES, ids=lambda begin: begin.__name__)
def test_a_state_is_one_alert_until_it_ends(
    database: Database, make_settings: MakeSettings, begin: Callable[[Standing], None]
) -> None:
    standing = Standing(database, make_settings(alert_calm_seconds=0))
    standing.sellers("dmont")
    kind, title, end = STATES[begin]
    observe(database, standing.settings, NOW - DAY)
    begin(standing)

    opened = [observe(database, standing.settings, NOW + n * MINUTE).opened for n in range(3)]

    assert opened == [1, 0, 0]
    with database.reading() as connection:
        [row] = connection.execute(text("SELECT kind, title, ended_at FROM alerts")).all()
    assert (row.kind, row.ended_at) == (kind, None)
    assert row.title.startswith(title)
    standing.write(end)
    assert observe(database, standing.settings, NOW + HOUR).ended == 1


def test_a_storm_of_a_while_ago_is_over(database: Database, make_settings: MakeSettings) -> None:
    standing = Standing(database, make_settings())
    standing.write("UPDATE pool_state SET paused_until = :at", at=NOW - 6 * MINUTE)

    assert observe(database, standing.settings, NOW).opened == 0
