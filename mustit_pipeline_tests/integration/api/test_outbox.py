"""Events for the product server over HTTP: listed page by page, shown, and failed ones sent again."""

from uuid import UUID, uuid4

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from mustit_pipeline.domain.states import OutboxStatus
from mustit_pipeline.foundation.database import Database
from mustit_pipeline_tests.integration.api.auditing import audited
from mustit_pipeline_tests.integration.api.test_products import every_page
from mustit_pipeline_tests.integration.crawls import register
from mustit_pipeline_tests.integration.rows import add_outbox

OUTBOX = "/api/v1/outbox"
STATES = [OutboxStatus.WAITING, OutboxStatus.FAILED, OutboxStatus.COMPLETED, OutboxStatus.FAILED, OutboxStatus.SENDING]


@pytest.fixture
def events(database: Database) -> list[UUID]:
    """One event in each state, two of them failed, all of one time."""
    register(database, "dmont")
    register(database, "other")
    with database.transaction() as connection:
        return [add_outbox(connection, status, item) for item, status in enumerate(STATES, 1)]


@pytest.mark.parametrize("whose", [{}, {"sellerId": "dmont"}])
def test_events_of_equal_time_are_all_seen_once_page_by_page(
    viewer: TestClient, events: list[UUID], whose: dict[str, str]
) -> None:
    seen = [one["outboxId"] for page in every_page(viewer, OUTBOX, size=2, **whose) for one in page]
    assert sorted(seen) == sorted(map(str, events))
    failed = [one["itemNo"] for page in every_page(viewer, OUTBOX, size=1, status="FAILED", **whose) for one in page]
    assert sorted(failed) == [2, 4]
    assert viewer.get(OUTBOX, params={"sellerId": "other"}).json()["content"] == []
    assert viewer.get(OUTBOX, params={"sellerId": "unknown"}).json()["errorCode"] == "NOT_FOUND_SELLER"


def test_an_event_is_shown_with_what_it_says(viewer: TestClient, events: list[UUID]) -> None:
    shown = viewer.get(f"{OUTBOX}/{events[0]}").json()
    assert (shown["status"], shown["itemNo"], shown["changes"]) == ("WAITING", 1, [])
    assert viewer.get(f"{OUTBOX}/{uuid4()}").json()["errorCode"] == "NOT_FOUND_OUTBOX"
    assert viewer.get(f"{OUTBOX}/0b6f").json()["errorCode"] == "NOT_FOUND_PATH"


def test_a_failed_event_is_sent_again_once_and_the_retry_is_audited(
    admin: TestClient, database: Database, events: list[UUID]
) -> None:
    failed = events[1]
    again = admin.post(f"{OUTBOX}/{failed}/retry")
    assert (again.status_code, again.json()["status"]) == (200, "WAITING")
    refused = admin.post(f"{OUTBOX}/{failed}/retry")
    assert (refused.status_code, refused.json()["errorCode"][:8]) == (409, "CONFLICT")
    [(action, target, before, after)] = audited(database, "outbox.retry")
    assert (action, target) == ("outbox.retry", f"outbox {failed}")
    assert (before["status"], after["status"]) == ("FAILED", "WAITING")


def test_all_failed_events_are_sent_again_by_seller_and_counted(
    admin: TestClient, database: Database, events: list[UUID]
) -> None:
    with database.transaction() as connection:
        add_outbox(connection, OutboxStatus.COMPLETED, 4, version=2)
    assert admin.post(f"{OUTBOX}/retry", params={"sellerId": "other"}).json() == {"retried": 0, "superseded": 0}
    assert admin.post(f"{OUTBOX}/retry", params={"sellerId": "dmont"}).json() == {"retried": 1, "superseded": 1}
    assert admin.post(f"{OUTBOX}/retry", params={"status": "COMPLETED"}).status_code == 409
    assert admin.post(f"{OUTBOX}/retry", params={"sellerId": "unknown"}).status_code == 404
    [(_, target, before, after)] = audited(database, "outbox.retry")
    assert (target, before, after) == ("outbox of dmont", {"failed": 2}, {"failed": 0})
    with database.reading() as connection:
        left = connection.execute(text("SELECT count(*) FROM product_outbox WHERE status = 'FAILED'")).scalar_one()
    assert left == 0
