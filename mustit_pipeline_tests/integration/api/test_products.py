"""Products and their changes over HTTP: found, shown in any version, compared; page by page to the end."""

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from mustit_pipeline.catalog.sql import history, product_list
from mustit_pipeline.foundation.database import Database
from mustit_pipeline_tests.integration.catalog.shelf import Shelf

PRODUCTS, CHANGES = "/api/v1/products", "/api/v1/changes"


@pytest.fixture
def shelf(database: Database) -> Shelf:
    return Shelf(database)


def every_page(client: TestClient, path: str, **params: Any) -> Iterator[list[dict[str, Any]]]:
    """The pages of a list, each asked for with the cursor of the one before."""
    while True:
        page = client.get(path, params=params).json()
        yield page["content"]
        if page["nextCursor"] is None:
            return
        params["cursor"] = page["nextCursor"]


def items(pages: Iterator[list[dict[str, Any]]]) -> list[list[int]]:
    return [[one["itemNo"] for one in page] for page in pages]


def test_all_products_are_listed_by_seller_and_number_and_counted(viewer: TestClient, shelf: Shelf) -> None:
    shelf.crawl(3, 1, 2)
    Shelf(shelf.database, "다른 샵").crawl(1, 9)
    assert items(every_page(viewer, PRODUCTS, size=2)) == [[1, 2], [3, 1], [9]]
    assert items(every_page(viewer, PRODUCTS, size=2, sellerId="dmont")) == [[1, 2], [3]]
    page = viewer.get(PRODUCTS, params={"sellerId": "다른 샵"}).json()
    assert (page["totalElements"], page["totalIsEstimate"]) == (2, False)
    assert viewer.get(PRODUCTS).json()["totalElements"] == 5
    first = page["content"][0]
    assert (first["name"], first["version"], first["deliveredVersion"], first["complete"]) == ("상품 1", 1, 0, True)


def test_the_bodies_of_a_product_are_listed_and_read_under_its_own_number(viewer: TestClient, shelf: Shelf) -> None:
    shelf.crawl(1, 2)
    listed = viewer.get(f"{PRODUCTS}/1/bodies", params={"size": 5}).json()["bodies"]
    assert {one["source"] for one in listed} == {"PRODUCT_DETAIL", "PRODUCT_OPTION"}
    shown = viewer.get(f"{PRODUCTS}/1/bodies/{listed[0]['rawId']}").json()
    assert len(shown["text"].encode()) == listed[0]["size"] > 0
    assert viewer.get(f"{PRODUCTS}/2/bodies/{listed[0]['rawId']}").json()["errorCode"] == "NOT_FOUND_RAW"


def test_a_product_is_found_by_its_number_whichever_seller_has_it_and_within_a_seller_by_the_first_digits(
    viewer: TestClient, shelf: Shelf
) -> None:
    shelf.crawl(118, 1185, 1190, 2118, 11800)
    Shelf(shelf.database, "other").crawl(118)
    assert items(every_page(viewer, PRODUCTS, q="118", size=1)) == [[118], [118]]
    assert items(every_page(viewer, PRODUCTS, q="118", sellerId="dmont", size=2)) == [[118, 1185], [11800]]
    assert items(every_page(viewer, PRODUCTS, q="1190")) == [[1190]]
    assert items(every_page(viewer, PRODUCTS, q="0118")) == [[]]
    assert items(every_page(viewer, PRODUCTS, q="9" * 50)) == [[]]


def test_a_name_is_found_within_a_seller_however_far_the_search_has_to_go(
    viewer: TestClient, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.listing(*range(1, 8))
    shelf.listing(8, name="100% 가죽 백팩")
    shelf.process()
    monkeypatch.setattr(product_list, "MOST_WALKED", 3)
    assert items(every_page(viewer, PRODUCTS, q="백팩", sellerId="dmont")) == [[], [], [8]]
    assert items(every_page(viewer, PRODUCTS, q="0% ", sellerId="dmont"))[-1] == [8]
    refused = viewer.get(PRODUCTS, params={"q": "백팩"})
    assert (refused.status_code, refused.json()["errorCode"]) == (400, "VALIDATION_PRODUCT_SEARCH")


def test_more_products_than_are_counted_are_an_estimate_that_says_so(
    viewer: TestClient, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.crawl(1, 2, 3)
    shelf.change("UPDATE sellers SET total_product_count = 40")
    # A database of another test may have left its own estimate.
    shelf.change("ANALYZE products")
    monkeypatch.setattr(product_list, "MOST_COUNTED", 2)
    page = viewer.get(PRODUCTS, params={"sellerId": "dmont"}).json()
    assert (page["totalElements"], page["totalIsEstimate"]) == (40, True)
    page = viewer.get(PRODUCTS).json()
    assert (page["totalElements"], page["totalIsEstimate"]) == (3, True)


def test_a_product_is_shown_in_each_version_with_its_hashes_and_delivery(viewer: TestClient, shelf: Shelf) -> None:
    shelf.crawl(1, sellingPrice=100)
    shelf.crawl(1, sellingPrice=90)
    newest = viewer.get(f"{PRODUCTS}/1").json()
    assert (newest["version"], newest["newestVersion"], newest["lifeCycle"]) == (2, 2, "UPDATED")
    assert newest["productData"]["sellingPrice"] == 90
    assert newest["delivery"]["status"] == "WAITING"
    assert newest["hashes"]["data"] == newest["hashes"]["published"]
    first = viewer.get(f"{PRODUCTS}/1", params={"version": 1}).json()
    assert (first["version"], first["productData"]["sellingPrice"]) == (1, 100)
    assert first["delivery"]["superseded"] is True
    compared = viewer.get(f"{PRODUCTS}/1/diff", params={"a": 1, "b": 2}).json()
    assert (compared["old"]["version"], compared["new"]["version"]) == (1, 2)
    assert {"type": "PRICE", "field": "sellingPrice", "old": 100, "new": 90} in compared["changes"]


def test_the_history_of_a_product_comes_newest_first_page_by_page(viewer: TestClient, shelf: Shelf) -> None:
    for price in (100, 90, 80):
        shelf.crawl(1, sellingPrice=price)
    versions = [[one["version"] for one in page] for page in every_page(viewer, f"{PRODUCTS}/1/history", size=2)]
    assert versions == [[3, 2], [1]]
    [page] = every_page(viewer, f"{PRODUCTS}/1/changes")
    assert [one["changes"][0]["new"] for one in page[:2]] == [80, 90]
    assert "delivery" not in page[0]


def test_what_is_not_there_is_named_as_the_command_line_names_it(viewer: TestClient, shelf: Shelf) -> None:
    shelf.crawl(1)
    Shelf(shelf.database, "other").crawl(1)
    known = {"sellerId": "dmont"}
    for path, params, status, code in [
        ("/1", {}, 409, "CONFLICT_PRODUCT_AMBIGUOUS"),
        ("/2", {}, 404, "NOT_FOUND_PRODUCT"),
        ("/1", {"sellerId": "unknown"}, 404, "NOT_FOUND_SELLER"),
        ("", {"sellerId": "unknown"}, 404, "NOT_FOUND_SELLER"),
        ("/1/diff", known | {"a": 1, "b": 7}, 404, "NOT_FOUND_VERSION"),
        ("/1/diff", known | {"a": 1}, 400, "VALIDATION_REQUEST"),
        ("/0", {}, 400, "VALIDATION_REQUEST"),
        (f"/{2**63}", {}, 400, "VALIDATION_REQUEST"),
        ("", {"cursor": "x"}, 400, "VALIDATION_CURSOR"),
        ("", {"size": 101}, 400, "VALIDATION_REQUEST"),
        ("", {"q": "a\0"}, 400, "VALIDATION_REQUEST"),
    ]:
        answer = viewer.get(f"{PRODUCTS}{path}", params=params)
        assert (path, params, answer.status_code, answer.json()["errorCode"]) == (path, params, status, code)


def test_changes_of_equal_time_are_all_seen_once_page_by_page(viewer: TestClient, shelf: Shelf) -> None:
    shelf.crawl(1, 2, 3)
    Shelf(shelf.database, "other").crawl(4, 5)
    shelf.change("UPDATE product_change_sets SET detected_at = '2026-11-16T00:00:00Z'")
    seen = [one for page in items(every_page(viewer, CHANGES, size=2)) for one in page]
    assert (len(seen), set(seen)) == (5, {1, 2, 3, 4, 5})
    seen = [one for page in items(every_page(viewer, CHANGES, size=1, sellerId="dmont")) for one in page]
    assert (len(seen), set(seen)) == (3, {1, 2, 3})
    assert items(every_page(viewer, CHANGES, until="2026-11-16T00:00:00Z")) == [[]]
    assert len(items(every_page(viewer, CHANGES, since="2026-11-16T09:00:00+09:00"))[0]) == 5


def test_a_rare_type_of_change_is_found_however_far_the_search_has_to_go(
    viewer: TestClient, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.crawl(1, sellingPrice=100)
    shelf.crawl(1, sellingPrice=90)
    shelf.crawl(2, 3, 4, 5, 6)
    monkeypatch.setattr(history, "MOST_WALKED", 2)
    pages = list(every_page(viewer, CHANGES, type="PRICE"))
    assert [one["itemNo"] for page in pages for one in page] == [1]
    assert pages[0] == []
    for refused in (
        {"type": "COLOUR"},
        {"since": "0.5"},
        {"since": "5.96e-08"},
        {"until": "20261116"},
        {"since": "yesterday"},
    ):
        assert viewer.get(CHANGES, params=refused).json()["errorCode"] == "VALIDATION_REQUEST"
    assert viewer.get(CHANGES, params={"since": "0001-01-01T00:00:00+14:00"}).status_code == 200
    assert viewer.get(CHANGES, params={"sellerId": "unknown"}).json()["errorCode"] == "NOT_FOUND_SELLER"
