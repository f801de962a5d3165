"""What a contender of the relay benchmark is told and reports, and the event that each of them sends."""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from uuid import uuid4

import orjson

from benchmarks.job import Outcome, peak_bytes
from mustit_pipeline_tests.faults.backlog import DATA

SELLER = "bench"
EVENTS_PATH = "/api/v1/product-events"


@dataclass(frozen=True, slots=True)
class RelayJob:
    """So many events for one product server, queued in a database of the contender's own."""

    server_url: str
    database_url: str
    redis_url: str
    home: str
    events: int
    in_flight: int

    @property
    def address(self) -> str:
        """Where events are posted."""
        return self.server_url + EVENTS_PATH


def key_of(item_no: int) -> str:
    """The idempotency key of a product's first version."""
    return f"{SELLER}:{item_no}:1"


def body_of(item_no: int) -> bytes:
    """The body that our relay makes of a product's first version, byte for byte as long."""
    return orjson.dumps(
        {
            "eventId": str(uuid4()),
            "eventType": "PRODUCT_CREATED",
            "sellerId": SELLER,
            "itemNo": item_no,
            "version": 1,
            "occurredAt": "2026-11-16T00:00:00.000Z",
            "changes": [],
            "productData": {"itemNo": item_no, "sellerId": SELLER, "name": "상품"} | DATA,
        }
    )


def contend(send: Callable[[RelayJob], Outcome]) -> None:
    """The whole life of a contender's process: a job as its argument, the outcome as its last line of output."""
    outcome = send(RelayJob(**json.loads(sys.argv[1])))
    outcome.peak_bytes = peak_bytes()
    print(json.dumps(asdict(outcome)), flush=True)
