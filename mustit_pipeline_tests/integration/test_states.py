"""State changes of executions, sellers, bodies and outbox rows in SQL, against the domain's own tables."""

import re
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from itertools import product
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from mustit_pipeline.agents import judgement, roster
from mustit_pipeline.agents.judgement import Call429
from mustit_pipeline.agents.sql import agents
from mustit_pipeline.catalog.sql import raw
from mustit_pipeline.catalog.sql.raw import RawFailure
from mustit_pipeline.crawling import steering
from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.planning import PRODUCT_TYPES
from mustit_pipeline.crawling.sql import tables
from mustit_pipeline.crawling.steering import deactivate_seller
from mustit_pipeline.delivery.sql.settling import settle
from mustit_pipeline.domain.errors import DomainError
from mustit_pipeline.domain.execution import OPEN_STATES
from mustit_pipeline.domain.outbox import ProductOutbox
from mustit_pipeline.domain.product import Product
from mustit_pipeline.domain.states import (
    AGENT,
    EXECUTION,
    PRODUCT_OUTBOX,
    RAW,
    SCHEDULE,
    SELLER,
    TASK,
    AgentStatus,
    ExecutionStatus,
    LifeCycle,
    OutboxStatus,
    ProductEventType,
    RawStatus,
    ScheduleStatus,
    SellerStatus,
)
from mustit_pipeline.domain.values import CrawlingInterval, ExecutionId, ItemNo, OutboxId, ProductId, SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.outbox.sql import outbox
from mustit_pipeline.outbox.sql.outbox import ClaimedEvent, Settlement
from mustit_pipeline.sellers import registry
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration import rows
from mustit_pipeline_tests.integration.rows import add_outbox, add_raw, ground

NOW = utc_now()


@pytest.mark.parametrize(
    ("move", "act"),
    [
        ("pause", steering.pause),
        ("resume", steering.resume),
        ("cancel", lambda database, id: steering.cancel(database, id, NOW)),
        ("fail", lambda database, id: steering.give_up(database, id, "CODE", "no plan", NOW)),
        ("complete", lambda database, id: steering.complete_if_done(database, id, NOW)),
    ],
)
def test_an_execution_makes_exactly_the_moves_that_the_domain_allows(
    database: Database, move: str, act: Callable[[Database, ExecutionId], object]
) -> None:
    execution_id = ExecutionId(ground(database).home.execution_id)
    put = text("""
        UPDATE crawling_schedule_executions SET status = :status, sweep_status = 'COMPLETE', ended_at = NULL
    """)
    for status in ExecutionStatus:
        with database.transaction() as connection:
            connection.execute(put, {"status": status.value})
        allowed = status in EXECUTION.sources(move)
        with nullcontext() if allowed else suppress(DomainError):
            act(database, execution_id)
        stored = steering.find(database, execution_id).execution
        assert stored.status is (EXECUTION.target(move) if allowed else status)
        assert (stored.ended_at is not None) == (allowed and move in ("cancel", "fail", "complete"))


def test_an_execution_is_started_by_its_plan_from_exactly_the_state_that_the_domain_allows(
    database: Database, make_settings: MakeSettings
) -> None:
    execution_id = ExecutionId(ground(database).home.execution_id)
    put = text("UPDATE crawling_schedule_executions SET status = :status, started_at = NULL")
    for status in ExecutionStatus:
        with database.transaction() as connection:
            connection.execute(put, {"status": status.value})
        Crawl(database, make_settings(), steering.find(database, execution_id)).plan_known_products(PRODUCT_TYPES)
        stored = steering.find(database, execution_id).execution
        allowed = status in EXECUTION.sources("start")
        assert stored.status is (EXECUTION.target("start") if allowed else status)
        assert (stored.started_at is not None) == allowed


AGENT_MOVES: dict[str, Callable[[Any, Any, UUID], object]] = {
    "block": lambda connection, settings, agent_id: roster.block(connection, agent_id),
    "unblock": roster.unblock,
    "recover": lambda connection, settings, agent_id: roster.recover_suspended(connection, settings, utc_now()),
    "suspend": lambda connection, settings, agent_id: judgement.throttle(
        connection, settings, agent_id, Call429(time.monotonic(), None, "/item/1/detail/top")
    ),
}


@pytest.mark.parametrize("move", AGENT_MOVES)
def test_an_agent_makes_exactly_the_moves_that_the_domain_allows(
    database: Database, make_settings: MakeSettings, move: str
) -> None:
    assert AGENT_MOVES.keys() == AGENT.table.keys()
    settings = make_settings()
    put = text("""
        UPDATE user_agents SET status = :status,
               suspended_until = CASE WHEN :status = 'SUSPENDED' THEN now() - interval '1 minute' END
        WHERE agent_id = :id
    """)
    for status in AgentStatus:
        with database.transaction() as connection:
            agent_id = agents.read_agents(connection)[0].agent_id
            connection.execute(put, {"status": status.value, "id": agent_id})
        allowed = status in AGENT.sources(move)
        with nullcontext() if allowed else suppress(DomainError), database.transaction() as connection:
            AGENT_MOVES[move](connection, settings, agent_id)
        with database.reading() as connection:
            stored = agents.read_agent(connection, agent_id)
        assert stored.status is (AGENT.target(move) if allowed else status)
        assert (stored.suspended_until is not None) == (stored.status is AgentStatus.SUSPENDED)


def test_a_seller_and_its_schedule_move_together_or_not_at_all(database: Database) -> None:
    ground(database, ExecutionStatus.COMPLETED)
    seller_id = SellerId(rows.SELLER)
    moves: dict[str, Callable[[], object]] = {
        "activate": lambda: registry.activate(database, seller_id, NOW),
        "deactivate": lambda: deactivate_seller(database, seller_id, NOW),
        "change_interval": lambda: registry.change_interval(database, seller_id, CrawlingInterval.hours(6), NOW),
    }
    for status, schedule, move in product(SellerStatus, ScheduleStatus, moves):
        with database.transaction() as connection:
            connection.execute(text("UPDATE sellers SET status = :status"), {"status": status.value})
            connection.execute(text("UPDATE crawling_schedules SET status = :status"), {"status": schedule.value})
            connection.execute(text("DELETE FROM scheduler_outbox"))
        seller_may = move not in SELLER.table or status in SELLER.sources(move)
        allowed = seller_may and schedule in SCHEDULE.sources(move)
        with nullcontext() if allowed else pytest.raises(DomainError):
            moves[move]()
        query = text("""
            SELECT s.status, c.status, (SELECT count(*) FROM scheduler_outbox) FROM sellers s
            JOIN crawling_schedules c USING (seller_id)
        """)
        with database.reading() as connection:
            stored = tuple(connection.execute(query).one())
        if not allowed:
            assert stored == (status, schedule, 0), move
        else:
            seller_after = SELLER.target(move) if move in SELLER.table else status
            assert stored == (seller_after, SCHEDULE.target(move), 1), move


@pytest.mark.parametrize(
    ("move", "act"),
    [
        ("process", raw.mark_processed),
        ("fail", lambda connection, ids: raw.mark_failed(connection, [RawFailure(i, "CODE", "why") for i in ids])),
    ],
)
def test_a_body_makes_exactly_the_moves_that_the_domain_allows(
    database: Database, move: str, act: Callable[[Any, list[int]], object]
) -> None:
    standing = ground(database)
    with database.transaction() as connection:
        before = {add_raw(connection, status, number): status for number, status in enumerate(RawStatus, 1)}
        act(connection, list(before))
    assert standing.statuses("product_raw_data", "raw_id") == moved(RAW, before, move)


def moved(machine: Any, before: dict[Any, Any], move: str) -> dict[Any, str]:
    sources, target = machine.sources(move), machine.target(move)
    return {key: (target if status in sources else status).value for key, status in before.items()}


def test_a_relay_claims_exactly_the_states_that_may_be_sent(database: Database) -> None:
    standing = ground(database)
    with database.transaction() as connection:
        before = {add_outbox(connection, status, number): status for number, status in enumerate(OutboxStatus, 1)}
        claimed, superseded = outbox.claim(connection, owner="me", limit=100, lease_seconds=30)
    assert standing.statuses("product_outbox", "outbox_id") == moved(PRODUCT_OUTBOX, before, "send")
    assert (len(claimed), superseded) == (len(PRODUCT_OUTBOX.sources("send")), 0)


def test_ownerless_rows_wait_again_from_exactly_the_state_that_has_owners(database: Database) -> None:
    standing = ground(database)
    with database.transaction() as connection:
        before = {add_outbox(connection, status, number): status for number, status in enumerate(OutboxStatus, 1)}
        outbox.release_expired(connection)
    assert standing.statuses("product_outbox", "outbox_id") == moved(PRODUCT_OUTBOX, before, "release")


def test_a_newer_version_supersedes_exactly_the_states_that_are_not_being_sent(database: Database) -> None:
    standing = ground(database)
    with database.transaction() as connection:
        before = {add_outbox(connection, status, number): status for number, status in enumerate(OutboxStatus, 1)}
        items = [
            Product(id=ProductId.new(), seller_id=SellerId(rows.SELLER), item_no=ItemNo(number), version=2)
            for number in range(1, len(before) + 1)
        ]
        outbox.enqueue(connection, [ProductOutbox.announcing(one, LifeCycle.UPDATED, NOW) for one in items])
    after = standing.statuses("product_outbox", "outbox_id")
    assert {key: after[key] for key in before} == moved(PRODUCT_OUTBOX, before, "supersede")
    named = standing.scalar("SELECT count(*) FROM product_outbox WHERE superseded_by IS NOT NULL")
    assert named == len(PRODUCT_OUTBOX.sources("supersede"))


def test_a_newest_version_is_superseded_by_nothing(database: Database) -> None:
    standing = ground(database)
    with database.transaction() as connection:
        before = {add_outbox(connection, status, number): status for number, status in enumerate(OutboxStatus, 1)}
        assert outbox.supersede(connection, [(rows.SELLER, number) for number in range(1, len(before) + 1)]) == set()
    assert standing.statuses("product_outbox", "outbox_id") == {key: status.value for key, status in before.items()}


@pytest.mark.parametrize("move", ["complete", "fail"])
def test_a_settled_row_moves_only_from_the_state_that_the_domain_allows(database: Database, move: str) -> None:
    standing = ground(database)
    with database.transaction() as connection:
        before = {add_outbox(connection, status, number): status for number, status in enumerate(OutboxStatus, 1)}
        settlements = [_settlement(key, number, move) for number, key in enumerate(before, 1)]
        settle(connection, settlements)
    assert standing.statuses("product_outbox", "outbox_id") == moved(PRODUCT_OUTBOX, before, move)


def _settlement(outbox_id: UUID, item_no: int, move: str) -> Settlement:
    row = ProductOutbox(
        id=OutboxId(outbox_id),
        created_at=NOW,
        status=OutboxStatus.SENDING,
        seller_id=SellerId(rows.SELLER),
        item_no=ItemNo(item_no),
        version=1,
        event_type=ProductEventType.PRODUCT_UPDATED,
    )
    if move == "complete":
        row.complete(NOW)
    else:
        row.fail("refused", permanent=True)
    fields: dict[str, Any] = dict.fromkeys(ClaimedEvent.__struct_fields__)
    return Settlement(ClaimedEvent(**(fields | {"row_id": outbox_id, "lease_no": 1})), None, row)


def test_the_conditions_of_partial_indexes_name_the_states_of_the_domain() -> None:
    def named(condition: str) -> set[str]:
        return set(re.findall(r"'(\w+)'", condition))

    assert named(tables.OPEN_EXECUTION) == {state.value for state in OPEN_STATES}
    assert named(tables.CLAIMABLE_TASK) == {state.value for state in TASK.sources("start")}
    assert named(tables.WAITING_TASK) == {state.value for state in TASK.sources("publish")}
