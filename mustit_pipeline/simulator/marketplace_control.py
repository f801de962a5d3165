"""The marketplace's control API: sellers, products, faults, settings, audit."""

import time
from collections.abc import Sequence
from typing import Any, cast

from mustit_pipeline.simulator.audit import Audit
from mustit_pipeline.simulator.control_input import (
    BadInputError,
    Fields,
    UnknownPathError,
    json_fields,
)
from mustit_pipeline.simulator.faults import FaultSwitch
from mustit_pipeline.simulator.marketplace import Marketplace, in_small_steps
from mustit_pipeline.simulator.mutation import KINDS
from mustit_pipeline.simulator.product_data import is_number
from mustit_pipeline.simulator.truth import product_data
from mustit_pipeline.simulator.world import MissingError

Payload = dict[str, Any] | list[Any]


async def control_marketplace(
    marketplace: Marketplace, method: str, path: Sequence[str], query: dict[str, str], body: bytes
) -> Payload:
    """Do what the call asks and return what it answers."""
    del query
    match (method, *path):
        case ("GET", "sellers"):
            return _sellers(marketplace)
        case ("POST", "sellers"):
            return _add_seller(marketplace, json_fields(body))
        case ("POST", "products", "random-changes"):
            return await _random_changes(marketplace, json_fields(body))
        case ("POST", "products", action) if action in _ACTIONS:
            return _ACTIONS[action](marketplace, json_fields(body))
        case ("GET", "products", seller_id):
            world = marketplace.world
            numbers = world.seller(seller_id).order[::-1]
            return [product_data(world.product(number)) async for number in in_small_steps(numbers)]
        case ("GET", "products", seller_id, number):
            return _one_product(marketplace, seller_id, number)
        case (_, "faults", *rest):
            return control_faults(marketplace.faults, method, rest, body)
        case ("GET", "settings"):
            return marketplace.settings.as_json()
        case ("PATCH", "settings"):
            marketplace.settings = marketplace.settings.patched(json_fields(body))
            return marketplace.settings.as_json()
        case ("POST", "sessions", "forget"):
            marketplace.tokens.forget()
            return {}
        case (_, "audit", *rest):
            return _audit(marketplace.audit, method, rest)
        case _:
            raise UnknownPathError(f"no control call {method} /_control/{'/'.join(path)}")


def _audit(audit: Audit, method: str, path: Sequence[str]) -> Payload:
    match (method, *path):
        case ("GET",):
            return audit.as_json()
        case ("GET", "urls"):
            return audit.urls
        case ("GET", "arrivals"):
            return audit.arrivals
        case ("POST", "reset"):
            audit.reset()
            return {}
        case _:
            raise UnknownPathError(f"no control call {method} /_control/audit/{'/'.join(path)}")


def control_faults(faults: FaultSwitch, method: str, path: Sequence[str], body: bytes) -> Payload:
    """List, switch on and switch off; both servers do it alike."""
    match (method, *path):
        case ("GET",):
            return faults.as_json()
        case ("POST",):
            return {"id": faults.switch_on(json_fields(body), time.monotonic()).id}
        case ("DELETE",):
            faults.switch_off()
            return {}
        case ("DELETE", number) if number.isdecimal() and faults.switch_off(int(number)):
            return {}
        case _:
            raise UnknownPathError(f"no control call {method} /_control/faults/{'/'.join(path)}")


def _sellers(marketplace: Marketplace) -> Payload:
    return [
        {"sellerId": seller.seller_id, "products": len(seller.order), "removed": len(seller.removed)}
        for seller in marketplace.world.sellers.values()
    ]


def _add_seller(marketplace: Marketplace, fields: Fields) -> Payload:
    seller_id, products = fields.seller_id(), fields.integer("products", minimum=0, maximum=1_000_000)
    fields.done()
    marketplace.world.add_seller(seller_id, products)
    return {"sellerId": seller_id, "products": products}


def _one_product(marketplace: Marketplace, seller_id: str, number: str) -> Payload:
    world = marketplace.world
    product = world.on_sale(int(number)) if number.isdecimal() else None
    if product is None or product.seller_id != seller_id:
        raise MissingError(f"seller {seller_id!r} has no product {number} on sale")
    return product_data(product)


def _add(marketplace: Marketplace, fields: Fields) -> Payload:
    seller_id, count = fields.seller_id(), fields.integer("count", minimum=1, maximum=1_000_000)
    fields.done()
    return {"itemNos": marketplace.world.add_products(seller_id, count)}


def _change(marketplace: Marketplace, fields: Fields) -> Payload:
    seller_id, number = fields.seller_id(), fields.integer("itemNo", minimum=1, maximum=2**53)
    new = fields.any("fields")
    if new is None:
        kind = fields.choice("kind", KINDS)
        fields.done()
        return _changed(marketplace, seller_id, number, kind)
    if "kind" in fields or not isinstance(new, dict) or not new:
        raise BadInputError("give either kind, or fields as an object of productData fields and their new values")
    fields.done()
    changes = marketplace.world.change(seller_id, number, cast("dict[str, Any]", new))
    return {"sellerId": seller_id, "itemNo": number, "kind": None, "changes": changes}


async def _random_changes(marketplace: Marketplace, fields: Fields) -> Payload:
    seller_id, count = fields.seller_id(), fields.integer("count", minimum=1)
    kinds = fields.list_of("kinds", lambda kind: kind in KINDS, " or ".join(KINDS)) or KINDS
    fields.done()
    chosen = marketplace.world.choose(seller_id, count)
    return {
        "changes": [
            _changed(marketplace, seller_id, number, kinds[place % len(kinds)])
            async for place, number in in_small_steps(enumerate(chosen))
        ]
    }


def _changed(marketplace: Marketplace, seller_id: str, number: int, kind: str) -> dict[str, Any]:
    changes = marketplace.world.random_change(seller_id, number, kind)
    return {"sellerId": seller_id, "itemNo": number, "kind": kind, "changes": changes}


def _remove(marketplace: Marketplace, fields: Fields) -> Payload:
    seller_id, numbers = fields.seller_id(), fields.list_of("itemNos", is_number, "item numbers")
    if numbers is None:
        numbers = marketplace.world.choose(seller_id, fields.integer("count", minimum=1))
    fields.done()
    marketplace.world.remove(seller_id, numbers)
    return {"itemNos": numbers}


def _restore(marketplace: Marketplace, fields: Fields) -> Payload:
    """Without numbers: everything that was removed."""
    seller_id, numbers = fields.seller_id(), fields.list_of("itemNos", is_number, "item numbers")
    fields.done()
    numbers = sorted(marketplace.world.seller(seller_id).removed) if numbers is None else numbers
    marketplace.world.restore(seller_id, numbers)
    return {"itemNos": numbers}


def _shift(marketplace: Marketplace, fields: Fields) -> Payload:
    """At once, or after so many more listing pages: in the middle of a sweep."""
    seller_id, count = fields.seller_id(), fields.integer("count", minimum=1)
    after = fields.optional_integer("afterListings", minimum=1)
    fields.done()
    if after is None:
        return {"itemNos": marketplace.world.shift(seller_id, count)}
    marketplace.shift_after(seller_id, count, after)
    return {"itemNos": []}


_ACTIONS = {
    "add": _add,
    "change": _change,
    "remove": _remove,
    "restore": _restore,
    "shift": _shift,
}
