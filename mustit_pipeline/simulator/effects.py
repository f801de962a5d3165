"""The product server's state and every effect behind it, in an append-only journal."""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson

from mustit_pipeline.simulator.journal import Journal
from mustit_pipeline.simulator.product_events import ProductEvent

Key = tuple[str, int]


class Outcome(Enum):
    """The result of an event."""

    APPLIED = "applied"
    REPEATED = "repeated"
    STALE = "stale"


@dataclass(frozen=True, slots=True)
class Held:
    """A product's latest state; a deleted one keeps its version, so that older events stay stale."""

    version: int
    data: bytes | None

    def as_json(self, key: Key) -> dict[str, Any]:
        return {
            "sellerId": key[0],
            "itemNo": key[1],
            "version": self.version,
            "deleted": self.data is None,
            "productData": None if self.data is None else orjson.Fragment(self.data),
        }


class Effects:
    """An event is in the journal before it counts, and it counts once."""

    def __init__(self, journal_path: Path) -> None:
        self.held: dict[Key, Held] = {}
        self.log: list[dict[str, Any]] = []
        self._applied: dict[str, bytes] = {}
        self.contradictions = 0
        self.updates_of_unknown = 0
        self._journal = Journal(journal_path)
        for record in self._journal.replay():
            self._apply(record)

    def close(self) -> None:
        """Release the journal."""
        self._journal.close()

    def receive(self, event: ProductEvent) -> Outcome:
        """Apply the event unless it is a repetition or older than what is held."""
        data = None if event.product_data is None else _canonical(event.product_data)
        if event.key in self._applied:
            if self._applied[event.key] != _fingerprint(event.event_type, data):
                self.contradictions += 1
            return Outcome.REPEATED
        held = self.held.get((event.seller_id, event.item_no))
        if held is not None and event.version <= held.version:
            return Outcome.STALE
        if event.event_type == "PRODUCT_UPDATED" and (held is None or held.data is None):
            self.updates_of_unknown += 1
        record = {
            "seq": len(self.log) + 1,
            "key": event.key,
            "eventId": event.event_id,
            "eventType": event.event_type,
            "sellerId": event.seller_id,
            "itemNo": event.item_no,
            "version": event.version,
            "at": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
            "occurredAt": event.occurred_at,
            "changes": event.changes,
            "productData": event.product_data,
        }
        self._journal.append(record)
        self._apply(record)
        return Outcome.APPLIED

    def version(self, seller_id: str, item_no: int) -> int:
        """The version held, 0 if none."""
        held = self.held.get((seller_id, item_no))
        return 0 if held is None else held.version

    def _apply(self, record: dict[str, Any]) -> None:
        data = record.pop("productData")
        kept = None if data is None else _canonical(data)
        self.held[record["sellerId"], record["itemNo"]] = Held(record["version"], kept)
        self._applied[record["key"]] = _fingerprint(record["eventType"], kept)
        self.log.append(record)


def _fingerprint(event_type: str, data: bytes | None) -> bytes:
    return blake2b(event_type.encode() + (data or b""), digest_size=16).digest()


def _canonical(data: dict[str, Any]) -> bytes:
    return orjson.dumps(data, option=orjson.OPT_SORT_KEYS)
