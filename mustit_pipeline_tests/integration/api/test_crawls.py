"""Crawls that are asked for over HTTP: opened or joined, refused where nothing would come of them, and audited."""

from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from mustit_pipeline.domain.access import Scope
from mustit_pipeline.foundation.database import Database
from mustit_pipeline_tests.integration.api.conftest import MakeClient
from mustit_pipeline_tests.integration.api.test_sellers import DIFFICULT, path
from mustit_pipeline_tests.integration.crawls import register

TRIGGER = "/api/internal/crawling/trigger"


def entries(database: Database) -> list[dict[str, Any]]:
    query = text("SELECT actor_kind, actor, action, target, before, after FROM audit_log ORDER BY id")
    with database.reading() as connection:
        return [dict(row) for row in connection.execute(query).mappings()]


@pytest.mark.parametrize("seller_id", DIFFICULT)
def test_a_crawl_is_opened_once_and_joined_by_all_who_ask_again(
    admin: TestClient, with_key: MakeClient, database: Database, seller_id: str
) -> None:
    register(database, seller_id)
    opened = admin.post(path(seller_id, "/crawl"), json={"full": True})
    assert opened.status_code == 202, opened.text
    again = admin.post(path(seller_id, "/crawl"))
    triggered = with_key(Scope.TRIGGER).post(TRIGGER, json={"sellerId": seller_id})
    execution_id = opened.json()["executionId"]
    assert opened.json() == {"executionId": execution_id, "joined": False}
    assert again.json() == {"executionId": execution_id, "joined": True}
    assert (triggered.status_code, triggered.json()) == (
        200,
        {"executionId": execution_id, "taskCount": 0, "joined": True},
    )
    shown = admin.get(f"/api/v1/executions/{execution_id}").json()
    assert (shown["triggeredBy"], shown["fullRefetch"], shown["status"]) == ("person admin", True, "PENDING")
    [entry] = entries(database)
    assert (entry["actor"], entry["action"], entry["target"]) == ("admin", "crawl.trigger", f"seller {seller_id}")
    assert (entry["before"], entry["after"]["executionId"]) == (None, execution_id)


def test_a_key_opens_a_crawl_in_its_own_name(with_key: MakeClient, database: Database) -> None:
    register(database, "dmont")
    opened = with_key(Scope.TRIGGER).post(TRIGGER, json={"sellerId": "dmont"})
    assert opened.json()["joined"] is False
    [entry] = entries(database)
    assert (entry["actor_kind"], entry["actor"][:13]) == ("key", "test trigger ")


def test_a_crawl_that_would_do_nothing_is_refused_with_the_reason_and_leaves_no_entry(
    admin: TestClient, with_key: MakeClient, database: Database
) -> None:
    register(database, "paused", "inactive")
    execution_id = admin.post(path("paused", "/crawl")).json()["executionId"]
    with database.transaction() as connection:
        connection.execute(text("UPDATE crawling_schedule_executions SET status = 'RUNNING', started_at = now()"))
    admin.post(f"/api/v1/executions/{execution_id}/pause")
    admin.post(path("inactive", "/deactivate"))
    before = entries(database)
    machine = with_key(Scope.TRIGGER)
    for seller_id, status, code in [
        ("paused", 409, "CONFLICT_EXECUTION_PAUSED"),
        ("inactive", 409, "CONFLICT_SELLER_INACTIVE"),
        ("unknown", 404, "NOT_FOUND_SELLER"),
        (" ", 400, "VALIDATION_SELLER_ID_BLANK"),
    ]:
        for refused in (
            admin.post(path(seller_id, "/crawl")),
            machine.post(TRIGGER, json={"sellerId": seller_id}),
        ):
            assert (refused.status_code, refused.json()["errorCode"]) == (status, code)
    assert entries(database) == before


def test_a_token_triggers_nothing_internal_and_a_key_nothing_else(
    admin: TestClient, viewer: TestClient, with_key: MakeClient, database: Database
) -> None:
    register(database, "dmont")
    assert admin.post(TRIGGER, json={"sellerId": "dmont"}).json()["errorCode"] == "UNAUTHORIZED_API_KEY"
    assert with_key(Scope.METRICS).post(TRIGGER, json={"sellerId": "dmont"}).json()["errorCode"] == "FORBIDDEN_SCOPE"
    machine = with_key(Scope.TRIGGER)
    assert machine.post(path("dmont", "/crawl")).json()["errorCode"] == "UNAUTHORIZED_TOKEN"
    assert viewer.post(path("dmont", "/crawl")).json()["errorCode"] == "FORBIDDEN_ROLE"
    assert machine.post(TRIGGER, json={"sellerId": "dmont", "full": True}).status_code == 400
    assert admin.post(path("dmont", "/crawl"), json={"full": "perhaps"}).status_code == 400
    assert admin.get("/api/v1/executions").json()["content"] == []
