"""Every single real change is exactly one typed field change, seen through whole bodies."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustit_pipeline.catalog.diff import diff
from mustit_pipeline.catalog.product_data import Sources
from mustit_pipeline.domain.states import ChangeType
from mustit_pipeline_tests.unit.catalog.reading import detail_of, listing_of, merged, options_of, sources
from mustit_pipeline_tests.unit.marketplace import bodies

NO = 4134224619


def info(**changes: Any) -> Sources:
    return sources(detail=detail_of(ProductInfoModule=bodies.info(**changes)))


def text(**changes: Any) -> Sources:
    return sources(detail=detail_of(ProductDetailInfoModule=bodies.detail_info(**changes)))


def shipping(**changes: Any) -> Sources:
    return sources(detail=detail_of(ShippingModule=bodies.shipping(**changes)))


def option(**changes: Any) -> Sources:
    return sources(options=options_of(bodies.option(**changes)))


SAME_IMAGES = "<p>새 글</p>" + bodies.detail_info()["descriptionMarkUp"]
CHANGES: list[tuple[Sources, str, str, object, object]] = [
    (info(itemName="다른 이름"), "PRODUCT_INFO", "name", "여성 백팩", "다른 이름"),
    (sources(listing_of(name="다른 이름")), "PRODUCT_INFO", "name", "여성 백팩", "다른 이름"),
    (info(brandName="Fendi"), "PRODUCT_INFO", "brandName", "Vivienne Westwood", "Fendi"),
    (info(brandNameKr="펜디"), "PRODUCT_INFO", "brandNameKr", "비비안웨스트우드", "펜디"),
    (info(brandCode="154"), "PRODUCT_INFO", "brandCode", 153, 154),
    (info(normalPrice=1), "PRICE", "normalPrice", 1083000, 1),
    (sources(listing_of(originalPrice="2,000")), "PRICE", "normalPrice", 1083000, 2000),
    (info(sellingPrice="1,000"), "PRICE", "sellingPrice", 621000, 1000),
    (info(discountPrice=540000), "PRICE", "discountPrice", 565100, 540000),
    (sources(listing_of(price="540,000")), "PRICE", "discountPrice", 565100, 540000),
    (info(discountRate="50%"), "PRICE", "discountRate", 48, 50),
    (info(stock=0), "STOCK", "stock", 3, 0),
    (info(stock=None), "STOCK", "stock", 3, None),
    (info(isSoldOut=True), "STOCK", "soldOut", False, True),
    (option(stock=2), "STOCK", f"options[{NO}].stock", 1, 2),
    (option(color="레드"), "OPTION", f"options[{NO}].color", "블랙", "레드"),
    (option(size=""), "OPTION", f"options[{NO}].size", "US 4", ""),
    (option(sizeGuide="작음"), "OPTION", f"options[{NO}].sizeGuide", "정사이즈", "작음"),
    (
        sources(detail=detail_of(ProductBannersModule={"images": ["https://image.example/b2.jpeg"]})),
        "IMAGE",
        "images",
        ["https://image.example/b1.jpeg"],
        ["https://image.example/b2.jpeg"],
    ),
    (
        text(descriptionMarkUp=SAME_IMAGES),
        "DESCRIPTION",
        "description",
        bodies.detail_info()["descriptionMarkUp"],
        SAME_IMAGES,
    ),
    (text(originCountry="이탈리아"), "PRODUCT_INFO", "originCountry", "케냐", "이탈리아"),
    (text(itemStatus="중고"), "PRODUCT_INFO", "itemStatus", "새상품", "중고"),
    (sources(listing_of(tagList=[{"title": "단독"}])), "PRODUCT_INFO", "tags", ["무료배송"], ["단독"]),
    (shipping(shippingFee=2500), "PRODUCT_INFO", "shipping.fee", 3000, 2500),
    (shipping(shippingType="OVERSEA"), "PRODUCT_INFO", "shipping.type", "DOMESTIC", "OVERSEA"),
    (shipping(shippingFeeType="COD"), "PRODUCT_INFO", "shipping.feeType", "PAID", "COD"),
    (
        shipping(averageDeliveryDay=None),
        "PRODUCT_INFO",
        "shipping.averageDelivery",
        "평균 배송 1일 소요",
        "",
    ),
    (
        info(smallCategoryCode="16r05r1", smallCategory="소형"),
        "PRODUCT_INFO",
        "category.small",
        None,
        {"code": "16r05r1", "name": "소형"},
    ),
    (
        info(headerCategoryCode="M", headerCategory="남성"),
        "PRODUCT_INFO",
        "category.header",
        {"code": "W", "name": "여성"},
        {"code": "M", "name": "남성"},
    ),
    (
        info(largeCategoryCode=17, largeCategory="지갑"),
        "PRODUCT_INFO",
        "category.large",
        {"code": "16", "name": "가방"},
        {"code": "17", "name": "지갑"},
    ),
    (
        info(mediumCategory="크로스백"),
        "PRODUCT_INFO",
        "category.medium",
        {"code": "16r05", "name": "백팩"},
        {"code": "16r05", "name": "크로스백"},
    ),
]
PICTURE = '<img src="https://image.example/d2.jpg">'
# Fields that follow from others never change alone.
TOGETHER: list[tuple[Sources, list[tuple[str, str, object, object]]]] = [
    (
        shipping(shippingFee=0),
        [("PRODUCT_INFO", "shipping.fee", 3000, 0), ("PRODUCT_INFO", "shipping.free", False, True)],
    ),
    (
        shipping(shippingFeeType="FREE"),
        [("PRODUCT_INFO", "shipping.feeType", "PAID", "FREE"), ("PRODUCT_INFO", "shipping.free", False, True)],
    ),
    (
        text(descriptionMarkUp=PICTURE),
        [
            ("DESCRIPTION", "description", bodies.detail_info()["descriptionMarkUp"], PICTURE),
            (
                "DESCRIPTION",
                "descriptionImages",
                ["https://image.example/d1.jpg"],
                ["https://image.example/d2.jpg"],
            ),
        ],
    ),
]


@pytest.mark.parametrize(("new", "kind", "field", "old_value", "new_value"), CHANGES, ids=lambda value: str(value)[:24])
def test_one_changed_field_is_one_change_of_its_type(
    new: Sources, kind: str, field: str, old_value: object, new_value: object
) -> None:
    first = sources()
    data = merged(first)

    changes = diff(data, merged(new, first, data))

    assert [change.as_json() for change in changes] == [
        {"type": kind, "field": field, "old": old_value, "new": new_value}
    ]


def test_an_added_and_a_removed_option_are_one_change_each() -> None:
    one, two = bodies.option(optionNo=1, sizeGuide=""), bodies.option(optionNo=2)
    before, after = merged(sources(options=options_of(one))), merged(sources(options=options_of(two)))

    changes = diff(before, after)

    assert [(change.type, change.field) for change in changes] == [
        (ChangeType.OPTION, "options[1]"),
        (ChangeType.OPTION, "options[2]"),
    ]
    assert changes[0].old == {"optionNo": 1, "color": "블랙", "size": "US 4", "stock": 1, "sizeGuide": ""}
    assert changes[0].new is None
    assert changes[1].old is None


@pytest.mark.parametrize(("new", "expected"), TOGETHER, ids=lambda value: str(value)[:48])
def test_a_field_that_follows_from_another_changes_with_it(
    new: Sources, expected: list[tuple[str, str, object, object]]
) -> None:
    first = sources()
    data = merged(first)

    changes = diff(data, merged(new, first, data))

    assert [(change.type, change.field, change.old, change.new) for change in changes] == expected


def fields_of(data: Mapping[str, Any]) -> set[str]:
    """Every field of a product that can change, as changes name it."""
    nested = {f"{group}.{key}" for group in ("category", "shipping") for key in data[group]}
    options = {f"options[{option['optionNo']}].{key}" for option in data["options"] for key in option}
    identity = {"itemNo", "sellerId", f"options[{NO}].optionNo"}
    return (data.keys() - {"category", "shipping", "options"} | nested | options) - identity


def test_every_field_of_a_product_has_its_change_here() -> None:
    alone = {field for _, _, field, _, _ in CHANGES}
    together = {field for _, expected in TOGETHER for _, field, _, _ in expected}

    assert alone | together == fields_of(merged(sources()))


IMAGES = ["https://image.example/1.jpeg", "https://image.example/2.jpeg", "https://image.example/3.jpeg"]


@settings(deadline=None)
@given(st.permutations(IMAGES), st.permutations(IMAGES), st.booleans())
def test_images_in_another_order_are_one_change_of_images(one: list[str], other: list[str], banners: bool) -> None:
    def shown(images: list[str]) -> Sources:
        if banners:
            return sources(detail=detail_of(ProductBannersModule={"images": images}))
        return sources(listing_of(imageUrlList=images), detail_of(ProductBannersModule={"images": []}))

    before = merged(shown(one))
    changes = diff(before, merged(shown(other), shown(one), before))

    expected = [] if one == other else [{"type": "IMAGE", "field": "images", "old": one, "new": other}]
    assert [change.as_json() for change in changes] == expected


PRODUCTS = st.lists(st.sampled_from(CHANGES), max_size=1).map(lambda picked: picked[0][0] if picked else sources())


@settings(deadline=None)
@given(PRODUCTS, PRODUCTS)
def test_a_diff_is_symmetric_and_empty_exactly_on_equal_products(one: Sources, other: Sources) -> None:
    a, b = merged(one), merged(other)
    there = [(change.type, change.field, change.old, change.new) for change in diff(a, b)]
    back = [(change.type, change.field, change.new, change.old) for change in diff(b, a)]

    assert there == back
    assert (there == []) == (a == b)
