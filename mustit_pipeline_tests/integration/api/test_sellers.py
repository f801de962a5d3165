"""Sellers over HTTP: registered, found, changed; with ids that need encoding."""

from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from mustit_pipeline.foundation.database import Database

DIFFICULT = ["럭셔리 샵&co", "bag & shoes/50%", "a%2Fb", "…/…?x#y"]


def path(seller_id: str, rest: str = "") -> str:
    return f"/api/v1/sellers/{quote(seller_id, safe='')}{rest}"


@pytest.mark.parametrize("seller_id", DIFFICULT)
def test_a_seller_with_any_id_lives_its_whole_life_over_http(admin: TestClient, seller_id: str) -> None:
    made = admin.post("/api/v1/sellers", json={"sellerId": seller_id, "name": "샵", "crawlingIntervalHours": 6})
    assert made.status_code == 201, made.text
    assert made.json()["sellerId"] == seller_id
    assert admin.get(made.headers["location"]).json() == made.json()
    assert (
        admin.patch(path(seller_id, "/interval"), json={"crawlingIntervalDays": 7}).json()["crawlingIntervalDays"] == 7
    )
    assert admin.post(path(seller_id, "/deactivate")).json()["status"] == "INACTIVE"
    again = admin.post(path(seller_id, "/deactivate"))
    assert (again.status_code, again.json()["errorCode"][:8]) == (409, "CONFLICT")
    assert admin.post(path(seller_id, "/activate")).json()["status"] == "ACTIVE"


def test_each_change_is_one_entry_of_the_audit_log(admin: TestClient, database: Database) -> None:
    admin.post("/api/v1/sellers", json={"sellerId": "dmont", "name": "D.MONT"})
    admin.patch(path("dmont", "/interval"), json={"crawlingIntervalDays": 7}, headers={"X-Request-Id": "abc"})
    with database.reading() as connection:
        rows = connection.execute(text("SELECT action, target, before, after, request_id FROM audit_log ORDER BY id"))
        found = [tuple(row) for row in rows]
    assert [row[:2] for row in found[-2:]] == [("seller.register", "seller dmont"), ("seller.interval", "seller dmont")]
    assert (found[-1][2]["interval"], found[-1][3]["interval"], found[-1][4]) == ("1d", "7d", "abc")


def test_sellers_are_found_by_part_of_id_or_name_page_by_page(admin: TestClient) -> None:
    for number in range(5):
        admin.post("/api/v1/sellers", json={"sellerId": f"shop_{number}", "name": f"가게 {number}"})
    admin.post("/api/v1/sellers", json={"sellerId": "shopX9", "name": "100% 할인"})
    page = admin.get("/api/v1/sellers", params={"q": "SHOP_", "size": 2, "page": 2}).json()
    assert [seller["sellerId"] for seller in page["content"]] == ["shop_4"]
    assert (page["totalElements"], page["totalPages"]) == (5, 3)
    assert admin.get("/api/v1/sellers", params={"q": "0%"}).json()["totalElements"] == 1


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"sellerId": "x"}, 400, "VALIDATION_REQUEST"),
        ({"sellerId": "x", "name": "x", "more": 1}, 400, "VALIDATION_REQUEST"),
        ({"sellerId": " ", "name": "x"}, 400, "VALIDATION_SELLER_ID_BLANK"),
        ({"sellerId": "a\0b", "name": "x"}, 400, "VALIDATION_REQUEST"),
        ({"sellerId": "x", "name": "x", "crawlingIntervalDays": 31}, 400, "VALIDATION_INTERVAL_DAYS"),
        (
            {"sellerId": "x", "name": "x", "crawlingIntervalDays": 1, "crawlingIntervalHours": 1},
            400,
            "VALIDATION_INTERVAL",
        ),
        ({"sellerId": "x", "name": "x", "crawlingIntervalDays": True}, 400, "VALIDATION_REQUEST"),
        ({"sellerId": "x", "name": "x", "crawlingIntervalHours": "6"}, 400, "VALIDATION_REQUEST"),
        ({"sellerId": "known", "name": "x"}, 409, "CONFLICT_SELLER_EXISTS"),
    ],
)
def test_a_seller_that_cannot_be_registered_is_refused_with_its_reason(
    admin: TestClient, body: dict[str, object], status: int, code: str
) -> None:
    admin.post("/api/v1/sellers", json={"sellerId": "known", "name": "known"})
    refused = admin.post("/api/v1/sellers", json=body)
    assert (refused.status_code, refused.json()["errorCode"]) == (status, code)
    assert refused.headers["content-type"] == "application/problem+json"


def test_a_viewer_reads_and_changes_nothing_and_a_stranger_does_neither(anyone: TestClient, viewer: TestClient) -> None:
    assert viewer.get("/api/v1/sellers").status_code == 200
    body = {"sellerId": "x", "name": "x"}
    assert viewer.post("/api/v1/sellers", json=body).json()["errorCode"] == "FORBIDDEN_ROLE"
    assert anyone.post("/api/v1/sellers", json=body).status_code == 401
    assert anyone.post("/api/v1/sellers", content=b"no json").status_code == 401
