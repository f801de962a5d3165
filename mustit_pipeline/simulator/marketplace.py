"""The simulated marketplace: its answers."""

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from email.utils import formatdate
from functools import partial
from hashlib import blake2b
from math import ceil
from typing import TypeVar

from aiohttp import web

from mustit_pipeline.simulator.answers import HTML, Answer, error_answer
from mustit_pipeline.simulator.audit import Audit
from mustit_pipeline.simulator.control_input import BadInputError, query_parameters
from mustit_pipeline.simulator.detail_body import detail_body
from mustit_pipeline.simulator.faults import Fault, FaultSwitch
from mustit_pipeline.simulator.limits import AgentWindow
from mustit_pipeline.simulator.listing_body import listing_body
from mustit_pipeline.simulator.marketplace_faults import ENDPOINTS, FAULTS, faulty
from mustit_pipeline.simulator.marketplace_settings import MarketplaceSettings
from mustit_pipeline.simulator.noise import Noise
from mustit_pipeline.simulator.options_body import options_body
from mustit_pipeline.simulator.tokens import Tokens
from mustit_pipeline.simulator.world import World

T = TypeVar("T")

_STEP = 20
_DETAIL = re.compile(r"/mustit-api/facade-api/v1/item/([0-9]{1,15})/detail/top")
_OPTIONS = re.compile(r"/mustit-api/legacy-api/v1/auction_products/([0-9]{1,15})/options")
_PAGE = "<!doctype html><html lang='ko'><head><title>머스트잇</title></head><body></body></html>".encode()


@dataclass(frozen=True, slots=True)
class Call:
    """One parsed request."""

    endpoint: str
    seller_id: str | None = None
    item_no: int | None = None
    page_no: int = 0
    page_size: int = 0


class Marketplace:
    """Limits first, then faults, then the token, then the answer."""

    def __init__(self, world: World, settings: MarketplaceSettings) -> None:
        self.world = world
        self.settings = settings
        self.audit = Audit()
        self.faults = FaultSwitch(world.seed, FAULTS, ENDPOINTS)
        self.tokens = Tokens(world.seed)
        self._windows: defaultdict[str, AgentWindow] = defaultdict(AgentWindow)
        self._unread: set[asyncio.Task[web.StreamResponse]] = set()
        self._calls = 0
        self._due_shifts: dict[str, tuple[int, int]] = {}

    def shift_after(self, seller_id: str, count: int, listings: int) -> None:
        """Shift the seller's entries as soon as so many more listing pages have been served."""
        self.world.seller(seller_id)
        self._due_shifts[seller_id] = (listings, count)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Every request but those to the control API."""
        raw = _printable(request.raw_path)
        if request.method != "GET":
            return error_answer(405, "only GET is answered here", ("Allow", "GET")).response()
        try:
            call = self._understood(*raw.partition("?")[::2])
        except BadInputError as error:
            return error_answer(400, str(error)).response()
        if call is None:
            return error_answer(404, f"no such call: {raw}").response()
        agent = _printable(request.headers.get("User-Agent", ""))
        late = self._fault(call, agent, unread=True)
        if late is None:
            return await self._read(request, call, agent, raw)
        reading = asyncio.create_task(self._read(request, call, agent, raw, after=late.seconds))
        self._unread.add(reading)
        reading.add_done_callback(self._unread.discard)
        # A caller that gives up ends this handler, but the request is still read and counted.
        return await asyncio.shield(reading)

    async def _read(
        self, request: web.BaseRequest, call: Call, agent: str, raw: str, *, after: float = 0.0
    ) -> web.StreamResponse:
        if after:
            await asyncio.sleep(after)
            self.audit.fault(agent, "late")
        self.audit.began(agent, call.endpoint, raw)
        try:
            response = await self._serve(request, call, agent)
            self.audit.answered(call.endpoint, response.status)
            return response
        finally:
            self.audit.ended(agent)

    def _understood(self, path: str, query: str) -> Call | None:
        if match := _DETAIL.fullmatch(path):
            number = int(match[1])
            return Call("detail", self.world.owner(number), number)
        if match := _OPTIONS.fullmatch(path):
            number = int(match[1])
            return Call("options", self.world.owner(number), number)
        if path == self.settings.listing_path:
            asked = query_parameters(query)
            if asked.get("order", "LATEST") != "LATEST":
                raise BadInputError("order must be LATEST")
            first = self.settings.first_page_no
            page_no = _whole(asked, "pageNo", first)
            return Call("listing", asked.get("sellerId", ""), None, page_no - first, _whole(asked, "pageSize", 1))
        return Call("session") if path == "/" else None

    async def _serve(self, request: web.BaseRequest, call: Call, agent: str) -> web.StreamResponse:
        now = time.monotonic()
        headers = request.headers
        if call.endpoint != "session":
            window = self._windows[agent]
            refusal = window.arrive(now, self.settings.limits)
            cookie = headers.get("Cookie", "")
            self.audit.counted(agent, now, window.seen, cookies="nid=" in cookie and "mustit_uid=" in cookie)
            if refusal is not None:
                self.audit.over_limit(agent, refusal.cause)
                retry = ("Retry-After", str(refusal.retry_after))
                return error_answer(429, f"too many requests ({refusal.cause})", retry).response()
        fault = self._fault(call, agent)
        if self.settings.latency_ms:
            await asyncio.sleep(self.settings.latency_ms / 1000)
        if call.endpoint == "listing":
            await self._made_ready(call)
        usual = partial(self._answer, call, agent, headers.get("Authorization", ""), fault)
        if fault is None:
            return usual().response()
        self.audit.fault(agent, fault.kind)
        return await faulty(request, fault, usual)

    def _fault(self, call: Call, agent: str, *, unread: bool = False) -> Fault | None:
        if not self.faults:
            return None
        page_no = call.page_no + self.settings.first_page_no if call.endpoint == "listing" else None
        return self.faults.choose(
            call.endpoint, agent, call.seller_id, call.item_no, time.monotonic(), page_no=page_no, unread=unread
        )

    async def _made_ready(self, call: Call) -> None:
        """Meet the products of a page for the first time a few at a time: a busy loop would see arrivals late."""
        seller = self.world.sellers.get(call.seller_id or "")
        if seller is not None:
            async for number in in_small_steps(seller.page(call.page_no * call.page_size, call.page_size)):
                self.world.product(number)

    def _answer(self, call: Call, agent: str, authorization: str, fault: Fault | None) -> Answer:
        if call.endpoint == "session":
            return self._session(agent)
        if not self.tokens.accepts(authorization, agent, time.time()):
            return error_answer(401, "the token is missing, expired or another agent's")
        self._calls += 1
        noise = Noise(self._calls, self.settings.noise)
        kind = None if fault is None else fault.kind
        answers: dict[str, Callable[[Call, Noise, str | None], Answer]] = {
            "listing": self._listing,
            "detail": self._detail,
            "options": self._options,
        }
        return answers[call.endpoint](call, noise, kind)

    def _session(self, agent: str) -> Answer:
        settings, now = self.settings, time.time()
        lifetime = {
            "max-age": f"; Max-Age={ceil(settings.token_seconds)}",
            "expires": f"; Expires={formatdate(now + settings.token_seconds, usegmt=True)}",
            "session": "",
        }[settings.token_cookie]
        token = self.tokens.issue(agent, now, settings.token_seconds)
        visitor = blake2b(agent.encode(), digest_size=8).hexdigest()
        cookies = (
            f"token={token}{lifetime}; Path=/; HttpOnly",
            f"nid={visitor}; Path=/",
            f"mustit_uid=u{visitor}; Path=/",
        )
        return Answer(200, _PAGE, HTML, tuple(("Set-Cookie", cookie) for cookie in cookies))

    def _listing(self, call: Call, noise: Noise, fault: str | None) -> Answer:
        if fault == "count_zero":
            return Answer(200, listing_body(0, (), noise))
        asked = call.seller_id or ""
        seller = self.world.sellers.get(self._another_seller(asked) if fault == "wrong_seller" else asked)
        if seller is None:
            return Answer(200, listing_body(0, (), noise))
        # Page numbers differ, but what is shown is the page before.
        page_no = max(0, call.page_no - 1) if fault == "repeated_page" else call.page_no
        count = len(seller.order) * 6 // 10 if fault == "count_short" else len(seller.order)
        first = page_no * call.page_size
        shown = [] if fault == "empty_page" else seller.page(first, max(0, min(call.page_size, count - first)))
        products = [self.world.product(number) for number in shown]
        answer = Answer(200, listing_body(count, products, noise))
        self._shift_if_due(asked)
        return answer

    def _detail(self, call: Call, noise: Noise, fault: str | None) -> Answer:
        product = self.world.on_sale(call.item_no or 0)
        if product is None:
            return error_answer(404, f"no item {call.item_no}")
        owner = self._another_seller(product.seller_id) if fault == "wrong_seller" else product.seller_id
        return Answer(200, detail_body(product, noise, owner))

    def _options(self, call: Call, noise: Noise, fault: str | None) -> Answer:
        product = self.world.on_sale(call.item_no or 0)
        if product is None:
            return error_answer(404, f"no item {call.item_no}")
        return Answer(200, options_body(product, noise, product.item_no + (1 if fault == "wrong_seller" else 0)))

    def _another_seller(self, seller_id: str) -> str:
        return next((other for other in self.world.sellers if other != seller_id), f"not-{seller_id}")

    def _shift_if_due(self, seller_id: str) -> None:
        if seller_id not in self._due_shifts:
            return
        left, count = self._due_shifts[seller_id]
        if left > 1:
            self._due_shifts[seller_id] = (left - 1, count)
            return
        del self._due_shifts[seller_id]
        self.world.shift(seller_id, count)


async def in_small_steps(numbers: Iterable[T]) -> AsyncIterator[T]:
    """The same numbers, letting the server see to other requests every now and then."""
    for place, number in enumerate(numbers, 1):
        yield number
        if place % _STEP == 0:
            await asyncio.sleep(0)


def _whole(asked: dict[str, str], name: str, minimum: int) -> int:
    text = asked.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < 10) or int(text) < minimum:
        raise BadInputError(f"{name} must be a whole number from {minimum}, not {text!r}")
    return int(text)


def _printable(text: str) -> str:
    """Header bytes that are no UTF-8 arrive as lone surrogates, which no JSON can hold."""
    return text if text.isascii() else text.encode(errors="surrogateescape").decode(errors="replace")
