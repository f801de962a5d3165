"""Real responses parse in full; they stay outside the repository, so elsewhere these tests are skipped."""

import orjson
import pytest

from mustit_pipeline.marketplace.markup import image_sources
from mustit_pipeline.marketplace.models import Category, Shipping
from mustit_pipeline.marketplace.parsing import parse_detail, parse_listing, parse_options
from mustit_pipeline_tests.conftest import SAMPLES

pytestmark = pytest.mark.skipif(not SAMPLES.is_dir(), reason="the recorded responses are not here")


def test_every_item_of_a_real_listing_is_read() -> None:
    body = (SAMPLES / "mini_shop.json").read_bytes()
    raw = orjson.loads(body)
    page = parse_listing(body)
    assert page.count == raw["count"] == 3464
    assert page.skipped == 0
    assert [entry.item_no for entry in page.entries] == [item["itemNo"] for item in raw["items"]]
    for entry, item in zip(page.entries, raw["items"], strict=True):
        assert f"{entry.price:,}" == item["price"]
        assert f"{entry.original_price:,}" == item["originalPrice"]
        assert str(entry.discount_rate) == item["discountRate"]
        assert list(entry.image_urls) == item["imageUrlList"]
        assert list(entry.tags) == [tag["title"] for tag in item["tagList"]]


def test_every_field_of_a_real_detail_is_read() -> None:
    seen = parse_detail((SAMPLES / "detail.json").read_bytes(), item_no=118005032)
    assert len(seen.modules) == 4
    assert (seen.seller_id, seen.seller_no, seen.brand_code) == ("dmont", 678, 153)
    assert (seen.normal_price, seen.selling_price, seen.discount_price) == (1_083_000, 621_000, 565_100)
    assert (seen.discount_rate, seen.stock, seen.is_sold_out) == (48, 3, False)
    assert seen.medium_category == Category("16r05", "백팩")
    assert seen.small_category is None
    assert seen.shipping == Shipping("DOMESTIC", 0, "FREE", "평균 배송 1일 소요", free=True)
    assert (seen.origin_country, seen.item_status, seen.shipping_location) == ("케냐", "새상품", "대구 중구")
    assert len(seen.banner_images) == 1
    assert len(image_sources(seen.description_markup)) == seen.description_markup.count("<img") == 9


def test_every_real_option_is_read() -> None:
    body = (SAMPLES / "option.json").read_bytes()
    options = parse_options(body, item_no=117005038)
    assert [option.option_no for option in options] == [option["optionNo"] for option in orjson.loads(body)]
    assert [option.stock for option in options] == [1, 0, 0, 0, 0]
    assert options[0].size == "US 4"
