"""Parsing of the marketplace's three bodies from untrusted bytes to typed values; errors are MalformedBody."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import orjson

from mustit_pipeline.domain.drift import Deviation
from mustit_pipeline.foundation.failures import MalformedBody
from mustit_pipeline.marketplace.excerpt import safe_excerpt
from mustit_pipeline.marketplace.expected import ITEM, MODULES, OPTION, SHIPMENT, examine
from mustit_pipeline.marketplace.fields import WrongValue, items, mapping, number, text
from mustit_pipeline.marketplace.models import (
    BANNERS,
    DETAIL_INFO,
    INFO,
    SHIPPING,
    Category,
    ListingEntry,
    ListingPage,
    ProductDetail,
    ProductOption,
    Shipping,
)
from mustit_pipeline.marketplace.usual import usual

T = TypeVar("T")
_read_entry, _read_option = ITEM.reader(ListingEntry), OPTION.reader(ProductOption)

# So many digits always fit 64 bits.
_MOST_DIGITS = 18
_CATEGORIES = tuple((f"{level}_category", f"{level}_category_code") for level in ("header", "large", "medium", "small"))
# An escaped backslash or a surrogate pair, which are kept, or a lone surrogate.
_SURROGATES = re.compile(
    rb"(\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)


@dataclass(frozen=True, slots=True)
class Parser(Generic[T]):
    """Parses one kind of body; `checks` are what it must agree with."""

    source: str
    read: Callable[..., T]

    def __call__(self, body: bytes, drift: list[Deviation] | None = None, **checks: int | None) -> T:
        """What a body says; its drift is added to `drift`, also if parsing fails."""
        known = usual(self.source, body)
        try:
            found = None if known is None else self.read(known, **checks)
        except WrongValue:
            found = None
        # Of items that cannot be read it is told why.
        if found is not None and not (isinstance(found, ListingPage) and found.skipped):
            return found
        document, refused, replaced = None, None, False
        try:
            document, replaced = _decoded(body)
            value = self.read(_modules(document) if self.source == "detail" else document, **checks)
        except orjson.JSONDecodeError as error:
            reason = "the body is empty" if not body.strip() else f"not JSON: {error.msg} at character {error.pos}"
        except WrongValue as error:
            reason, refused = str(error), text_of(body).encode()
            if drift is not None:
                drift += examine(self.source, document, closely=True, replaced=replaced)
        else:
            if drift is not None:
                closely = isinstance(value, ListingPage) and value.skipped > 0
                drift += examine(self.source, document, closely=closely, replaced=replaced)
            return value
        raise MalformedBody(self.source, reason, safe_excerpt(body), document=refused)


def _decoded(body: bytes) -> tuple[Any, bool]:
    """The JSON of a body, and whether lone surrogates in it were replaced: orjson would refuse the whole body."""
    try:
        return orjson.loads(body), False
    except orjson.JSONDecodeError as error:
        try:
            encoded = text_of(body).encode()
        except UnicodeDecodeError:
            raise error from None
        replaced = _SURROGATES.sub(lambda found: found[1] or b"\\ufffd", encoded)
        return _with_any_number(replaced), replaced != body


def text_of(body: bytes) -> str:
    """A body as text that PostgreSQL can hold.

    Some servers encode the two halves of a character apart, which is no UTF-8: pairs are joined, and a half without its
    other becomes U+FFFD. Any other wrong encoding raises UnicodeDecodeError.
    """
    try:
        return body.decode()
    except UnicodeDecodeError:
        halves = body.decode("utf-8", "surrogatepass")
        return halves.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _with_any_number(body: bytes) -> Any:
    """JSON with NaN, Infinity or numbers too large for a float: only their own fields fail, not the whole body."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if "infinity" not in error.msg and b"NaN" not in body and b"Infinity" not in body:
            raise
        try:
            return json.loads(body.decode(), parse_int=_whole)
        except (ValueError, RecursionError):
            raise error from None


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


def _listed(document: Any, most: int | None) -> tuple[int, list[Any]]:
    """A count above `most` is refused: it would plan pages without end."""
    page = mapping(document, "the body")
    count = number(page, "count")
    if count is None or count < 0:
        raise WrongValue("count takes a number from 0 up")
    if most is not None and count > most:
        raise WrongValue(f"count is {count}, and MUSTIT_SELLER_MOST_PRODUCTS is {most}")
    listed = page.get("items")
    if type(listed) is not list:
        raise WrongValue("items takes a list")
    return count, cast("list[Any]", listed)


def _count(document: Any, most: int | None = None) -> int:
    return _listed(document, most)[0]


def _listing(document: Any, most: int | None = None) -> ListingPage:
    count, listed = _listed(document, most)
    # By item number, because a product may be listed twice when a new one moves it; the last entry wins.
    entries: dict[int, ListingEntry] = {}
    skipped = 0
    for item in listed:
        try:
            entry = _read_entry(mapping(item, "items"))
        except WrongValue:
            skipped += 1
        else:
            entries[entry.item_no] = entry
    if listed and not entries:
        raise WrongValue(f"none of the {skipped} items can be read")
    return ListingPage(count, tuple(entries.values()), skipped)


def _detail(modules: dict[str, dict[str, Any]], item_no: int | None = None) -> ProductDetail:
    info = modules.get(INFO)
    if info is None:
        raise WrongValue(f"{INFO} is missing")
    # Another seller's id proves a deletion, so a missing id is refused.
    read = MODULES[INFO].read(info)
    if item_no is not None and read["item_no"] != item_no:
        raise WrongValue(f"the detail is of item {read['item_no']}, not of {item_no}")
    for level, level_code in _CATEGORIES:
        code, name = read.pop(level_code), read[level]
        read[level] = Category(code, name) if code.strip() or name.strip() else None
    shipping: Shipping | None = None
    if (data := modules.get(SHIPPING)) is not None:
        sent, average = SHIPMENT.read(data), data.get("averageDeliveryDay")
        shipping = Shipping(
            average_delivery="" if average is None else text(mapping(average, "averageDeliveryDay"), "text"),
            free=sent["fee"] == 0 or "FREE" in (sent["type"], sent["fee_type"]),
            **sent,
        )
    return ProductDetail(
        modules=frozenset(modules),
        shipping=shipping,
        **read,
        **MODULES[BANNERS].read(modules.get(BANNERS, {})),
        **MODULES[DETAIL_INFO].read(modules.get(DETAIL_INFO, {})),
    )


def _modules(document: Any) -> dict[str, dict[str, Any]]:
    """The known modules with data, by type; if a type occurs twice, the first one counts."""
    listed = mapping(document, "the body").get("moduleList")
    if type(listed) is not list:
        raise WrongValue("moduleList takes a list")
    found: dict[str, dict[str, Any]] = {}
    for entry in cast("list[Any]", listed):
        module = mapping(entry, "moduleList")
        kind = module.get("type")
        if type(kind) is not str or kind not in MODULES or kind in found:
            continue
        data = module.get("data")
        if data is None or type(data) is list:
            continue
        data = mapping(data, kind)
        if kind == SHIPPING:
            shipments = items(data, "items")
            if not shipments:
                continue
            data = mapping(mapping(shipments[0], "ShippingModule.items").get("data"), "ShippingModule.items.data")
        found[kind] = data
    return found


def _options(document: Any, item_no: int | None = None) -> tuple[ProductOption, ...]:
    if type(document) is not list:
        raise WrongValue("the body takes a list")
    options: dict[int, ProductOption] = {}
    for entry in cast("list[Any]", document):
        option = _read_option(mapping(entry, "an option"))
        if item_no is None:
            item_no = option.item_no
        elif option.item_no != item_no:
            raise WrongValue(f"option {option.option_no} is of item {option.item_no}, not of {item_no}")
        options[option.option_no] = option
    return tuple(options.values())


# One listing page; an item that cannot be read is skipped and counted, the rest is kept.
parse_listing = Parser("listing", _listing)
# The product count in any listing page; its items are not parsed.
parse_count = Parser("listing", _count)
# A product's detail, which must be of `item_no` if given.
parse_detail = Parser("detail", _detail)
# A product's options, all of one product (`item_no` if given); an empty list is valid.
parse_options = Parser("options", _options)
