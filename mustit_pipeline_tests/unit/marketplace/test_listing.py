"""Listing pages: what is read, what is skipped, what fails."""

from typing import Any

import pytest

from mustit_pipeline.foundation.failures import MalformedBody
from mustit_pipeline.marketplace.models import ListingEntry
from mustit_pipeline.marketplace.parsing import parse_count, parse_listing
from mustit_pipeline_tests.unit.marketplace.bodies import ITEM_NO, encoded, listing, listing_item


def test_every_field_of_an_item_is_read() -> None:
    page = parse_listing(encoded(listing(listing_item())))
    assert page.count == 3464
    assert page.skipped == 0
    assert page.entries == (
        ListingEntry(
            item_no=ITEM_NO,
            name="여성 백팩",
            brand_name="Vivienne Westwood",
            price=545_600,
            original_price=1_075_000,
            normal_price=1_075_000,
            discount_rate=49,
            app_price=540_000,
            app_discount_rate=50,
            image_urls=("https://image.example/1.jpeg", "https://image.example/2.jpeg"),
            tags=("무료배송",),
            landing_url="https://m.example/product/118005032",
        ),
    )


def test_absent_fields_are_empty_text_empty_lists_and_no_numbers() -> None:
    entry = parse_listing(encoded(listing({"itemNo": 5, "name": "이름", "price": "", "tagList": None}))).entries[0]
    assert entry == ListingEntry(5, "이름", "", None, None, None, None, None, None, (), (), "")


@pytest.mark.parametrize(
    "broken",
    [
        listing_item(itemNo=None),
        listing_item(itemNo=0),
        listing_item(itemNo=-4),
        listing_item(itemNo=True),
        listing_item(itemNo="abc"),
        listing_item(name=None),
        listing_item(name="  "),
        listing_item(name=12),
        listing_item(price="가격문의"),
        listing_item(price=12.5),
        listing_item(price=-1),
        listing_item(price="-545,600"),
        listing_item(originalPrice=-1.0),
        listing_item(normalPrice="-1"),
        listing_item(appPrice=-5),
        listing_item(discountRate="-1"),
        listing_item(discountRate=101),
        listing_item(appDiscountRate="101%"),
        listing_item(discountRate=True),
        listing_item(imageUrlList="https://image.example/1.jpeg"),
        listing_item(imageUrlList=[None]),
        listing_item(tagList=["무료배송"]),
        None,
        "item",
        [],
    ],
)
def test_an_unreadable_item_is_skipped_and_counted_and_the_rest_kept(broken: Any) -> None:
    page = parse_listing(encoded(listing(listing_item(itemNo=1), broken, listing_item(itemNo=2))))
    assert [entry.item_no for entry in page.entries] == [1, 2]
    assert page.skipped == 1


def test_a_page_of_which_nothing_can_be_read_is_a_failure_and_not_an_empty_page() -> None:
    with pytest.raises(MalformedBody, match="none of the 2 items"):
        parse_listing(encoded(listing({"id": 1}, {"id": 2})))


def test_how_many_products_there_are_does_not_hang_on_whether_they_can_be_read() -> None:
    assert parse_count(encoded(listing({"id": 1}, count=12))) == 12


def test_a_seller_without_products_is_an_empty_page() -> None:
    page = parse_listing(encoded(listing(count=0)))
    assert (page.count, page.entries, page.skipped) == (0, (), 0)


def test_an_item_listed_twice_is_there_once_as_it_was_said_last() -> None:
    page = parse_listing(encoded(listing(listing_item(price="1"), listing_item(itemNo=7), listing_item(price="2"))))
    assert [(entry.item_no, entry.price) for entry in page.entries] == [(ITEM_NO, 2), (7, 545_600)]
    assert page.skipped == 0


@pytest.mark.parametrize("count", [None, -1, True, "many", [], 1.5, 2**63])
def test_a_page_without_a_usable_count_is_a_failure(count: Any) -> None:
    with pytest.raises(MalformedBody, match="count"):
        parse_listing(encoded(listing(listing_item(), count=count)))
    with pytest.raises(MalformedBody, match="count"):
        parse_count(encoded(listing(listing_item(), count=count)))


@pytest.mark.parametrize("items", [None, {}, "", 0])
def test_a_page_whose_items_are_no_list_is_a_failure(items: Any) -> None:
    with pytest.raises(MalformedBody, match="items"):
        parse_listing(encoded(listing() | {"items": items}))
    with pytest.raises(MalformedBody, match="items"):
        parse_count(encoded(listing() | {"items": items}))


def test_a_count_beyond_belief_is_refused_before_anybody_plans_its_pages() -> None:
    body = encoded(listing(count=10**12))

    with pytest.raises(MalformedBody, match="MUSTIT_SELLER_MOST_PRODUCTS is 1000"):
        parse_listing(body, most=1000)
    with pytest.raises(MalformedBody, match="MUSTIT_SELLER_MOST_PRODUCTS is 1000"):
        parse_count(body, most=1000)
    assert parse_listing(encoded(listing(count=1000)), most=1000).count == 1000
