"""The event that a claimed outbox row goes out as."""

from typing import Any

import orjson

from mustit_pipeline.catalog.diff import diff
from mustit_pipeline.domain.states import LifeCycle, ProductEventType
from mustit_pipeline.outbox.sql.outbox import ClaimedEvent


def event_type(event: ClaimedEvent) -> ProductEventType | None:
    """What the product server has to be told; None where it never heard of the product that is gone."""
    if event.life_cycle == LifeCycle.DELETED:
        known = event.delivered_version > 0 or event.tried_before
        return ProductEventType.PRODUCT_DELETED if known else None
    delivered_alive = event.delivered_version > 0 and event.delivered_data is not None and not event.may_be_deleted
    if event.life_cycle == LifeCycle.UPDATED and delivered_alive:
        return ProductEventType.PRODUCT_UPDATED
    return ProductEventType.PRODUCT_CREATED


def event_body(event: ClaimedEvent, kind: ProductEventType) -> bytes:
    """The JSON body: the whole state, and the changes since the version that was delivered last."""
    return orjson.dumps(
        {
            "eventId": event.event_id,
            "eventType": kind.value,
            "sellerId": event.seller_id,
            "itemNo": event.item_no,
            "version": event.version,
            "occurredAt": event.occurred_at,
            "changes": _changes(event, kind),
            "productData": None if event.product_data is None else orjson.Fragment(event.product_data),
        }
    )


def _changes(event: ClaimedEvent, kind: ProductEventType) -> Any:
    if kind is not ProductEventType.PRODUCT_UPDATED or event.delivered_data is None or event.product_data is None:
        return []
    if event.delivered_version == event.version - 1:
        return orjson.Fragment(event.changes)
    before, after = orjson.loads(event.delivered_data), orjson.loads(event.product_data)
    return [change.as_json() for change in diff(before, after)]
