"""The contract's product event, read strictly: whatever it does not allow is refused with the reason."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast
from urllib.parse import quote
from uuid import UUID

import orjson

from mustit_pipeline.simulator.product_data import ProductDataError, check_product_data, is_number

EVENT_TYPES = ("PRODUCT_CREATED", "PRODUCT_UPDATED", "PRODUCT_DELETED")
CHANGE_TYPES = frozenset(
    {"PRICE", "STOCK", "OPTION", "IMAGE", "DESCRIPTION", "PRODUCT_INFO", "CREATED", "DELETED", "RESTORED"}
)
_MEMBERS = ("eventId", "eventType", "sellerId", "itemNo", "version", "occurredAt", "changes", "productData")


class MalformedEventError(ValueError):
    """The request is not an event of the contract; the message says why."""


@dataclass(frozen=True, slots=True)
class ProductEvent:
    """One event whose every part has been checked."""

    key: str
    event_id: str
    event_type: str
    seller_id: str
    item_no: int
    version: int
    occurred_at: str
    changes: list[dict[str, Any]]
    product_data: dict[str, Any] | None


def read_event(headers: Mapping[str, str], body: bytes) -> ProductEvent:
    """The event, or a MalformedEventError."""
    if headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
        raise MalformedEventError("Content-Type must be application/json")
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MalformedEventError(f"the body is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise MalformedEventError("the body must be an object")
    event = cast("dict[str, Any]", document)
    if missing := [name for name in _MEMBERS if name not in event]:
        raise MalformedEventError(f"the body lacks {', '.join(missing)}")
    _check_identity(event)
    _check_changes(event["eventType"], event["changes"])
    _check_data(event)
    expected = f"{quote(event['sellerId'], safe='')}:{event['itemNo']}:{event['version']}"
    key = headers.get("Idempotency-Key", "")
    if key != expected:
        raise MalformedEventError(f"Idempotency-Key must be {expected}, not {key!r}")
    return ProductEvent(key, *(event[name] for name in _MEMBERS))


def _check_identity(event: dict[str, Any]) -> None:
    if event["eventType"] not in EVENT_TYPES:
        raise MalformedEventError(f"eventType must be one of {', '.join(EVENT_TYPES)}, not {event['eventType']!r}")
    if not isinstance(event["sellerId"], str) or not event["sellerId"].strip():
        raise MalformedEventError("sellerId must be a text that is not blank")
    for name in ("itemNo", "version"):
        if not is_number(event[name]) or event[name] < 1:
            raise MalformedEventError(f"{name} must be a positive whole number, not {event[name]!r}")
    try:
        UUID(event["eventId"])
    except (ValueError, TypeError, AttributeError) as error:
        raise MalformedEventError(f"eventId must be a UUID, not {event['eventId']!r}") from error
    try:
        occurred = datetime.fromisoformat(event["occurredAt"])
    except (ValueError, TypeError) as error:
        raise MalformedEventError(f"occurredAt must be an ISO 8601 time, not {event['occurredAt']!r}") from error
    if occurred.tzinfo is None:
        raise MalformedEventError("occurredAt must say its time zone")


def _check_changes(event_type: str, changes: Any) -> None:
    if not isinstance(changes, list):
        raise MalformedEventError("changes must be a list")
    if event_type == "PRODUCT_CREATED" and changes:
        raise MalformedEventError("changes of PRODUCT_CREATED must be empty")
    for entry in cast("list[Any]", changes):
        change = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        if not {"type", "field", "old", "new"} <= change.keys():
            raise MalformedEventError(f"a change must have type, field, old and new: {entry!r:.200}")
        if change["type"] not in CHANGE_TYPES or not isinstance(change["field"], str):
            raise MalformedEventError(f"a change must have a known type and a field name: {change!r:.200}")


def _check_data(event: dict[str, Any]) -> None:
    data = event["productData"]
    if event["eventType"] == "PRODUCT_DELETED":
        if data is not None:
            raise MalformedEventError("productData of PRODUCT_DELETED must be null")
        return
    try:
        check_product_data(data)
    except ProductDataError as error:
        raise MalformedEventError(str(error)) from error
    if (data["sellerId"], data["itemNo"]) != (event["sellerId"], event["itemNo"]):
        raise MalformedEventError("productData is another product's")
