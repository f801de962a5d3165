"""Nothing stops the event loop, which all requests of a process share: no wait for the database, and no long search."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from sqlalchemy import event

from mustit_pipeline.access import users
from mustit_pipeline.access.console_sessions import open_session
from mustit_pipeline.api.context import Ground
from mustit_pipeline.console.pages import PAGES
from mustit_pipeline.domain.access import Role, Scope, UserName
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline_tests.conftest import JWT_SECRET, TOKEN_KEY, dagster_beside
from mustit_pipeline_tests.integration.api.conftest import MakeClient
from mustit_pipeline_tests.integration.api.owasp.operations import PLACES, operations
from mustit_pipeline_tests.integration.crawls import register

STATEMENTS = ("engine_connect", "before_cursor_execute", "commit", "rollback")


class Watch:
    """Where the database was asked: in threads, or on an event loop."""

    def __init__(self) -> None:
        self.in_threads = 0
        self.on_the_loop: list[str] = []

    def see(self, what: str) -> None:
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            self.on_the_loop.append(what)
            return
        self.in_threads += 1


@pytest.fixture
def watch(ground: Ground) -> Generator[Watch]:
    seen = Watch()
    listeners: list[tuple[str, Any]] = []
    for name in STATEMENTS:

        def listener(*given: Any, name: str = name) -> None:
            seen.see(f"{name}: {str(given[2])[:200] if name == 'before_cursor_execute' else ''}")

        event.listen(ground.database.engine, name, listener)
        listeners.append((name, listener))
    yield seen
    for name, listener in listeners:
        event.remove(ground.database.engine, name, listener)


def test_every_route_asks_the_database_in_a_thread(
    app: FastAPI, ground: Ground, admin: TestClient, with_key: MakeClient, watch: Watch
) -> None:
    register(ground.database, "no-such-seller")
    machine = {Scope.TRIGGER: with_key(Scope.TRIGGER), Scope.METRICS: with_key(Scope.METRICS)}
    for operation in operations(app):
        # They are asked at the end, with what they need.
        if operation.path.startswith("/api/v1/auth"):
            continue
        client = admin
        if operation.path.startswith(("/api/internal", "/metrics")):
            client = machine[Scope.METRICS if operation.path == "/metrics" else Scope.TRIGGER]
        before = watch.in_threads
        body = {"sellerId": "no-such-seller"} if operation.path.startswith("/api/internal") else {}
        client.request(operation.method, operation.url, json=body if operation.takes_body else None)
        assert watch.on_the_loop == [], str(operation)
        assert watch.in_threads > before or operation.path == "/health/live", str(operation)
    admin.post("/api/v1/auth/login", json={"username": "kim", "password": "x"})
    admin.post("/api/v1/auth/logout")
    assert watch.on_the_loop == []


def test_every_page_asks_the_database_in_a_thread(ground: Ground, anyone: TestClient, watch: Watch) -> None:
    user = users.add(ground.database, UserName("kim"), Role.ADMIN, None)
    anyone.cookies.set("mustit_session", open_session(ground.keys, user, utc_now()).text)
    routes = [route for router in PAGES for route in router.routes if isinstance(route, APIRoute)]
    asked = 0
    for route in routes:
        if "/live" in route.path or route.path.endswith("/events"):
            continue
        url = re.sub(r"{(\w+)(?::\w+)?}", lambda place: PLACES.get(place[1], PLACES["id"]), route.path)
        for method in route.methods or ():
            anyone.request(method, url, follow_redirects=False)
            asked += 1
            assert watch.on_the_loop == [], f"{method} {route.path}"
    assert asked > 30
    assert watch.in_threads > asked


def test_the_watch_sees_a_statement_on_the_loop(ground: Ground, watch: Watch) -> None:
    async def careless() -> None:
        with ground.database.reading() as connection:
            connection.exec_driver_sql("SELECT 1")

    asyncio.run(careless())
    assert any("SELECT 1" in one for one in watch.on_the_loop)


STARTED = """
import gc
from mustit_pipeline import web
web.create()
print(gc.get_freeze_count(), len(gc.get_objects()))
"""


def test_what_a_server_process_starts_with_is_not_searched_for_cycles_again(database_url: str, tmp_path: Path) -> None:
    """Under load all of it was searched every few seconds, and no request went on for a fifth of one."""
    environment = os.environ | {
        "MUSTIT_HOME": str(tmp_path),
        "MUSTIT_DATABASE_URL": database_url,
        "MUSTIT_DAGSTER_DATABASE_URL": dagster_beside(database_url),
        "MUSTIT_TOKEN_KEY": TOKEN_KEY,
        "MUSTIT_JWT_SECRET": JWT_SECRET,
    }
    done = subprocess.run([sys.executable, "-c", STARTED], env=environment, check=True, capture_output=True, text=True)
    kept, searched = map(int, done.stdout.split())
    assert searched < kept / 100
