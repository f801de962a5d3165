"""Clients of the two control APIs, for the demo, tests and chaos runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx
import orjson

Data = dict[str, Any]

_TIMEOUT_SECONDS = 60.0


class ControlError(RuntimeError):
    """A control call was refused; the message is the server's."""


@dataclass(frozen=True, slots=True)
class AppliedChange:
    """What a control call really changed, field by field."""

    seller_id: str
    item_no: int
    kind: str | None
    changes: tuple[Data, ...]


@dataclass(frozen=True, slots=True)
class HeldProduct:
    """A product as the product server holds it; product_data is None once deleted."""

    seller_id: str
    item_no: int
    version: int
    deleted: bool
    product_data: Data | None


@dataclass(frozen=True, slots=True)
class Effect:
    """One applied event."""

    seq: int
    key: str
    event_id: str
    event_type: str
    seller_id: str
    item_no: int
    version: int
    at: str
    occurred_at: str
    changes: tuple[Data, ...]


class _Control:
    def __init__(self, url: str, timeout_seconds: float = _TIMEOUT_SECONDS) -> None:
        # Plain HTTP on loopback: loading certificates would only cost 60 ms a client.
        self._client = httpx.Client(
            base_url=f"{url.rstrip('/')}/_control/", timeout=timeout_seconds, trust_env=False, verify=False
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def fault(self, kind: str, endpoint: str = "any", **options: Any) -> int:
        """Switch on (share, agents, items, count, sellerId, itemNo, pageNo, retryAfter, seconds, status); its id."""
        return self._call("POST", "faults", {"kind": kind, "endpoint": endpoint, **options})["id"]

    def faults(self) -> list[Data]:
        """Every active fault, with the numbers of requests seen and hit."""
        return self._call("GET", "faults")

    def clear_faults(self, fault_id: int | None = None) -> None:
        """Switch one off, or all."""
        self._call("DELETE", "faults" if fault_id is None else f"faults/{fault_id}")

    def audit(self) -> Data:
        """What the server saw."""
        return self._call("GET", "audit")

    def reset_audit(self) -> None:
        """Reset the counters."""
        self._call("POST", "audit/reset", {})

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        content = None if body is None else orjson.dumps(body)
        response = self._client.request(method, path, content=content)
        answer = orjson.loads(response.content)
        if response.status_code != HTTPStatus.OK:
            raise ControlError(f"{method} {path}: {response.status_code} {answer.get('error')}")
        return answer


class MarketplaceControl(_Control):
    """Changes the simulated marketplace, and returns the expected product data."""

    def add_seller(self, seller_id: str, products: int) -> None:
        """A new seller with so many products."""
        self._call("POST", "sellers", {"sellerId": seller_id, "products": products})

    def sellers(self) -> dict[str, int]:
        """How many products each seller has on sale."""
        return {seller["sellerId"]: seller["products"] for seller in self._call("GET", "sellers")}

    def add_products(self, seller_id: str, count: int) -> list[int]:
        """New products; returns their numbers."""
        return self._action("add", {"sellerId": seller_id, "count": count})["itemNos"]

    def change(self, seller_id: str, item_no: int, kind: str) -> AppliedChange:
        """One change of that type to that product."""
        return _applied(self._action("change", {"sellerId": seller_id, "itemNo": item_no, "kind": kind}))

    def set_fields(self, seller_id: str, item_no: int, **fields: Any) -> AppliedChange:
        """Set productData fields of a product to given values."""
        return _applied(self._action("change", {"sellerId": seller_id, "itemNo": item_no, "fields": fields}))

    def random_changes(self, seller_id: str, count: int, kinds: Sequence[str] | None = None) -> list[AppliedChange]:
        """One change to each of so many products."""
        body = {"sellerId": seller_id, "count": count, "kinds": kinds}
        return [_applied(change) for change in self._action("random-changes", body)["changes"]]

    def remove(self, seller_id: str, item_nos: Sequence[int] | None = None, *, count: int | None = None) -> list[int]:
        """Take these, or so many, off sale; returns their numbers."""
        which = {"count": count} if item_nos is None else {"itemNos": list(item_nos)}
        return self._action("remove", {"sellerId": seller_id, **which})["itemNos"]

    def restore(self, seller_id: str, item_nos: Sequence[int] | None = None) -> list[int]:
        """Put these back on sale, or all that were removed."""
        which = {} if item_nos is None else {"itemNos": list(item_nos)}
        return self._action("restore", {"sellerId": seller_id, **which})["itemNos"]

    def shift(self, seller_id: str, count: int, *, after_listings: int | None = None) -> list[int]:
        """Move the last entries to the front, now or after so many more listing pages."""
        return self._action("shift", {"sellerId": seller_id, "count": count, "afterListings": after_listings})[
            "itemNos"
        ]

    def products(self, seller_id: str) -> list[Data]:
        """The productData that the product server should hold for this seller, newest first."""
        return self._call("GET", f"products/{quote(seller_id, safe='')}")

    def product(self, seller_id: str, item_no: int) -> Data:
        """The same for one product."""
        return self._call("GET", f"products/{quote(seller_id, safe='')}/{item_no}")

    def settings(self, **changed: Any) -> Data:
        """The settings, after changing those given: requestsPerWindow, latencyMs, noise, …"""
        return self._call("PATCH", "settings", changed)

    def forget_sessions(self) -> None:
        """Refuse every session that was issued so far."""
        self._call("POST", "sessions/forget", {})

    def requested_urls(self) -> dict[str, int]:
        """How often each URL was requested since the last reset."""
        return self._call("GET", "audit/urls")

    def arrivals(self) -> list[float]:
        """When the latest requests arrived, sessions included, in seconds since the epoch; oldest first."""
        return self._call("GET", "audit/arrivals")

    def _action(self, name: str, body: Mapping[str, Any]) -> Any:
        return self._call("POST", f"products/{name}", body)


class ProductServerControl(_Control):
    """Reads the simulated product server's state and log."""

    def state(self, seller_id: str | None = None) -> list[HeldProduct]:
        """Everything held, or one seller's; deleted products are there without data."""
        query = "" if seller_id is None else f"?sellerId={quote(seller_id, safe='')}"
        return [
            HeldProduct(one["sellerId"], one["itemNo"], one["version"], one["deleted"], one["productData"])
            for one in self._call("GET", f"state{query}")["products"]
        ]

    def products(self, seller_id: str) -> dict[int, Data]:
        """The productData of one seller's products that are not deleted, by item number."""
        return {one.item_no: one.product_data for one in self.state(seller_id) if one.product_data is not None}

    def log(self) -> list[Effect]:
        """Every effect in the order it happened."""
        return [
            Effect(
                seq=one["seq"],
                key=one["key"],
                event_id=one["eventId"],
                event_type=one["eventType"],
                seller_id=one["sellerId"],
                item_no=one["itemNo"],
                version=one["version"],
                at=one["at"],
                occurred_at=one["occurredAt"],
                changes=tuple(one["changes"]),
            )
            for one in self._call("GET", "log")["effects"]
        ]


def _applied(change: Data) -> AppliedChange:
    return AppliedChange(change["sellerId"], change["itemNo"], change["kind"], tuple(change["changes"]))
