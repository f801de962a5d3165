"""Faults that can be switched on for a share of the requests; which requests they hit is deterministic."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, cast

from mustit_pipeline.simulator.control_input import BadInputError, Fields


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault and its requests; the endpoint `api` is every endpoint except the session."""

    id: int
    endpoint: str
    kind: str
    share: float
    agents: float | frozenset[str] | None
    count: int | None
    seller_id: str | None
    item_no: int | None
    page_no: int | None
    items: float | frozenset[int] | None
    retry_after: str | None
    seconds: float
    status: int
    until: float | None

    def concerns(self, met: "Met", seed: int) -> bool:
        """Whether the request is in its scope, before the share is applied."""
        if self.endpoint not in ("any", met.endpoint) and not (self.endpoint == "api" and met.endpoint != "session"):
            return False
        wanted = ((self.seller_id, met.seller_id), (self.item_no, met.item_no), (self.page_no, met.page_no))
        if any(one is not None and one != other for one, other in wanted):
            return False
        return _is_among(met.item_no, self.items, seed) and _is_among(met.agent, self.agents, seed, self.id)


@dataclass(frozen=True, slots=True)
class Met:
    """The properties of a request that a fault can match."""

    endpoint: str
    agent: str
    seller_id: str | None
    item_no: int | None
    page_no: int | None


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A kind's endpoints and what its optional values are when not given."""

    endpoints: frozenset[str]
    seconds: float = 0.0
    status: int = 0
    lasts: bool = False
    unread: bool = False


def fraction(*parts: object) -> float:
    """A number from 0 to 1 that depends on nothing but the parts."""
    digest = blake2b("/".join(map(str, parts)).encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big") / 2**48


def _is_among(one: str | int | None, chosen: float | frozenset[str] | frozenset[int] | None, *salt: int) -> bool:
    """Whether it is in a list, or in a share of all; what has none is in neither."""
    if chosen is None or one is None:
        return chosen is None
    return one in chosen if isinstance(chosen, frozenset) else fraction(*salt, one) < chosen


class FaultSwitch:
    """The faults that are on, asked in the order they were switched on."""

    def __init__(self, seed: int, kinds: Mapping[str, FaultKind], endpoints: Collection[str]) -> None:
        self._seed = seed
        self._kinds = kinds
        self._endpoints = endpoints
        self._next_id = 1
        self._on: dict[int, Fault] = {}
        self._seen: dict[int, int] = {}
        self._used: dict[int, int] = {}

    def __bool__(self) -> bool:
        """Whether any is on."""
        return bool(self._on)

    def switch_on(self, fields: Fields, now: float) -> Fault:
        """A new fault as a control call describes it."""
        kind = fields.choice("kind", self._kinds)
        default = self._kinds[kind]
        endpoint = fields.choice("endpoint", ("any", "api", *self._endpoints), default="any")
        if endpoint not in ("any", "api") and endpoint not in default.endpoints:
            raise BadInputError(f"{kind} cannot happen to {endpoint}, only to {', '.join(sorted(default.endpoints))}")
        seconds = fields.number("seconds", minimum=0, maximum=86_400, default=default.seconds)
        fault = Fault(
            id=self._next_id,
            endpoint=endpoint,
            kind=kind,
            share=fields.number("share", minimum=0, maximum=1, default=1.0),
            agents=_agents(fields),
            count=fields.optional_integer("count", minimum=1),
            seller_id=fields.text("sellerId", required=False),
            item_no=fields.optional_integer("itemNo", minimum=1),
            page_no=fields.optional_integer("pageNo", minimum=0),
            items=_items(fields),
            retry_after=_retry_after(fields),
            seconds=seconds,
            status=fields.integer("status", minimum=400, maximum=599, default=default.status),
            until=now + seconds if default.lasts and seconds else None,
        )
        fields.done()
        self._next_id += 1
        self._on[fault.id] = fault
        self._seen[fault.id] = self._used[fault.id] = 0
        return fault

    def switch_off(self, fault_id: int | None = None) -> bool:
        """One fault, or all; says whether there was one."""
        if fault_id is None:
            self._on.clear()
            return True
        return self._on.pop(fault_id, None) is not None

    def choose(
        self,
        endpoint: str,
        agent: str,
        seller_id: str | None,
        item_no: int | None,
        now: float,
        *,
        page_no: int | None = None,
        unread: bool = False,
    ) -> Fault | None:
        """The fault that this request meets, if any: while it lies `unread`, or once it is read and counted."""
        met = Met(endpoint, agent, seller_id, item_no, page_no)
        for fault in self._on.values():
            if fault.until is not None and now >= fault.until:
                continue
            kind = self._kinds[fault.kind]
            if kind.unread is not unread or endpoint not in kind.endpoints:
                continue
            if fault.count is not None and self._used[fault.id] >= fault.count:
                continue
            if fault.concerns(met, self._seed) and self._hits(fault):
                self._used[fault.id] += 1
                return fault
        return None

    def as_json(self) -> list[dict[str, Any]]:
        """Every fault with how many requests it has seen and hit."""
        return [
            {
                "id": fault.id,
                "endpoint": fault.endpoint,
                "kind": fault.kind,
                "share": fault.share,
                "agents": sorted(fault.agents) if isinstance(fault.agents, frozenset) else fault.agents,
                "count": fault.count,
                "sellerId": fault.seller_id,
                "itemNo": fault.item_no,
                "pageNo": fault.page_no,
                "items": sorted(fault.items) if isinstance(fault.items, frozenset) else fault.items,
                "retryAfter": fault.retry_after,
                "seconds": fault.seconds,
                "status": fault.status or None,
                "seen": self._seen[fault.id],
                "used": self._used[fault.id],
            }
            for fault in self._on.values()
        ]

    def _hits(self, fault: Fault) -> bool:
        """Evenly spread: of n requests n·share are hit, and the seed says with which the count starts."""
        seen = self._seen[fault.id]
        self._seen[fault.id] = seen + 1
        every = round(1 / fault.share) if fault.share else 0
        if every and abs(1 / fault.share - every) < 0.05:
            return seen % every == int(fraction(self._seed, fault.id) * every)
        phase = fraction(self._seed, fault.id)
        return int((seen + 1) * fault.share + phase) > int(seen * fault.share + phase)


def _agents(fields: Fields) -> float | frozenset[str] | None:
    value = fields.any("agents")
    if isinstance(value, list):
        agents = cast("list[Any]", value)
        if not all(isinstance(agent, str) for agent in agents):
            raise BadInputError("agents must be a list of User-Agent texts, or a share from 0 to 1")
        return frozenset(agents)
    return None if value is None else fields.number("agents", minimum=0, maximum=1, default=1)


def _items(fields: Fields) -> float | frozenset[int] | None:
    """Products whose own URLs are hit, detail and options alike."""
    value = fields.any("items")
    if isinstance(value, list):
        items = cast("list[Any]", value)
        if not all(type(item) is int for item in items):
            raise BadInputError("items must be a list of item numbers, or a share from 0 to 1")
        return frozenset(items)
    return None if value is None else fields.number("items", minimum=0, maximum=1, default=1)


def _retry_after(fields: Fields) -> str | None:
    """Absent means one second; null or an empty text means that the header is missing."""
    if "retryAfter" not in fields:
        return "1"
    value = fields.any("retryAfter")
    if value is None or value == "":
        return None
    if not isinstance(value, str | int) or isinstance(value, bool) or not str(value).isprintable():
        raise BadInputError(f"retryAfter must be a text, not {value!r}")
    return str(value)
