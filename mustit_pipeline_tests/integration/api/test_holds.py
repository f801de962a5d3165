"""Held changes and held deletions over HTTP: listed with their evidence, decided once, audited."""

import pytest
from fastapi.testclient import TestClient

from mustit_pipeline.catalog.deletion import judge_sweep
from mustit_pipeline.catalog.processing import process
from mustit_pipeline.domain.change_hold import BeliefRules
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline_tests.integration.api.test_crawls import entries
from mustit_pipeline_tests.integration.catalog.shelf import Shelf, assert_whole

HOLDS, DELETIONS = "/api/v1/holds", "/api/v1/deletions"
ITEMS = range(1, 7)


def held_deletions(database: Database) -> Shelf:
    """Two of three products are missing from a sweep."""
    shelf = Shelf(database)
    shelf.crawl(1, 2, 3)
    shelf.open()
    shelf.listing(3)
    with database.transaction() as connection:
        judge_sweep(connection, shelf.stored.execution, listed=1, hold_share=0.2, sweeps=2)
    shelf.process()
    shelf.end()
    return shelf


def held_changes(database: Database) -> Shelf:
    """Every price falls to a tenth."""
    shelf = Shelf(database, "럭셔리 샵&co")
    rules = BeliefRules(jump_factor=3, share=0.2, least=3)
    for number, price in enumerate((30_000, 3_000)):
        if number:
            shelf.open()
        shelf.listing(*ITEMS, price=f"{price:,}", originalPrice=f"{price:,}")
        for item in ITEMS:
            shelf.detail(item, **dict.fromkeys(("normalPrice", "sellingPrice", "discountPrice"), price))
            shelf.options(item)
        shelf.swept()
        process(database, SellerId(shelf.seller_id), now=utc_now, rules=rules)
        shelf.end()
    return shelf


@pytest.mark.parametrize(("decision", "deleted"), [("approve", [1, 2]), ("reject", [])])
def test_held_deletions_are_shown_with_their_items_and_decided_once(
    admin: TestClient, database: Database, decision: str, deleted: list[int]
) -> None:
    shelf = held_deletions(database)
    page = admin.get(DELETIONS, params={"status": "OPEN", "sellerId": shelf.seller_id}).json()
    [hold] = page["content"]
    assert (page["totalElements"], hold["heldCount"], hold["liveCount"], hold["share"]) == (1, 2, 3, 66.67)
    here = f"{DELETIONS}/{hold['holdId'][:8]}"
    assert admin.get(here).json()["stillAbsent"] == [1, 2]

    decided = admin.post(f"{here}/{decision}").json()

    assert (decided["deleted"], decided["keptCount"]) == (deleted, 2 - len(deleted))
    assert admin.get(here).json()["stillAbsent"] == []
    assert admin.get(DELETIONS, params={"status": "OPEN"}).json()["totalElements"] == 0
    assert admin.get(DELETIONS, params={"page": 1}).json()["content"] == []
    again = admin.post(f"{here}/{decision}")
    assert (again.status_code, again.json()["errorCode"][:8]) == (409, "CONFLICT")
    [entry] = entries(database)
    assert (entry["action"], entry["target"]) == (f"deletion.{decision}", f"deletion hold {hold['holdId']}")
    assert (entry["before"]["status"], entry["after"]["status"]) == ("OPEN", decided["status"])
    gone = shelf.rows("SELECT item_no FROM products WHERE deleted_at IS NOT NULL ORDER BY item_no")
    assert [row["item_no"] for row in gone] == deleted
    assert_whole(database)


def test_held_changes_are_shown_and_released_once(admin: TestClient, database: Database) -> None:
    held_changes(database)
    page = admin.get(HOLDS, params={"status": "OPEN"}).json()
    [hold] = page["content"]
    assert (hold["sellerId"], hold["jumped"], hold["lookedAt"], hold["share"]) == ("럭셔리 샵&co", 6, 6, 100.0)
    assert hold["examples"] == list(ITEMS)

    released = admin.post(f"{HOLDS}/%EB%9F%AD%EC%85%94%EB%A6%AC%20%EC%83%B5%26co/release")

    assert (released.status_code, released.json()["published"]) == (200, 6), released.text
    assert released.json()["changes"]["PRICE"] >= 6
    again = admin.post(f"{HOLDS}/%EB%9F%AD%EC%85%94%EB%A6%AC%20%EC%83%B5%26co/release")
    assert (again.status_code, again.json()["errorCode"]) == (404, "NOT_FOUND_CHANGE_HOLD")
    [entry] = entries(database)
    assert entry["action"] == "hold.release"
    assert (entry["before"]["status"], entry["after"]["status"]) == ("OPEN", "RELEASED")
    unknown = [admin.get(holds, params={"sellerId": "dmont"}) for holds in (HOLDS, DELETIONS)]
    assert [answer.json().get("errorCode") for answer in unknown] == ["NOT_FOUND_SELLER"] * 2
    assert_whole(database)


def test_a_viewer_sees_holds_and_decides_none(viewer: TestClient, database: Database) -> None:
    held_deletions(database)
    [hold] = viewer.get(DELETIONS).json()["content"]
    for refused in (
        viewer.post(f"{DELETIONS}/{hold['holdId']}/approve"),
        viewer.post(f"{HOLDS}/dmont/release"),
    ):
        assert refused.json()["errorCode"] == "FORBIDDEN_ROLE"
    assert viewer.get(DELETIONS).json()["content"] == [hold]
