"""What people do with the pool: load, list, block, unblock, recover, look."""

import asyncio
import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from pydantic import SecretStr
from sqlalchemy import text

from mustit_pipeline.agents import roster
from mustit_pipeline.agents.pool import WaitReason
from mustit_pipeline.agents.session_cache import SessionCache
from mustit_pipeline.agents.sql import agents
from mustit_pipeline.agents.sql import tables as agent_tables
from mustit_pipeline.domain.errors import Conflict, NotFound
from mustit_pipeline.domain.states import AgentStatus
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.marketplace.client import MarketplaceClient
from mustit_pipeline.marketplace.session import Session
from mustit_pipeline_tests.integration.agents.servers import Marketplace, empty_pool, settings_of
from mustit_pipeline_tests.integration.agents.visits import (
    booking_of,
    bookings,
    no_throttling,
    opened,
    refuse,
    run,
    wait_of,
)

OLD, NEW = (base64.b64encode(bytes([fill]) * 32).decode() for fill in (1, 2))


def test_the_migration_makes_the_tables_that_the_code_knows(database: Database) -> None:
    with database.reading() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        differences = compare_metadata(context, agent_tables.metadata)
    assert [d for d in differences if any(name in repr(d) for name in ("user_agents", "agent_", "pool_"))] == []


def test_an_admin_ends_a_pause_that_the_host_asked_for_and_the_next_one_starts_small(
    database: Database, tmp_path: Path
) -> None:
    """A storm with a Retry-After of a day paused every crawl for a day, and no command ended it."""

    async def scenario() -> None:
        async with opened(tmp_path, database) as (pool, _):
            await refuse(pool, await bookings(pool, 5), 86_400.0)
            assert (await wait_of(pool, WaitReason.HOST_PAUSED)).seconds > 86_000
            with database.transaction() as connection:
                assert roster.end_pause(connection) is not None
                assert roster.end_pause(connection) is None
            await pool.record_429(await booking_of(pool), None, url="/listing", control=True)
            assert 1.0 < (await wait_of(pool, WaitReason.HOST_PAUSED)).seconds <= 4.0

    run(scenario)


def test_the_built_in_agents_are_added_once(database: Database) -> None:
    empty_pool(database, 0)
    with database.transaction() as connection:
        assert (roster.ensure_builtin(connection), roster.ensure_builtin(connection)) == (50, 0)
        assert {(row.status, row.health) for row in roster.list_agents(connection)} == {(AgentStatus.AVAILABLE, 100)}


def test_loading_says_what_was_new_known_and_refused(database: Database) -> None:
    lines = ["# comment", "", "  new-agent  ", "new-agent", "agent-000", "bad\tagent", "헤더", "x" * 1001]
    with database.transaction() as connection:
        report = roster.load(connection, lines)
    assert (report.added, report.known) == (1, 2)
    assert [line for line, _ in report.rejected] == [6, 7, 8]


def test_an_admin_blocks_and_unblocks(database: Database) -> None:
    settings = settings_of()
    with database.transaction() as connection:
        agent_id = roster.list_agents(connection)[0].agent_id
        blocked = roster.block(connection, agent_id)
        assert (blocked.status, blocked.reason) == (AgentStatus.BLOCKED, "blocked by an admin")
        with pytest.raises(Conflict):
            roster.block(connection, agent_id)
        back = roster.unblock(connection, settings, agent_id)
        assert (back.status, back.health, back.reason) == (AgentStatus.AVAILABLE, 70, None)
        with pytest.raises(Conflict):
            roster.unblock(connection, settings, agent_id)
        with pytest.raises(NotFound):
            roster.block(connection, uuid4())


def suspend(database: Database, name: str, until: datetime) -> None:
    with database.transaction() as connection:
        connection.execute(
            text("UPDATE user_agents SET status = 'SUSPENDED', suspended_until = :until, health = 10"
                 " WHERE user_agent = :name"),
            {"until": until, "name": name},
        )  # fmt: skip


def test_only_the_rested_are_recovered_and_never_the_blocked(database: Database) -> None:
    now = datetime.now(UTC)
    suspend(database, "agent-000", now)
    suspend(database, "agent-001", now + timedelta(seconds=1))
    with database.transaction() as connection:
        blocked = roster.list_agents(connection)[2]
        roster.block(connection, blocked.agent_id)
        assert roster.recover_suspended(connection, settings_of(), now) == 1
        found = {row.user_agent: (row.status, row.health) for row in roster.list_agents(connection)}
    assert found["agent-000"] == (AgentStatus.AVAILABLE, 70)
    assert found["agent-001"] == (AgentStatus.SUSPENDED, 10)
    assert found["agent-002"][0] is AgentStatus.BLOCKED


def test_the_status_counts_what_it_sees(database: Database, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    suspend(database, "agent-000", now + timedelta(hours=1))
    with database.transaction() as connection:
        roster.block(connection, roster.list_agents(connection)[1].agent_id)
        connection.execute(
            text("UPDATE pool_state SET breaker_open_until = :soon, paused_until = :soon"),
            {"soon": now + timedelta(minutes=5)},
        )
        status = roster.pool_status(connection, settings_of(home=tmp_path), now)
    assert (status.total, status.available, status.suspended, status.blocked) == (6, 4, 1, 1)
    assert (status.circuit, status.host_paused_until) == ("open", now + timedelta(minutes=5))
    assert status.next_recovery_at == now + timedelta(hours=1)
    assert status.next_free_at is not None


def test_a_rotated_key_reseals_what_it_opens_and_a_lost_key_means_a_new_token(
    database: Database, tmp_path: Path
) -> None:
    async def obtain(key: str) -> tuple[Session, int]:
        async with Marketplace() as server:
            settings = settings_of(home=tmp_path, base_url=server.url, token_key=SecretStr(key))
            async with MarketplaceClient(settings) as client:
                session = await SessionCache(settings, database, client, no_throttling).obtain(
                    agent.agent_id, agent.user_agent
                )
                assert isinstance(session, Session)
                return session, len(server.tokens)

    with database.reading() as connection:
        agent = agents.read_agents(connection)[0]
    first, _ = asyncio.run(obtain(f"old:{OLD}"))
    rotated, calls = asyncio.run(obtain(f"new:{NEW},old:{OLD}"))
    assert (rotated, calls) == (first, 0)
    # The old key may go now: the session was sealed again with the new one.
    kept, calls = asyncio.run(obtain(f"new:{NEW}"))
    assert (kept, calls) == (first, 0)
    _, calls = asyncio.run(obtain(f"other:{OLD}"))
    assert calls == 1
