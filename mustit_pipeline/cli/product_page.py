"""One version of one product on the screen."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from mustit_pipeline.catalog.history import state
from mustit_pipeline.catalog.sql.history import KnownProduct, Version
from mustit_pipeline.cli.list_options import shortened
from mustit_pipeline.cli.output import local, out, print_fields, print_table, printable
from mustit_pipeline.cli.values import value_text
from mustit_pipeline.domain.states import ChangeType, LifeCycle

LEVELS = ("header", "large", "medium", "small")
DESCRIPTION_SHOWN = 200


def print_product(product: KnownProduct, version: Version | None) -> None:
    """Print the product's state, then its data; options in their own table."""
    data = state(product.data if version is None else version.data)
    fields = {"item": product.item_no, "seller": product.seller_id, **dict(_standing(product, version))}
    print_fields(fields | (dict(_content(data)) if data else {}))
    if version is not None and version.change_set.life_cycle is LifeCycle.DELETED:
        out.print(
            f"Version {version.change_set.version} is its deletion; `mustit product history {product.item_no}` lists "
            "what it was before.",
            highlight=False,
            soft_wrap=True,
        )
    if options := data.get("options"):
        print_table(
            "1 option" if len(options) == 1 else f"{len(options)} options",
            ["option", "color", "size", "stock", "guide"],
            [(o["optionNo"], o["color"], o["size"], o["stock"], o["sizeGuide"]) for o in options],
        )


def _standing(product: KnownProduct, version: Version | None) -> Iterator[tuple[str, str]]:
    if version is None:
        seen = {"listing": product.listing_seen, "detail": product.detail_seen, "options": product.options_seen}
        missing = ", ".join(source for source, was_seen in seen.items() if not was_seen)
        waits = f"not seen yet: {missing}" if missing else "complete, and published by the next processing"
        yield "version", f"none; nothing is sent ({waits})"
    else:
        found = version.change_set
        of = "newest" if found.version == product.version else f"of {product.version}"
        yield "version", f"{found.version} ({of}), {found.life_cycle} {local(found.detected_at)}"
        delivered = product.delivered_version
        yield "product server", f"has version {delivered}" if delivered else "has none of it"
    yield "first seen", local(product.created_at)
    yield "last seen", local(product.last_seen_at)
    if product.deleted_at is not None:
        yield "deleted", local(product.deleted_at)
    elif product.absent_sweeps:
        yield "absent", f"from {product.absent_sweeps} sweeps in a row"


def _content(data: Mapping[str, Any]) -> Iterator[tuple[str, str | Text]]:
    yield "name", value_text(data["name"])
    brand = " ".join(part for part in (data["brandName"], data["brandNameKr"]) if part)
    yield "brand", brand + (f" ({data['brandCode']})" if data["brandCode"] is not None else "")
    category: Mapping[str, Any] = data["category"] or {}
    levels = [category.get(level) for level in LEVELS]
    yield "category", " › ".join(str(level["name"]) for level in levels if level) or value_text(None)
    yield "normal price", value_text(data["normalPrice"], ChangeType.PRICE)
    yield "selling price", value_text(data["sellingPrice"], ChangeType.PRICE)
    rate = "" if data["discountRate"] is None else f" ({data['discountRate']} % off)"
    yield "discount price", value_text(data["discountPrice"], ChangeType.PRICE) + rate
    yield "stock", value_text(data["stock"]) + (", sold out" if data["soldOut"] else "")
    yield "status", value_text(data["itemStatus"])
    yield "origin", value_text(data["originCountry"])
    yield "tags", value_text(data["tags"])
    yield "shipping", _shipping(data["shipping"] or {})
    yield "images", Text(printable("\n".join(data["images"])) or "(none)", overflow="fold")
    described = shortened(data["description"], DESCRIPTION_SHOWN)
    size = f"{len(data['description']):,} characters, {len(data['descriptionImages'])} images"
    yield "description", f"{size}\n{described}" if described else "(empty)"


def _shipping(shipping: Mapping[str, Any]) -> str:
    fee = "free" if shipping.get("free") else value_text(shipping.get("fee"), ChangeType.PRICE)
    parts = (shipping.get("type"), shipping.get("feeType"), fee, shipping.get("averageDelivery"))
    return ", ".join(part for part in parts if part)
