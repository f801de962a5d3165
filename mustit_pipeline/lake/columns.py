"""The columns of the lake's tables, each with what it says: one place for Parquet, Dagster and the documents.

`day` and `seller` are names of folders, and so no columns of the files.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from mustit_pipeline.catalog.product_data import CATEGORY_LEVELS


def library(name: str) -> Any:
    """A library that only the lake needs, imported when it is first used: together they take a second."""
    # Arrow's own allocator, which it chooses when it is imported, would keep 25 MB that nothing needs.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    return import_module(name)


@dataclass(frozen=True, slots=True)
class Column:
    """A column, its type in SQL's words, and where in productData its value stands."""

    name: str
    type: str
    description: str
    path: tuple[str, ...] = ()


OPTIONS_TYPE = "struct(option_no bigint, color text, size text, stock bigint, size_guide text)[]"
OPTION_FIELDS = {"optionNo": "option_no", "color": "color", "size": "size", "stock": "stock", "sizeGuide": "size_guide"}

PRODUCT_CATALOG = (
    Column("seller_id", "text", "The seller"),
    Column("item_no", "bigint", "The product; unique for a seller and day"),
    Column("version", "integer", "The product's newest version at the end of the day"),
    Column("version_at", "timestamptz", "When that version was detected, in UTC"),
    Column("name", "text", "Name", ("name",)),
    Column("brand_name", "text", "Brand", ("brandName",)),
    Column("brand_name_kr", "text", "Brand in Korean", ("brandNameKr",)),
    Column("brand_code", "bigint", "The marketplace's number of the brand", ("brandCode",)),
    *(
        Column(f"category_{level}_{part}", "text", f"Category, level {level}: {part}", ("category", level, part))
        for level in CATEGORY_LEVELS
        for part in ("code", "name")
    ),
    Column("normal_price", "bigint", "Price before any discount, in won", ("normalPrice",)),
    Column("selling_price", "bigint", "Price that the seller asks, in won", ("sellingPrice",)),
    Column("discount_price", "bigint", "Price that a customer pays, in won", ("discountPrice",)),
    Column("discount_rate", "bigint", "Discount in percent", ("discountRate",)),
    Column("stock", "bigint", "Pieces in stock", ("stock",)),
    Column("sold_out", "boolean", "Whether the marketplace shows it as sold out", ("soldOut",)),
    Column("images", "text[]", "Addresses of the images, in order", ("images",)),
    Column("tags", "text[]", "Titles of the tags, sorted", ("tags",)),
    Column("description", "text", "Description, HTML as received", ("description",)),
    Column("description_images", "text[]", "Addresses of the images in the description", ("descriptionImages",)),
    Column("origin_country", "text", "Country of origin", ("originCountry",)),
    Column("item_status", "text", "Condition of the item, for example 새상품", ("itemStatus",)),
    Column("shipping_type", "text", "Kind of shipping", ("shipping", "type")),
    Column("shipping_fee", "bigint", "Shipping fee in won", ("shipping", "fee")),
    Column("shipping_fee_type", "text", "Kind of shipping fee", ("shipping", "feeType")),
    Column("shipping_average_delivery", "text", "Usual time of delivery, as text", ("shipping", "averageDelivery")),
    Column("shipping_free", "boolean", "Whether shipping is free", ("shipping", "free")),
    Column("options", OPTIONS_TYPE, "Options, by number", ("options",)),
)

PRODUCT_CHANGES = (
    Column("seller_id", "text", "The seller"),
    Column("item_no", "bigint", "The product"),
    Column("version", "integer", "The version that the change made"),
    Column("life_cycle", "text", "CREATED, UPDATED, DELETED or RESTORED"),
    Column("change_type", "text", "PRICE, STOCK, OPTION, IMAGE, DESCRIPTION or PRODUCT_INFO; null without a field"),
    Column("field", "text", "The changed field, like options[4134224619].stock; null where the version has none"),
    Column("old_value", "text", "Its value before: text as it is, all else as JSON"),
    Column("new_value", "text", "Its value since"),
    Column("old_number", "bigint", "Its value before, where it is a number"),
    Column("new_number", "bigint", "Its value since, where it is a number"),
    Column("execution_id", "text", "The crawl that found it"),
    Column("detected_at", "timestamptz", "When it was detected, in UTC"),
)


def arrow_schema(columns: Sequence[Column]) -> Any:
    """The schema of the files; a description is part of each field."""
    arrow = library("pyarrow")
    types = arrow_types()
    return arrow.schema(
        [arrow.field(one.name, types[one.type], metadata={"description": one.description}) for one in columns]
    )


def arrow_types() -> Mapping[str, Any]:
    """Arrow's type for each type in SQL's words: a column without a single value keeps its type."""
    arrow = library("pyarrow")
    text, number = arrow.string(), arrow.int64()
    kinds = {"optionNo": number, "stock": number}
    option = arrow.struct([(name, kinds.get(told, text)) for told, name in OPTION_FIELDS.items()])
    return {
        "text": text,
        "bigint": number,
        "integer": arrow.int32(),
        "double precision": arrow.float64(),
        "boolean": arrow.bool_(),
        "date": arrow.date32(),
        "timestamptz": arrow.timestamp("us", tz="UTC"),
        "text[]": arrow.list_(text),
        OPTIONS_TYPE: arrow.list_(option),
    }
