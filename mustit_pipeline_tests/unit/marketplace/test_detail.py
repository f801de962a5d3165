"""Detail bodies: modules, fields, and what is refused."""

from typing import Any

import pytest

from mustit_pipeline.foundation.failures import MalformedBody
from mustit_pipeline.marketplace.models import Category, ProductDetail, Shipping
from mustit_pipeline.marketplace.parsing import parse_detail
from mustit_pipeline_tests.unit.marketplace.bodies import ITEM_NO, detail, detail_info, encoded, info, shipping


def parsed(**modules: Any) -> ProductDetail:
    return parse_detail(encoded(detail(**modules)), item_no=ITEM_NO)


def test_every_field_of_every_known_module_is_read() -> None:
    assert parsed() == ProductDetail(
        modules=frozenset(
            {"ProductBannersModule", "ProductInfoModule", "ShippingModule", "ProductDetailInfoModule"},
        ),
        seller_no=678,
        seller_id="dmont",
        item_no=ITEM_NO,
        item_name="여성 백팩",
        brand_name="Vivienne Westwood",
        brand_name_kr="비비안웨스트우드",
        brand_code=153,
        header_category=Category("W", "여성"),
        large_category=Category("16", "가방"),
        medium_category=Category("16r05", "백팩"),
        small_category=None,
        normal_price=1_083_000,
        selling_price=621_000,
        discount_price=565_100,
        discount_rate=48,
        stock=3,
        is_sold_out=False,
        banner_images=("https://image.example/b1.jpeg",),
        shipping=Shipping("DOMESTIC", 3000, "PAID", "평균 배송 1일 소요", free=False),
        origin_country="케냐",
        item_status="새상품",
        shipping_location="대구 중구",
        sales_method="일반판매",
        description_markup='<p><img src="https://image.example/d1.jpg"></p>',
    )


@pytest.mark.parametrize("missing", [None, [], [{"images": []}]])
def test_a_module_that_is_missing_or_a_list_is_not_among_the_modules(missing: Any) -> None:
    seen = parsed(ProductBannersModule=missing, ShippingModule=missing, ProductDetailInfoModule=missing)
    assert seen.modules == {"ProductInfoModule"}
    assert (seen.banner_images, seen.shipping, seen.description_markup) == ((), None, "")


def test_a_shipping_module_without_items_says_nothing() -> None:
    assert "ShippingModule" not in parsed(ShippingModule={"title": "배송정보", "items": []}).modules


def test_of_two_modules_with_one_type_the_first_counts() -> None:
    body = detail()
    body["moduleList"].append({"type": "ProductInfoModule", "data": info(stock=99)})
    assert parse_detail(encoded(body)).stock == 3


@pytest.mark.parametrize(
    ("changes", "free"),
    [
        ({"shippingFee": 0}, True),
        ({"shippingFee": "0"}, True),
        ({"shippingFeeType": "FREE", "shippingFee": None}, True),
        ({"shippingType": "FREE", "shippingFee": None}, True),
        ({"shippingFee": None}, False),
        ({"shippingFee": "3,000"}, False),
    ],
)
def test_shipping_is_free_by_its_type_or_by_a_fee_of_zero(changes: dict[str, Any], free: bool) -> None:
    seen = parsed(ShippingModule=shipping(**changes)).shipping
    assert seen is not None
    assert seen.free is free


def test_a_missing_delivery_estimate_is_empty_text() -> None:
    seen = parsed(ShippingModule=shipping(averageDeliveryDay=None)).shipping
    assert seen is not None
    assert seen.average_delivery == ""


@pytest.mark.parametrize(
    ("level_code", "name", "category"),
    [
        (16, "가방", Category("16", "가방")),
        ("16", None, Category("16", "")),
        (None, "가방", Category("", "가방")),
        ("", " ", None),
        (None, None, None),
    ],
)
def test_a_category_needs_a_code_or_a_name(level_code: Any, name: Any, category: Category | None) -> None:
    changed = info(smallCategoryCode=level_code, smallCategory=name)
    assert parsed(ProductInfoModule=changed).small_category == category


@pytest.mark.parametrize(("value", "flag"), [(True, True), ("false", False), ("TRUE", True), (None, None), ("", None)])
def test_sold_out_is_true_false_or_unknown(value: Any, flag: bool | None) -> None:
    assert parsed(ProductInfoModule=info(isSoldOut=value)).is_sold_out is flag


def test_text_is_composed_unicode_without_nul_and_otherwise_as_received() -> None:
    changed = info(itemName=" 가방\x00 ", brandName="Cafe\u0301\x00  Noir\n")
    seen = parsed(ProductInfoModule=changed)
    assert seen.item_name == " 가방 "
    assert seen.brand_name == "Caf\u00e9  Noir\n"


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (None, "ProductInfoModule is missing"),
        ([info()], "ProductInfoModule is missing"),
        ("text", "ProductInfoModule takes an object"),
        (info(itemNo=None), "itemNo"),
        (info(itemNo=5), "is of item 5"),
        (info(sellerId=None), "sellerId is missing"),
        (info(sellerId=" "), "sellerId is missing"),
        (info(sellerId=678), "sellerId takes text"),
        (info(itemName=["a"]), "itemName takes text"),
        (info(itemName=None), "itemName is missing"),
        (info(itemName=" \x00"), "itemName is missing"),
        (info(normalPrice=-1), "normalPrice takes a number from 0 up"),
        (info(sellingPrice="-621,000"), "sellingPrice takes a number from 0 up"),
        (info(discountPrice=-1.0), "discountPrice takes a number from 0 up"),
        (info(stock=-1), "stock takes a number from 0 up"),
        (info(discountRate=-1), "discountRate takes a number from 0 to 100"),
        (info(discountRate="101%"), "discountRate takes a number from 0 to 100"),
        (info(normalPrice="문의"), "normalPrice"),
        (info(normalPrice=True), "normalPrice"),
        (info(normalPrice=10.5), "normalPrice"),
        (info(stock={}), "stock"),
        (info(stock=2**63), "64 bits"),
        (info(discountRate="9" * 5000), "discountRate"),
        (info(isSoldOut="perhaps"), "isSoldOut"),
        (info(isSoldOut=1), "isSoldOut"),
        (info(headerCategoryCode=True), "headerCategoryCode"),
    ],
)
def test_a_product_info_module_that_cannot_be_trusted_is_a_failure(module: Any, reason: str) -> None:
    with pytest.raises(MalformedBody, match=reason) as caught:
        parsed(ProductInfoModule=module)
    assert caught.value.source == "detail"


@pytest.mark.parametrize(
    "modules",
    [
        {"ShippingModule": {"items": {}}},
        {"ShippingModule": {"items": ["x"]}},
        {"ShippingModule": {"items": [{"type": "SHIPPING"}]}},
        {"ShippingModule": shipping(averageDeliveryDay="1일")},
        {"ShippingModule": shipping(shippingFee="무료")},
        {"ShippingModule": shipping(shippingFee=-3000)},
        {"ProductBannersModule": {"images": "https://image.example/1.jpeg"}},
        {"ProductBannersModule": {"images": [1]}},
        {"ProductDetailInfoModule": detail_info(descriptionMarkUp=5)},
        {"ProductDetailInfoModule": 7},
    ],
)
def test_a_known_module_of_another_shape_is_a_failure(modules: dict[str, Any]) -> None:
    with pytest.raises(MalformedBody):
        parsed(**modules)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"moduleList": None},
        {"moduleList": {}},
        {"moduleList": []},
        {"moduleList": ["ProductInfoModule"]},
        {"moduleList": [{"type": ["ProductInfoModule"], "data": info()}]},
        {"code": 500, "message": "일시적인 오류입니다"},
    ],
)
def test_a_body_without_its_modules_is_a_failure(body: Any) -> None:
    with pytest.raises(MalformedBody):
        parse_detail(encoded(body))


@pytest.mark.parametrize("value", [0, 100, "0", "100%", 100.0])
def test_a_rate_reaches_from_nothing_to_all(value: Any) -> None:
    assert parsed(ProductInfoModule=info(discountRate=value)).discount_rate in (0, 100)


def test_what_costs_nothing_and_what_is_sold_out_are_believed() -> None:
    seen = parsed(ProductInfoModule=info(normalPrice=0, sellingPrice="0", discountPrice=0.0, stock=0))
    assert (seen.normal_price, seen.selling_price, seen.discount_price, seen.stock) == (0, 0, 0, 0)


def test_whose_detail_it_is_need_not_be_given() -> None:
    assert parse_detail(encoded(detail(ProductInfoModule=info(itemNo="7")))).item_no == 7
