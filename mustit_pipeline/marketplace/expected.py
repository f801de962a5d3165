"""The known shape of the marketplace's bodies, including fields that the parser does not read."""

from types import NoneType
from typing import Any, cast

from mustit_pipeline.domain.drift import Deviation, DriftKind
from mustit_pipeline.marketplace.fields import amount, code, filled, flag, identity, number, rate, text, texts, titles
from mustit_pipeline.marketplace.models import BANNERS, DETAIL_INFO, INFO, SHIPPING
from mustit_pipeline.marketplace.shape import LONE_SURROGATE, Examination, Field, Flaw, Shape, type_name


def _field(*types: type, **more: Any) -> Field:
    return Field(frozenset(types), **more)


# Fields that are read. An optional one may be null.
_IDENTITY = _field(int, float, str, read=identity)
_NUMBER = _field(int, float, str, read=number)
_MAYBE_NUMBER = _field(int, float, str, NoneType, read=number)
_AMOUNT = _field(int, float, str, read=amount)
_MAYBE_AMOUNT = _field(int, float, str, NoneType, read=amount)
_RATE = _field(int, float, str, NoneType, read=rate)
_NAME = _field(str, read=filled)
_TEXT = _field(str, NoneType, read=text)
_RARE_TEXT = _field(str, NoneType, optional=True, read=text)
_CODE = _field(str, int, NoneType, read=code)
_RARE_CODE = _field(str, int, NoneType, optional=True, read=code)
_FLAG = _field(bool, str, read=flag)
# Known fields that are not read.
_SOME_TEXT = _field(str, NoneType, optional=True)
_SOME_NUMBER = _field(int, float, str, NoneType, optional=True)
_SOME_FLAG = _field(bool, str, NoneType, optional=True)
_SOME_OBJECT = _field(dict, NoneType, optional=True)
_SOME_LIST = _field(list, NoneType, optional=True)

_TAG = Shape(title=_TEXT, textColor=_SOME_TEXT, bgColor=_SOME_TEXT, borderColor=_SOME_TEXT)

ITEM = Shape(
    itemNo=_IDENTITY,
    name=_NAME,
    brandName=_TEXT,
    price=_AMOUNT,
    originalPrice=_AMOUNT,
    normalPrice=_AMOUNT,
    discountRate=_RATE,
    appPrice=_MAYBE_AMOUNT,
    appDiscountRate=_RATE,
    imageUrlList=_field(list, read=texts, named="image_urls"),
    tagList=_field(list, NoneType, read=titles, inside=_TAG, named="tags"),
    landingUrl=_TEXT,
    likeStatus=_SOME_FLAG,
    likeImageUrl=_SOME_TEXT,
    webSpacingInfo=_SOME_TEXT,
)

LISTING = Shape(count=_NUMBER, items=_field(list, inside=ITEM), groupResult=_SOME_OBJECT, indexName=_SOME_TEXT)

DETAIL = Shape(moduleList=_field(list), bottom=_SOME_OBJECT, nextApiUrl=_SOME_TEXT)

_MODULE = Shape(type=_NAME, data=_field(dict))

SHIPMENT = Shape(
    shippingType=_field(str, NoneType, read=text, named="type"),
    shippingFee=_field(int, float, str, NoneType, read=amount, named="fee"),
    shippingFeeType=_field(str, NoneType, read=text, named="fee_type"),
    averageDeliveryDay=_field(dict, NoneType, optional=True, inside=Shape(text=_TEXT, focusText=_SOME_TEXT)),
    isEachShippingFee=_SOME_FLAG,
    isDirectShipping=_SOME_FLAG,
    isCustomsDuty=_SOME_FLAG,
    bundleDeliverySearchUrl=_SOME_TEXT,
)

MODULES = {
    BANNERS: Shape(images=_field(list, read=texts, named="banner_images"), timesales=_SOME_LIST),
    INFO: Shape(
        sellerNo=_MAYBE_NUMBER,
        sellerId=_NAME,
        itemNo=_IDENTITY,
        itemName=_NAME,
        brandName=_TEXT,
        brandNameKr=_TEXT,
        brandCode=_MAYBE_NUMBER,
        headerCategoryCode=_CODE,
        headerCategory=_TEXT,
        largeCategoryCode=_CODE,
        largeCategory=_TEXT,
        mediumCategoryCode=_CODE,
        mediumCategory=_TEXT,
        smallCategoryCode=_RARE_CODE,
        smallCategory=_RARE_TEXT,
        normalPrice=_AMOUNT,
        sellingPrice=_AMOUNT,
        discountPrice=_AMOUNT,
        discountRate=_RATE,
        stock=_AMOUNT,
        isSoldOut=_FLAG,
        isBoutiqueItem=_SOME_FLAG,
        userDiscountInfo=_SOME_OBJECT,
        badgeList=_SOME_LIST,
        discountDetails=_SOME_OBJECT,
        catalogId=_SOME_NUMBER,
        countPriceComparison=_SOME_NUMBER,
        isPriceComparison=_SOME_FLAG,
        isLowestPrice=_SOME_FLAG,
    ),
    SHIPPING: Shape(
        title=_SOME_TEXT,
        items=_field(list, inside=Shape(type=_SOME_TEXT, data=_field(dict, inside=SHIPMENT)), first_only=True),
    ),
    DETAIL_INFO: Shape(
        originCountry=_TEXT,
        itemStatus=_TEXT,
        shippingLocation=_TEXT,
        salesMethod=_RARE_TEXT,
        descriptionMarkUp=_field(str, NoneType, read=text, named="description_markup"),
        title=_SOME_TEXT,
        itemNo=_SOME_NUMBER,
        sellerEvaluations=_SOME_LIST,
        warningTextSellerStatus=_SOME_LIST,
    ),
}
_PATHS = {kind: f"detail.{kind}" for kind in MODULES}
# Modules that are not read: they are not examined, and may be missing.
OTHER_MODULES = frozenset(
    {
        "NonMemberBannerModule",
        "VerticalMargin",
        "PurchaseBenefitModule",
        "SellerModule",
        "CatalogModule",
        "PromotionBannerModule",
        "LazyComponent",
        "SinglePromotionBannerModule",
        "TabListModule",
    }
)

OPTION = Shape(
    optionNo=_IDENTITY,
    itemNo=_IDENTITY,
    color=_TEXT,
    size=_TEXT,
    stock=_AMOUNT,
    sizeGuide=_TEXT,
    shippingType=_RARE_TEXT,
)


def examine(source: str, document: Any, *, closely: bool = False, replaced: bool = False) -> tuple[Deviation, ...]:
    """How a body differs from the expected shape; `closely` also checks the values, after parsing failed.

    `replaced` says that lone surrogates in its texts became U+FFFD: the fields that hold one are named. A body without
    any expected field is another document, such as a notice, and no drift.
    """
    found = Examination(closely=closely, replaced=replaced)
    if source == "options":
        options = cast("list[Any]", document) if type(document) is list else []
        for option in options:
            # One that was read has what it needs in common.
            if not closely or _akin(OPTION, option):
                found.look(OPTION, option, source)
    elif source == "listing" and _akin(LISTING, document):
        found.look(LISTING, document, source)
    elif source == "detail" and _akin(DETAIL, document):
        found.look(DETAIL, document, source)
        modules = document.get("moduleList")
        if type(modules) is list:
            _examine_modules(found, cast("list[Any]", modules))
    if replaced and not found.named_replaced:
        found.note("", Flaw(source, DriftKind.RETYPED, "text", LONE_SURROGATE))
    return found.deviations


def _akin(shape: Shape, found: Any) -> bool:
    return type(found) is dict and not shape.fields.keys().isdisjoint(cast("dict[str, Any]", found))


def _examine_modules(found: Examination, modules: list[Any]) -> None:
    """Modules are identified by type; if a type occurs twice, the first one counts."""
    missing = dict(_PATHS)
    try:
        telling = [module for module in modules if module["type"] not in OTHER_MODULES]
    except (TypeError, KeyError):
        telling = modules
    for entry in telling:
        module = cast("dict[str, Any]", entry) if type(entry) is dict else {}
        kind = module.get("type")
        if type(kind) is not str:
            found.look(_MODULE, entry, "detail.moduleList")
        elif kind in missing:
            path = missing.pop(kind)
            if len(module) != 2:
                found.look(_MODULE, module, path)
            found.look(MODULES[kind], module.get("data"), path)
        elif kind not in MODULES and kind not in OTHER_MODULES:
            found.note("detail", Flaw(kind, DriftKind.NEW, "", type_name(module.get("data"))), module.get("data"))
    for kind in missing:
        found.note("detail", Flaw(kind, DriftKind.MISSING, "object", ""))
