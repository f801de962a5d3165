"""Executions over HTTP: listed by cursor, shown with their outlook, paused, resumed and cancelled."""

from uuid import uuid4

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from mustit_pipeline.domain.states import ExecutionStatus, TaskStatus
from mustit_pipeline.foundation.database import Database
from mustit_pipeline_tests.integration.api.test_crawls import entries
from mustit_pipeline_tests.integration.crawls import register
from mustit_pipeline_tests.integration.rows import SELLER, add_execution, add_task, ground

BASE = "/api/v1/executions"


def ids(client: TestClient, size: int, **wanted: str) -> list[str]:
    """All executions that a client finds, page by page."""
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = client.get(
            BASE, params={"size": size, **wanted, **({} if cursor is None else {"cursor": cursor})}
        ).json()
        found += [row["executionId"] for row in page["content"]]
        cursor = page["nextCursor"]
        if cursor is None:
            return found
        assert len(page["content"]) == size


def test_pages_together_have_each_execution_once_and_newest_first(viewer: TestClient, database: Database) -> None:
    register(database, "a", "b")
    with database.transaction() as connection:
        made: dict[str, list[str]] = {"a": [], "b": []}
        for number in range(12):
            seller = "ab"[number % 2]
            status = ExecutionStatus.FAILED if number % 3 == 0 else ExecutionStatus.COMPLETED
            made[seller].append(str(add_execution(connection, status, seller)))
        still_open = str(add_execution(connection, ExecutionStatus.RUNNING, "a"))
        # Several of them in the same microsecond: the cursor must neither lose nor repeat any.
        connection.execute(text("UPDATE crawling_schedule_executions SET created_at = now()"))
        connection.execute(
            text(
                "UPDATE crawling_schedule_executions SET created_at = now() + interval '1 s' WHERE execution_id = :id"
            ),
            {"id": made["b"][0]},
        )
    everything = ids(viewer, 5)
    assert everything[0] == made["b"][0]
    assert sorted(everything) == sorted([*made["a"], *made["b"], still_open])
    assert sorted(ids(viewer, 2, sellerId="b")) == sorted(made["b"])
    assert sorted(ids(viewer, 2, status="FAILED")) == sorted([*made["a"][::3], *made["b"][1::3]])
    assert sorted(ids(viewer, 1, status="FAILED", sellerId="a")) == sorted(made["a"][::3])
    assert ids(viewer, 1, status="RUNNING") == [still_open]
    assert ids(viewer, 1, status="PAUSED") == []


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ({"sellerId": "unknown"}, 404, "NOT_FOUND_SELLER"),
        ({"status": "ASLEEP"}, 400, "VALIDATION_REQUEST"),
        ({"size": 101}, 400, "VALIDATION_REQUEST"),
        ({"cursor": "x"}, 400, "VALIDATION_CURSOR"),
        ({"cursor": "WyJ4Il0"}, 400, "VALIDATION_CURSOR"),
    ],
)
def test_a_list_that_cannot_be_read_is_refused(
    viewer: TestClient, query: dict[str, object], status: int, code: str
) -> None:
    refused = viewer.get(BASE, params=query)  # pyright: ignore[reportArgumentType]
    assert (refused.status_code, refused.json()["errorCode"]) == (status, code)


def test_an_execution_is_found_by_its_first_digits_and_shown_with_its_outlook(
    viewer: TestClient, database: Database
) -> None:
    rows = ground(database)
    with database.transaction() as connection:
        for item, status in enumerate([TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.PUBLISHED]):
            add_task(connection, rows.home, status, item)
        connection.execute(text("UPDATE crawling_schedule_executions SET started_at = now(), listed_count = 3"))
    whole = viewer.get(f"{BASE}/{rows.home.execution_id}").json()
    assert viewer.get(f"{BASE}/{str(rows.home.execution_id)[:8]}").json()["executionId"] == whole["executionId"]
    assert (whole["sellerId"], whole["status"], whole["progressRate"], whole["successRate"]) == (
        SELLER,
        "RUNNING",
        66.67,
        50.0,
    )
    [options] = whole["tasks"]
    assert (options["taskType"], options["waiting"], options["completed"], options["failed"]) == (
        "PRODUCT_OPTION",
        1,
        1,
        1,
    )
    assert whole["failures"] == [{"tasks": 1, "code": None, "example": None}]
    assert whole["doing"]


def test_an_execution_is_paused_resumed_and_cancelled_and_each_step_is_audited(
    admin: TestClient, database: Database
) -> None:
    rows = ground(database)
    here = f"{BASE}/{str(rows.home.execution_id)[:13]}"
    for step, then in [("pause", "PAUSED"), ("resume", "RUNNING"), ("cancel", "CANCELLED")]:
        done = admin.post(f"{here}/{step}")
        assert (done.status_code, done.json()["status"]) == (200, then)
    for step in ("pause", "resume", "cancel"):
        refused = admin.post(f"{here}/{step}")
        assert (refused.status_code, refused.json()["errorCode"][:8]) == (409, "CONFLICT")
    found = [(row["action"], row["before"]["status"], row["after"]["status"]) for row in entries(database)]
    assert found == [
        ("execution.pause", "RUNNING", "PAUSED"),
        ("execution.resume", "PAUSED", "RUNNING"),
        ("execution.cancel", "RUNNING", "CANCELLED"),
    ]


@pytest.mark.parametrize("rest", ["", "/events", "/pause"])
def test_an_execution_that_is_not_there_is_said_so(admin: TestClient, rest: str) -> None:
    ask = admin.post if rest == "/pause" else admin.get
    unknown = ask(f"{BASE}/{uuid4()}{rest}")
    assert (unknown.status_code, unknown.json()["errorCode"]) == (404, "NOT_FOUND_EXECUTION")
    unreadable = ask(f"{BASE}/no%20id{rest}")
    assert (unreadable.status_code, unreadable.json()["errorCode"]) == (400, "VALIDATION_ID")


def test_a_viewer_steers_no_execution(viewer: TestClient, database: Database) -> None:
    rows = ground(database)
    for step in ("pause", "resume", "cancel"):
        refused = viewer.post(f"{BASE}/{rows.home.execution_id}/{step}")
        assert refused.json()["errorCode"] == "FORBIDDEN_ROLE"
