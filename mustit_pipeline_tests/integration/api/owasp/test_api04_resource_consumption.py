"""API4 Unrestricted resource consumption: bodies, pages, paths, times and logins have their limits."""

import threading
import time

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import make_url, text

from mustit_pipeline import web
from mustit_pipeline.access import passwords
from mustit_pipeline.api.app import THREADS
from mustit_pipeline.api.context import Ground
from mustit_pipeline.foundation.database import Database, make_engine
from mustit_pipeline.web import create_web
from mustit_pipeline_tests.integration.api.owasp.operations import operations


def test_a_body_of_more_than_a_megabyte_is_refused_announced_or_not(admin: TestClient) -> None:
    large = b'{"sellerId":"' + b"x" * 2_000_000 + b'"}'
    announced = admin.post("/api/v1/sellers", content=large)
    streamed = admin.post("/api/v1/sellers", content=iter([large[:1_500_000], large[1_500_000:]]))
    assert (announced.status_code, streamed.status_code) == (413, 413)


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"a":' * 50_000, b"\xff\xfe", b"", b"1e999999", b'"\\ud800"'])
def test_a_body_that_is_made_to_hurt_is_just_wrong(admin: TestClient, body: bytes) -> None:
    answer = admin.post("/api/v1/sellers", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400, answer.text
    assert {one["field"] for one in answer.json()["errors"]} <= {"body"}


def test_a_body_that_does_not_say_that_it_is_json_is_refused_with_the_reason(admin: TestClient) -> None:
    answer = admin.post("/api/v1/sellers", content=b'{"sellerId": "x", "name": "x"}')
    assert answer.status_code == 400
    assert "application/json" in answer.json()["errors"][0]["message"]


def test_no_list_gives_more_than_a_hundred_entries_at_once(app: FastAPI, admin: TestClient) -> None:
    sized = [one for one in operations(app) if any(p["name"] == "size" for p in one.described.get("parameters", []))]
    assert sized
    for operation in sized:
        for size in ("101", "0", "-1", "9" * 30, "x"):
            answer = admin.get(operation.url, params={"size": size})
            assert answer.status_code == 400, f"{operation} with {size}: {answer.status_code}"


def test_every_list_that_can_grow_has_a_size(app: FastAPI) -> None:
    """An answer with `content` is a page."""
    schemas = app.openapi()["components"]["schemas"]
    for operation in operations(app):
        answer = operation.described["responses"].get("200", {}).get("content", {}).get("application/json", {})
        name = answer.get("schema", {}).get("$ref", "").rpartition("/")[2]
        fields = schemas.get(name, {}).get("properties", {})
        if "content" in fields:
            assert "size" in {one["name"] for one in operation.described["parameters"]}, str(operation)


def test_a_path_or_query_without_an_end_is_refused(admin: TestClient) -> None:
    assert admin.get("/api/v1/sellers/" + "x" * 10_000).status_code == 400
    assert admin.get("/api/v1/sellers", params={"q": "x" * 10_000}).status_code == 400


def test_a_statement_that_takes_too_long_is_ended_and_said_so(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "STATEMENT_SECONDS", 0.2)
    slow = web.open_lazily(ground.settings)
    app = create_web(Ground(ground.settings, slow, ground.keys))

    @app.get("/health/slow")
    def sleep() -> None:
        with slow.reading() as connection:
            connection.execute(text("SELECT pg_sleep(5)"))

    with TestClient(app, raise_server_exceptions=False) as client:
        answer = client.get("/health/slow")
    slow.close()
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")


def test_a_crowd_that_waits_for_connections_is_told_to_come_back(ground: Ground, database_url: str) -> None:
    narrow = Database(make_engine(make_url(database_url), connections=1, max_connections=1, statement_seconds=0.3))
    app = create_web(Ground(ground.settings, narrow, ground.keys))
    with TestClient(app, raise_server_exceptions=False) as client, narrow.reading():
        statuses: list[int] = []
        asking = [
            threading.Thread(target=lambda: statuses.append(client.get("/health/ready").status_code)) for _ in range(8)
        ]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
    narrow.close()
    assert statuses == [503] * 8


def test_a_crowd_of_logins_leaves_threads_for_all_other_requests(app: FastAPI, anyone: TestClient) -> None:
    """From many addresses, so that none of them is slowed: each that waits for its hash keeps a thread."""
    statuses: list[int] = []

    def log_in(number: int) -> None:
        client = TestClient(app, client=(f"203.0.113.{number}", 1))
        client.portal = anyone.portal
        login = {"username": f"user{number}", "password": "a wrong one"}
        statuses.append(client.post("/api/v1/auth/login", json=login).status_code)

    crowd = [threading.Thread(target=log_in, args=(number,)) for number in range(THREADS + 8)]
    sent_away = len(crowd) - passwords.MOST_WAITING
    with passwords.take_room(), passwords.take_room():
        for thread in crowd:
            thread.start()
        deadline = time.monotonic() + passwords.PATIENCE_SECONDS / 2
        while len(statuses) < sent_away and time.monotonic() < deadline:
            time.sleep(0.01)
        assert statuses == [503] * sent_away
        assert anyone.get("/health/ready").status_code == 200
    for thread in crowd:
        thread.join()
    assert statuses.count(401) == passwords.MOST_WAITING
