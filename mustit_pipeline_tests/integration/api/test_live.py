"""Live events: each stream sees every topic's newest state, one poller reads for all, and an ended token ends them."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Coroutine, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import Connection, event, text
from sqlalchemy.exc import OperationalError

from mustit_pipeline.access import tokens, users
from mustit_pipeline.access.tokens import LEEWAY, Identity
from mustit_pipeline.api import live
from mustit_pipeline.api.context import Ground
from mustit_pipeline.api.live import EndReason, Hub, Source, Topic
from mustit_pipeline.api.routes.executions import EXECUTIONS
from mustit_pipeline.domain.access import Role, UserName
from mustit_pipeline.domain.states import ExecutionStatus
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline_tests.conftest import free_port
from mustit_pipeline_tests.integration import rows
from mustit_pipeline_tests.integration.api.conftest import token
from mustit_pipeline_tests.integration.api.served import served
from mustit_pipeline_tests.integration.crawls import register

Event = tuple[str, dict[str, Any]]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "INTERVAL_SECONDS", 0.02)


@pytest.fixture
def identity(ground: Ground) -> Identity:
    given = token(ground, Role.VIEWER)
    with ground.database.reading() as connection:
        return tokens.verify(connection, ground.keys, given)


@pytest.fixture
def execution_id(database: Database) -> UUID:
    return rows.ground(database).home.execution_id


def complete(database: Database, tasks: int) -> None:
    """So many tasks have ended well."""
    change(database, f"total_tasks = 9, completed_tasks = {tasks}")


def change(database: Database, what: str) -> None:
    with database.transaction() as connection:
        connection.execute(text(f"UPDATE crawling_schedule_executions SET {what}"))


def run(work: Coroutine[Any, Any, None]) -> None:
    """On an event loop that gives up rather than hang."""

    async def limited() -> None:
        async with asyncio.timeout(30):
            await work

    asyncio.run(limited())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for happens in other threads and processes
        await asyncio.sleep(0.005)


class Statements:
    """The statements that a database is sent."""

    def __init__(self, database: Database) -> None:
        self.sent: list[str] = []
        event.listen(database.engine, "before_cursor_execute", self._record)

    def _record(self, _: object, __: object, statement: str, *___: object) -> None:
        self.sent.append(statement)

    def of(self, word: str) -> int:
        return sum(word in statement for statement in self.sent)


def test_one_look_serves_all_streams_without_a_thread_for_each_and_none_is_taken_without_a_listener(
    database: Database, identity: Identity
) -> None:
    sellers = [f"seller {number}" for number in range(20)]
    register(database, *sellers)
    with database.transaction() as connection:
        executions = [rows.add_execution(connection, ExecutionStatus.RUNNING, seller) for seller in sellers]
    hub, statements = Hub(database), Statements(database)

    async def watch() -> None:
        await asyncio.sleep(0.1)
        assert statements.sent == []
        with ExitStack() as stack:
            streams = [
                stack.enter_context(hub.subscribe(Topic(EXECUTIONS, executions[number % 20]), identity))
                for number in range(2_000)
            ]
            states = await asyncio.gather(*(anext(stream) for stream in streams))
            assert [UUID(state.execution_id) for state in states] == executions * 100
            before = threading.active_count()
            await until(lambda: statements.of("revoked_tokens") >= 5)
            assert threading.active_count() == before
            assert hub.streams == 2_000
        looks = statements.of("revoked_tokens")
        # Each look is one statement for the executions and then one for the tokens.
        assert statements.of("crawling_schedule_executions") <= looks + 1
        await asyncio.sleep(0.1)
        so_far = len(statements.sent)
        await asyncio.sleep(0.1)
        assert len(statements.sent) == so_far
        with hub.subscribe(Topic(EXECUTIONS, executions[0]), identity) as stream:
            assert (await anext(stream)).execution_id == str(executions[0])

    run(watch())


def test_a_stream_that_is_not_read_holds_no_other_up_and_finds_the_newest_state(
    database: Database, identity: Identity, execution_id: UUID
) -> None:
    async def watch() -> None:
        hub = Hub(database)
        topic = Topic(EXECUTIONS, execution_id)
        with hub.subscribe(topic, identity) as quick, hub.subscribe(topic, identity) as slow:
            for tasks in range(5):
                await asyncio.to_thread(complete, database, tasks)
                while (await anext(quick)).completed_tasks != tasks:
                    pass
            change(database, "status = 'COMPLETED', ended_at = now()")
            seen = [(state.completed_tasks, state.status) async for state in quick]
            assert seen == [(4, "COMPLETED")]
            assert [(state.completed_tasks, state.status) async for state in slow] == [(4, "COMPLETED")]
            assert quick.end_reason is slow.end_reason is EndReason.FINISHED

    run(watch())


def test_anything_that_one_statement_reads_can_be_watched(database: Database, identity: Identity) -> None:
    def count(connection: Connection, keys: Collection[str]) -> dict[str, int]:
        found = connection.execute(
            text("SELECT status, count(*) AS n FROM sellers WHERE status = ANY(:keys) GROUP BY 1"), {"keys": list(keys)}
        )
        return {row.status: row.n for row in found}

    async def watch() -> None:
        sellers = Source(count)
        with Hub(database).subscribe(Topic(sellers, "ACTIVE"), identity, first=0) as stream:
            assert await anext(stream) == 0
            await asyncio.to_thread(register, database, "a", "b")
            seen = 0
            while seen != 2:
                seen = await anext(stream)
            await asyncio.to_thread(register, database, "c")
            assert await anext(stream) == 3

    run(watch())


def test_streams_outlive_an_outage_of_the_database(database: Database, identity: Identity, execution_id: UUID) -> None:
    away = threading.Event()

    def fail(*_: object) -> None:
        if away.is_set():
            raise OperationalError("SELECT", {}, Exception("gone"))

    event.listen(database.engine, "before_cursor_execute", fail)
    statements = Statements(database)

    async def watch() -> None:
        with Hub(database).subscribe(Topic(EXECUTIONS, execution_id), identity) as stream:
            await anext(stream)
            away.set()
            tried = len(statements.sent)
            await asyncio.sleep(0.2)
            assert len(statements.sent) == tried
            away.clear()
            await asyncio.to_thread(complete, database, 7)
            assert (await anext(stream)).completed_tasks == 7

    run(watch())


def test_a_kind_of_thing_that_cannot_be_read_holds_up_no_other(
    database: Database, identity: Identity, execution_id: UUID
) -> None:
    def fail(connection: Connection, _: Collection[str]) -> dict[str, int]:
        connection.execute(text("SELECT nothing FROM nowhere"))
        return {}

    async def watch() -> None:
        hub = Hub(database)
        with (
            hub.subscribe(Topic(Source(fail), "x"), identity),
            hub.subscribe(Topic(EXECUTIONS, execution_id), identity) as stream,
        ):
            await anext(stream)
            await asyncio.to_thread(complete, database, 6)
            assert (await anext(stream)).completed_tasks == 6

    run(watch())


def log_out(database: Database, identity: Identity) -> None:
    with database.transaction() as connection:
        tokens.revoke(connection, identity)


def disable(database: Database, identity: Identity) -> None:
    users.disable(database, UserName(identity.name))


def change_role(database: Database, identity: Identity) -> None:
    users.change_role(database, UserName(identity.name), Role.ADMIN)


def delete(database: Database, identity: Identity) -> None:
    with database.transaction() as connection:
        connection.execute(text("DELETE FROM users WHERE user_name = :name"), {"name": identity.name})


@pytest.mark.parametrize("end", [log_out, disable, change_role, delete])
def test_a_stream_ends_with_its_token_and_shows_nothing_that_happens_after(
    database: Database,
    ground: Ground,
    identity: Identity,
    execution_id: UUID,
    end: Callable[[Database, Identity], None],
) -> None:
    with database.reading() as connection:
        other = tokens.verify(connection, ground.keys, token(ground, Role.VIEWER, "other"))
    by_cli = tokens.issue_for_cli(ground.keys, "root", Role.VIEWER, utc_now(), timedelta(hours=1))
    with database.reading() as connection:
        operator = tokens.verify(connection, ground.keys, by_cli.text)

    async def watch() -> None:
        hub, topic = Hub(database), Topic(EXECUTIONS, execution_id)
        with (
            hub.subscribe(topic, identity) as ended,
            hub.subscribe(topic, other) as going_on,
            hub.subscribe(topic, operator) as by_operator,
        ):
            for stream in (ended, going_on, by_operator):
                await anext(stream)
            await asyncio.to_thread(end, database, identity)
            await asyncio.to_thread(complete, database, 8)
            assert [state async for state in ended] == []
            assert ended.end_reason is EndReason.TOKEN_ENDED
            assert (await anext(going_on)).completed_tasks == 8
            assert (await anext(by_operator)).completed_tasks == 8

    run(watch())


def test_a_stream_ends_when_its_token_expires_even_while_the_database_is_away(
    database: Database, identity: Identity
) -> None:
    def fail(*_: object) -> dict[UUID, int]:
        raise OperationalError("SELECT", {}, Exception("gone"))

    async def watch() -> None:
        expired = replace(identity, expires_at=utc_now() - LEEWAY + timedelta(seconds=0.1))
        with Hub(database).subscribe(Topic(Source(fail), uuid4()), expired) as stream:
            assert [state async for state in stream] == []
            assert stream.end_reason is EndReason.TOKEN_ENDED

    run(watch())


def test_a_closed_hub_ends_its_streams_and_those_that_come_after(
    database: Database, identity: Identity, execution_id: UUID
) -> None:
    async def watch() -> None:
        hub, topic = Hub(database), Topic(EXECUTIONS, execution_id)
        with hub.subscribe(topic, identity) as early:
            hub.close()
            with hub.subscribe(topic, identity) as late:
                for stream in (early, late):
                    assert [state async for state in stream] == []
                    assert stream.end_reason is EndReason.SERVER_STOPS

    run(watch())


@contextmanager
def events(address: str, execution_id: UUID, given: str) -> Generator[Callable[[], Event | None]]:
    """The next event of a stream over HTTP, None where it has ended."""
    path = f"{address}/api/v1/executions/{execution_id}/events"
    with httpx.stream("GET", path, headers={"Authorization": f"Bearer {given}"}, timeout=30) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = response.iter_lines()

        def following() -> Event | None:
            name = ""
            for line in lines:
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                if line.startswith("data: "):
                    return name, json.loads(line.removeprefix("data: "))
            return None

        yield following


def test_a_client_follows_an_execution_to_its_end(
    app: FastAPI, ground: Ground, database: Database, execution_id: UUID
) -> None:
    given = token(ground, Role.VIEWER)
    with served(app) as address, events(address, execution_id, given) as following:
        first = following()
        assert first is not None
        assert (first[0], first[1]["status"], first[1]["completedTasks"]) == ("progress", "RUNNING", 0)
        complete(database, 4)
        assert (following() or first)[1]["completedTasks"] == 4
        change(database, "status = 'COMPLETED', ended_at = now()")
        assert (following() or first)[1]["status"] == "COMPLETED"
        end = {"executionId": str(execution_id), "reason": "FINISHED", "status": "COMPLETED"}
        assert following() == ("end", end)
        assert following() is None
        # One that has ended already says so at once.
        with events(address, execution_id, given) as again:
            assert (again() or first)[1]["status"] == "COMPLETED"
            assert again() == ("end", end)


def test_a_client_that_logs_out_or_leaves_is_watched_for_no_longer(
    app: FastAPI, ground: Ground, database: Database, execution_id: UUID
) -> None:
    given = token(ground, Role.VIEWER)
    hub: Hub = app.state.hub
    with served(app) as address:
        with events(address, execution_id, given) as following:
            assert following() is not None
            assert hub.streams == 1
        wait(lambda: hub.streams == 0)
        with events(address, execution_id, given) as following:
            assert following() is not None
            authorized = {"Authorization": f"Bearer {given}"}
            assert httpx.post(f"{address}/api/v1/auth/logout", headers=authorized).status_code == 204
            last = following()
            assert last is not None
            assert (last[0], last[1]["reason"]) == ("end", "TOKEN_ENDED")
            assert following() is None
        wait(lambda: hub.streams == 0)


def test_a_full_server_refuses_another_stream_and_nothing_else(
    app: FastAPI, ground: Ground, execution_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MOST_STREAMS", 1)
    given = token(ground, Role.VIEWER)
    path, authorized = f"/api/v1/executions/{execution_id}", {"Authorization": f"Bearer {given}"}
    with served(app) as address:
        with events(address, execution_id, given) as following:
            assert following() is not None
            refused = httpx.get(f"{address}{path}/events", headers=authorized)
            assert (refused.status_code, refused.json()["errorCode"]) == (429, "TOO_MANY_STREAMS")
            assert refused.headers["retry-after"] == "5"
            assert httpx.get(f"{address}{path}", headers=authorized).status_code == 200
        wait(lambda: app.state.hub.streams == 0)
        with events(address, execution_id, given) as following:
            assert following() is not None


def wait(condition: Callable[[], bool]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(30):
            await until(condition)

    asyncio.run(limited())


def test_a_server_that_is_asked_to_stop_ends_its_streams_first(
    ground: Ground, database_url: str, tmp_path: Path, execution_id: UUID
) -> None:
    given, port = token(ground, Role.VIEWER), free_port()
    settings = ground.settings
    environment = {
        **os.environ,
        "MUSTIT_HOME": str(tmp_path),
        "MUSTIT_DATABASE_URL": database_url,
        "MUSTIT_DAGSTER_DATABASE_URL": str(settings.dagster_database_url),
        "MUSTIT_TOKEN_KEY": str(settings.token_key.get_secret_value() if settings.token_key else ""),
        "MUSTIT_JWT_SECRET": str(settings.jwt_secret.get_secret_value() if settings.jwt_secret else ""),
        "MUSTIT_REDIS_URL": "off",
    }
    command = str(Path(sys.executable).parent / "mustit")
    with subprocess.Popen([command, "serve", "--port", str(port)], env=environment) as server:
        try:
            address = f"http://127.0.0.1:{port}"
            wait(lambda: server.poll() is not None or is_up(address))
            with events(address, execution_id, given) as following:
                assert following() is not None
                server.send_signal(signal.SIGTERM)
                last = following()
                assert last is not None
                assert (last[0], last[1]["reason"]) == ("end", "SERVER_STOPS")
                assert following() is None
            server.wait(30)
        finally:
            server.kill()


def is_up(address: str) -> bool:
    try:
        return httpx.get(f"{address}/health/live").status_code == 200
    except httpx.TransportError:
        return False
