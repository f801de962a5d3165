"""Drift, alerts and the audit log over HTTP."""

from datetime import UTC, datetime, timedelta
from itertools import chain

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from mustit_pipeline.foundation.database import Database
from mustit_pipeline.monitoring.sql import alerts
from mustit_pipeline.monitoring.sql.alerts import Condition
from mustit_pipeline_tests.integration.api.auditing import audited
from mustit_pipeline_tests.integration.api.test_products import every_page

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
COUPONS = "detail.ProductInfoModule.couponList"


@pytest.fixture
def drifted(database: Database) -> None:
    with database.transaction() as connection:
        connection.execute(
            text("""
                INSERT INTO schema_drift (path, kind, observed, expected, sample, count, seller_id, last_seen_at)
                VALUES (:path, 'NEW', 'array', '', '[]', 3, 'dmont', '2026-11-16T12:00Z'),
                       ('listing.items.price', 'RETYPED', 'text', 'number', 'x', 1, 'dmont', '2026-11-15T12:00Z')
            """),
            {"path": COUPONS},
        )


@pytest.mark.usefixtures("drifted")
def test_drift_is_listed_accepted_and_forgotten_and_each_step_is_audited(admin: TestClient, database: Database) -> None:
    page = admin.get("/api/v1/drift", params={"size": 1, "page": 1}).json()
    assert ([one["path"] for one in page["content"]], page["totalElements"]) == (["listing.items.price"], 2)
    recent = admin.get("/api/v1/drift", params={"since": "2026-11-16T00:00:00Z"}).json()
    assert [one["path"] for one in recent["content"]] == [COUPONS]
    assert admin.post("/api/v1/drift/accept", json={"path": "detail.*"}).json() == {"paths": [COUPONS]}
    assert admin.get("/api/v1/drift").json()["totalElements"] == 1
    assert admin.get("/api/v1/drift", params={"all": True}).json()["totalElements"] == 2
    assert admin.post("/api/v1/drift/forget", json={"path": COUPONS}).json() == {"paths": [COUPONS]}
    again = admin.post("/api/v1/drift/forget", json={"path": COUPONS})
    assert (again.status_code, again.json()["errorCode"]) == (404, "NOT_FOUND_DRIFT")
    assert audited(database, "drift") == [
        ("drift.accept", "drift detail.*", {COUPONS: "OPEN"}, {COUPONS: "ACCEPTED"}),
        ("drift.forget", f"drift {COUPONS}", {COUPONS: "ACCEPTED"}, {}),
    ]


@pytest.mark.parametrize("path", ["", "price", "detail price", "detail..price", 7, None])
def test_a_path_that_cannot_be_one_is_refused(admin: TestClient, path: object) -> None:
    refused = admin.post("/api/v1/drift/accept", json={"path": path})
    assert (refused.status_code, refused.json()["errorCode"]) == (400, "VALIDATION_REQUEST")
    assert refused.json()["errors"][0]["field"] == "path"


def test_alerts_are_listed_newest_first_and_ended_ones_on_request(viewer: TestClient, database: Database) -> None:
    conditions = [
        (Condition(f"run {number}", "RUN_FAILED", "t", "d"), NOON + timedelta(hours=number)) for number in range(5)
    ]
    with database.transaction() as connection:
        alerts.see(connection, conditions, NOON)
        alerts.end_unseen(connection, ["RUN_FAILED"], ["run 0", "run 1", "run 2"], NOON, NOON + timedelta(days=1))

    def subjects(**wanted: str) -> list[list[str]]:
        return [[one["subject"] for one in page] for page in every_page(viewer, "/api/v1/alerts", size=2, **wanted)]

    assert sorted(chain(*subjects())) == ["run 0", "run 1", "run 2"]
    assert sorted(chain(*subjects(status="ENDED"))) == ["run 3", "run 4"]
    assert [len(page) for page in subjects()] == [2, 1]
    assert viewer.get("/api/v1/alerts", params={"status": "NEVER"}).status_code == 400


def test_the_audit_log_is_for_admins_and_found_by_each_filter_page_by_page(
    admin: TestClient, viewer: TestClient
) -> None:
    assert viewer.get("/api/v1/audit").json()["errorCode"] == "FORBIDDEN_ROLE"
    for number in range(3):
        admin.post("/api/v1/sellers", json={"sellerId": f"shop {number}", "name": "x"})
    admin.patch("/api/v1/sellers/shop%201/interval", json={"crawlingIntervalDays": 7})

    def targets(**wanted: str) -> list[list[str]]:
        return [[one["target"] for one in page] for page in every_page(admin, "/api/v1/audit", size=2, **wanted)]

    assert targets(actor="admin") == [["seller shop 1", "seller shop 2"], ["seller shop 1", "seller shop 0"]]
    assert targets(action="seller.interval") == [["seller shop 1"]]
    assert targets(target="seller shop 1", action="seller.register") == [["seller shop 1"]]
    assert targets(since="2999-01-01T00:00:00Z") == [[]]
    entry = admin.get("/api/v1/audit", params={"action": "seller.interval"}).json()["content"][0]
    assert (entry["actorKind"], entry["actor"], entry["before"]["interval"]) == ("person", "admin", "1d")
