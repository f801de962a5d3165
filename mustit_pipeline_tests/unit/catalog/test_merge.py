"""One productData out of three sources that may disagree for ever."""

from mustit_pipeline.catalog.diff import diff
from mustit_pipeline.catalog.product_data import FIELDS, Sources
from mustit_pipeline_tests.unit.catalog.reading import detail_of, listing_of, merged, options_of, sources
from mustit_pipeline_tests.unit.marketplace import bodies


def test_the_product_has_every_field_of_the_contract_in_its_form() -> None:
    data = merged(sources())

    assert tuple(data) == FIELDS
    assert data["category"] == {
        "header": {"code": "W", "name": "여성"},
        "large": {"code": "16", "name": "가방"},
        "medium": {"code": "16r05", "name": "백팩"},
        "small": None,
    }
    assert data["shipping"] == {
        "type": "DOMESTIC",
        "fee": 3000,
        "feeType": "PAID",
        "averageDelivery": "평균 배송 1일 소요",
        "free": False,
    }
    assert data["options"] == [
        {"optionNo": 4134224619, "color": "블랙", "size": "US 4", "stock": 1, "sizeGuide": "정사이즈"}
    ]
    assert data["descriptionImages"] == ["https://image.example/d1.jpg"]
    assert (data["normalPrice"], data["sellingPrice"], data["discountPrice"]) == (1083000, 621000, 565100)


def test_images_of_a_description_are_composed_unicode() -> None:
    text = bodies.detail_info(descriptionMarkUp='<img src="/e&#769;.jpg"><img src=" ">')
    data = merged(sources(detail=detail_of(ProductDetailInfoModule=text)))
    assert data["descriptionImages"] == ["/\u00e9.jpg"]


def test_listing_and_detail_that_disagree_for_ever_make_no_change() -> None:
    now = sources(listing_of(name="목록 이름", price="545,600"), detail_of())
    data = merged(now)

    assert merged(now, now, data) == data
    assert (data["name"], data["discountPrice"]) == ("여성 백팩", 565100)


def test_a_source_replaces_a_value_when_its_own_value_changes() -> None:
    first = sources()
    second = sources(listing=listing_of(price="500,000", name="새 이름"))
    data = merged(first)

    changed = merged(second, first, data)

    assert [(change.field, change.old, change.new) for change in diff(data, changed)] == [
        ("name", "여성 백팩", "새 이름"),
        ("discountPrice", 565100, 500000),
    ]
    third = sources(second.listing, detail_of(ProductInfoModule=bodies.info(discountPrice=490000)))
    assert merged(third, second, changed)["discountPrice"] == 490000
    assert merged(third, second, changed)["name"] == "새 이름"


def test_a_value_that_no_source_says_was_merged_under_other_rules_and_gives_way() -> None:
    now = sources(listing=listing_of(tagList=None))
    data = merged(now)
    wrong = data | {"descriptionImages": [], "normalPrice": 1, "tags": ["옛 규칙"]}

    assert merged(now, now, wrong) == data
    listings = data | {"normalPrice": 1075000}
    assert merged(now, now, listings) == listings


def test_a_field_that_an_older_version_did_not_have_is_filled() -> None:
    data = merged(sources())
    older = {field: value for field, value in data.items() if field not in {"descriptionImages", "soldOut"}}

    assert merged(sources(), sources(), older) == data


def test_an_unrelated_change_of_a_source_brings_none_of_its_old_values_back() -> None:
    first = sources()
    second = sources(listing=listing_of(price="500,000"))
    data = merged(second, first, merged(first))
    third = sources(second.listing, detail_of(ProductInfoModule=bodies.info(stock=9)))

    changed = merged(third, second, data)

    assert [(change.field, change.new) for change in diff(data, changed)] == [("stock", 9)]


def test_what_the_detail_never_said_does_not_erase_what_the_listing_says() -> None:
    silent = detail_of(ProductInfoModule=bodies.info(discountPrice=None, normalPrice=""))
    data = merged(sources(detail=silent))

    assert (data["discountPrice"], data["normalPrice"]) == (545600, 1075000)


def test_absent_values_have_the_contracts_empty_forms() -> None:
    bare = {"sellerId": "dmont", "itemNo": bodies.ITEM_NO, "itemName": "여성 백팩"}
    only_info = {"ProductBannersModule": None, "ShippingModule": None, "ProductDetailInfoModule": None}
    listing = listing_of(price=None, originalPrice=None, imageUrlList=None, tagList=None)
    data = merged(sources(listing, detail_of(ProductInfoModule=bare, **only_info), options_of()))

    assert data == {
        "itemNo": bodies.ITEM_NO,
        "sellerId": "dmont",
        "name": "여성 백팩",
        "brandName": "",
        "brandNameKr": "",
        "brandCode": None,
        "category": {"header": None, "large": None, "medium": None, "small": None},
        "normalPrice": None,
        "sellingPrice": None,
        "discountPrice": None,
        "discountRate": None,
        "stock": None,
        "soldOut": False,
        "images": [],
        "tags": [],
        "description": "",
        "descriptionImages": [],
        "originCountry": "",
        "itemStatus": "",
        "shipping": {"type": "", "fee": None, "feeType": "", "averageDelivery": "", "free": False},
        "options": [],
    }


def test_a_module_that_disappears_leaves_its_fields_and_one_that_returns_is_compared_with_them() -> None:
    first = sources()
    data = merged(first)
    gone = {"ProductBannersModule": None, "ShippingModule": None, "ProductDetailInfoModule": None}

    lacking = sources(detail=detail_of(first.detail, **gone))
    back = sources(detail=detail_of(lacking.detail, ShippingModule=bodies.shipping(shippingFee=2500)))

    assert merged(lacking, first, data) == data
    assert [change.field for change in diff(data, merged(back, lacking, data))] == ["shipping.fee"]


def test_images_are_the_listings_while_the_detail_has_none() -> None:
    bare = sources(detail=detail_of(ProductBannersModule={"images": []}))
    data = merged(bare)
    assert data["images"] == ["https://image.example/1.jpeg", "https://image.example/2.jpeg"]

    moved = Sources(listing_of(imageUrlList=["https://image.example/3.jpeg"]), bare.detail, bare.options)
    later = merged(moved, bare, data)
    assert later["images"] == ["https://image.example/3.jpeg"]

    banners = Sources(moved.listing, detail_of(), bare.options)
    assert merged(banners, moved, later)["images"] == ["https://image.example/b1.jpeg"]


def test_with_banner_images_the_listings_images_do_not_count() -> None:
    first = sources()
    second = sources(listing=listing_of(imageUrlList=["https://image.example/9.jpeg"]))
    data = merged(first)

    assert merged(second, first, data) == data


def test_tags_are_the_sorted_titles_and_options_are_ordered_by_number() -> None:
    tags = [{"title": title} for title in ("해외배송", "무료배송", "")]
    options = options_of(bodies.option(optionNo=9), bodies.option(optionNo=2))
    data = merged(sources(listing_of(tagList=tags), options=options))

    assert data["tags"] == ["무료배송", "해외배송"]
    assert [option["optionNo"] for option in data["options"]] == [2, 9]
