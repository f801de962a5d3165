"""The simulated product server: the contract's two calls, and their faults."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from hmac import compare_digest
from typing import Any

from aiohttp import web

from mustit_pipeline.simulator.answers import Answer, error_answer, hang, json_answer, reset
from mustit_pipeline.simulator.control_input import BadInputError, UnknownPathError, decoded
from mustit_pipeline.simulator.effects import Effects, Outcome
from mustit_pipeline.simulator.faults import Fault, FaultKind, FaultSwitch, fraction
from mustit_pipeline.simulator.marketplace_control import Payload, control_faults
from mustit_pipeline.simulator.product_events import MalformedEventError, read_event

_EVENTS = frozenset({"events"})
_ALL = frozenset({"events", "products"})

FAULTS: Mapping[str, FaultKind] = {
    "status": FaultKind(_ALL, status=500),
    "timeout_before": FaultKind(_ALL, seconds=30.0),
    "timeout_after": FaultKind(_EVENTS, seconds=30.0),
    "drop_before": FaultKind(_ALL),
    "drop_after": FaultKind(_EVENTS),
    "slow": FaultKind(_ALL, seconds=2.0),
    "late": FaultKind(_EVENTS, seconds=2.0),
    "shuffled": FaultKind(_ALL, seconds=0.2),
    "down": FaultKind(_ALL, lasts=True),
}
_EVENTS_PATH = "/api/v1/product-events"
_PRODUCTS_PATH = "/api/v1/products/"


class ProductServer:
    """Faults first, then the caller's token, then the event or the read."""

    def __init__(self, effects: Effects, seed: int = 1, token: str | None = None) -> None:
        self.effects = effects
        self.faults = FaultSwitch(seed, FAULTS, ("events", "products"))
        self._token = token
        self._open: Counter[str] = Counter()
        self._naps = 0
        self._late: set[asyncio.Task[Answer]] = set()
        self.reset_audit()

    def reset_audit(self) -> None:
        """Start counting anew."""
        self._requests: Counter[str] = Counter()
        self._statuses: Counter[str] = Counter()
        self._outcomes: Counter[str] = Counter()
        self._faults: Counter[str] = Counter()
        self._rejections: list[str] = []
        self._most_open = self._most_open_per_key = 0
        self.effects.contradictions = self.effects.updates_of_unknown = 0

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Every request but those to the control API."""
        path = request.raw_path.partition("?")[0]
        if path == _EVENTS_PATH and request.method == "POST":
            endpoint = "events"
        elif path.startswith(_PRODUCTS_PATH) and request.method == "GET":
            endpoint = "products"
        else:
            return error_answer(404, f"no call {request.method} {path}").response()
        self._requests[endpoint] += 1
        product = _product_named(request, path)
        self._began(product)
        try:
            response = await self._serve(request, endpoint, path)
        finally:
            self._open[product] -= 1
            if not self._open[product]:
                del self._open[product]
        self._statuses[str(response.status)] += 1
        return response

    async def _serve(self, request: web.BaseRequest, endpoint: str, path: str) -> web.StreamResponse:
        body = await request.read()
        seller_id, item_no = _concerned(request, path)
        fault = self.faults.choose(endpoint, "", seller_id, item_no, time.monotonic())
        if fault is not None:
            self._faults[fault.kind] += 1
            before = await self._before(request, fault)
            if before is not None:
                return before
        if fault is not None and fault.kind == "late":
            return (await self._later(request, path, body, fault.seconds)).response()
        answer = self._answer(request, path, body)
        if fault is not None and fault.kind == "shuffled":
            await self._some_time(fault)
        if fault is not None and fault.kind == "timeout_after":
            return await hang(request, fault.seconds)
        if fault is not None and fault.kind == "drop_after":
            return reset(request)
        return answer.response()

    async def _before(self, request: web.BaseRequest, fault: Fault) -> web.StreamResponse | None:
        """A fault that strikes before anything is applied; None lets the request go on."""
        if fault.kind == "status":
            headers = () if fault.retry_after is None or fault.status not in (429, 503) else (fault.retry_after,)
            return error_answer(fault.status, "injected", *(("Retry-After", value) for value in headers)).response()
        if fault.kind in ("down", "drop_before"):
            return reset(request)
        if fault.kind == "timeout_before":
            return await hang(request, fault.seconds)
        if fault.kind == "slow":
            await asyncio.sleep(fault.seconds)
        if fault.kind == "shuffled":
            await self._some_time(fault)
        return None

    async def _some_time(self, fault: Fault) -> None:
        """Another time for every call, so that both effects and answers overtake each other."""
        self._naps += 1
        await asyncio.sleep(fault.seconds / 2 * fraction(fault.id, self._naps))

    async def _later(self, request: web.BaseRequest, path: str, body: bytes, seconds: float) -> Answer:
        """Apply the event after a while, whether or not the caller is still waiting for it."""

        async def work() -> Answer:
            await asyncio.sleep(seconds)
            return self._answer(request, path, body)

        task = asyncio.create_task(work())
        self._late.add(task)
        task.add_done_callback(self._late.discard)
        return await asyncio.shield(task)

    def _answer(self, request: web.BaseRequest, path: str, body: bytes) -> Answer:
        given = request.headers.get("Authorization", "")
        if self._token is not None and not compare_digest(
            given.encode(errors="replace"), f"Bearer {self._token}".encode()
        ):
            return error_answer(401, "the bearer token is missing or wrong")
        if path != _EVENTS_PATH:
            return self._product(path)
        try:
            event = read_event(request.headers, body)
        except MalformedEventError as error:
            self._rejections.append(str(error))
            return error_answer(400, str(error))
        outcome = self.effects.receive(event)
        self._outcomes[outcome.value] += 1
        if outcome is Outcome.STALE:
            current = self.effects.version(event.seller_id, event.item_no)
            return json_answer(409, {"status": 409, "error": "stale version", "currentVersion": current})
        return json_answer(200, {"duplicate": outcome is Outcome.REPEATED, "version": event.version})

    def _product(self, path: str) -> Answer:
        named = _named_in(path)
        held = None if named is None else self.effects.held.get(named)
        if held is None or held.data is None:
            return error_answer(404, "no such product")
        return Answer(200, b'{"version":%d,"productData":%b}' % (held.version, held.data))

    def _began(self, product: str) -> None:
        self._open[product] += 1
        self._most_open = max(self._most_open, self._open.total())
        if product:
            self._most_open_per_key = max(self._most_open_per_key, self._open[product])

    def audit(self) -> dict[str, Any]:
        """What the server saw."""
        return {
            "requests": dict(self._requests),
            "statuses": dict(self._statuses),
            **{outcome.value: self._outcomes[outcome.value] for outcome in Outcome},
            "rejected": len(self._rejections),
            "rejections": self._rejections[-20:],
            "faults": dict(self._faults),
            "maxInFlight": self._most_open,
            "maxInFlightPerProduct": self._most_open_per_key,
            "repeatsWithOtherContent": self.effects.contradictions,
            "updatesOfUnknown": self.effects.updates_of_unknown,
        }

    async def control(self, method: str, path: Sequence[str], query: dict[str, str], body: bytes) -> Payload:
        """The control API."""
        match (method, *path):
            case ("GET", "state"):
                seller = query.get("sellerId")
                held = self.effects.held.items()
                return {"products": [one.as_json(key) for key, one in held if seller in (None, key[0])]}
            case ("GET", "log"):
                return {"effects": self.effects.log}
            case (_, "faults", *rest):
                return control_faults(self.faults, method, rest, body)
            case ("GET", "audit"):
                return self.audit()
            case ("POST", "audit", "reset"):
                self.reset_audit()
                return {}
            case _:
                raise UnknownPathError(f"no control call {method} /_control/{'/'.join(path)}")


def _product_named(request: web.BaseRequest, path: str) -> str:
    """All versions of one product share this name; reads, of which there may be many at once, have none."""
    return request.headers.get("Idempotency-Key", "").rpartition(":")[0] if path == _EVENTS_PATH else ""


def _concerned(request: web.BaseRequest, path: str) -> tuple[str | None, int | None]:
    """Seller and item of a request, as far as its address or key says; faults can be aimed at them."""
    if path != _EVENTS_PATH:
        return _named_in(path) or (None, None)
    seller, _, item = request.headers.get("Idempotency-Key", "").rpartition(":")[0].rpartition(":")
    return _named(seller, item) or (None, None)


def _named_in(path: str) -> tuple[str, int] | None:
    """The raw path is cut before it is decoded, so that a seller id may contain a slash."""
    seller, slash, item = path.removeprefix(_PRODUCTS_PATH).partition("/")
    return _named(seller, item) if slash else None


def _named(seller: str, item: str) -> tuple[str, int] | None:
    try:
        return (decoded(seller), int(item)) if item.isascii() and item.isdecimal() else None
    except BadInputError:
        return None
