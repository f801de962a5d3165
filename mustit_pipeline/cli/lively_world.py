"""The simulated world that goes on while `mustit up` runs: products change, and servers have bad minutes."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum

import httpx
from sqlalchemy.exc import SQLAlchemyError

from mustit_pipeline.cli.world import World
from mustit_pipeline.crawling.steering import open_or_join
from mustit_pipeline.domain.errors import Conflict
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.simulator.control import ControlError, MarketplaceControl, ProductServerControl

# `mustit up` also restarts its children, so that no simulator may keep it waiting.
PATIENCE_SECONDS = 2.0
CHANGED_PRODUCTS = 3
# Well above MUSTIT_DELETION_HOLD_SHARE.
LOST_SHARE = 0.35
# Two agents rest; a third 429 in a row would be charged to the URL.
THROTTLED_CALLS = 2
# A 500 counts as a retry of its event; a 503 would be the server's own failure. The server recovers before the
# back-offs of an event allow a fourth try, so that none is FAILED.
FAILED_EVENTS = {"status": 500, "share": 0.5, "count": 8}


class Kind(Enum):
    """What can happen."""

    RESTOCK = "restock"
    CHANGE = "change"
    ADD = "add"
    REMOVE = "remove"
    LOSE = "lose"
    CRAWL = "crawl"
    FAIL = "fail"
    RECOVER = "recover"
    THROTTLE = "throttle"


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happens to sellers so many seconds after the start."""

    at: float
    kind: Kind
    sellers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rhythm:
    """When something happens first, and how often then; to one seller after the other, or to all at once."""

    kind: Kind
    first: float
    every: float
    to_all: bool = False


# A crawl follows each loss at once and opens a deletion hold; ten minutes later the products are back. The product
# server fails while the events of that crawl are sent. An agent that got a 429 may rest for an hour, so they are rare.
RHYTHMS = (
    Rhythm(Kind.RESTOCK, 0, 720, to_all=True),
    Rhythm(Kind.CHANGE, 20, 20),
    Rhythm(Kind.ADD, 30, 60),
    Rhythm(Kind.REMOVE, 60, 60),
    Rhythm(Kind.LOSE, 90, 720),
    Rhythm(Kind.CRAWL, 100, 120, to_all=True),
    Rhythm(Kind.FAIL, 120, 720),
    Rhythm(Kind.THROTTLE, 200, 1440),
    Rhythm(Kind.RECOVER, 210, 720),
)


def due(since: float, until: float, sellers: Sequence[str]) -> list[Happening]:
    """What happens from `since` on and before `until`, in order."""
    found: list[Happening] = []
    for rhythm in RHYTHMS:
        number = max(0, int(-((rhythm.first - since) // rhythm.every)))
        while (at := rhythm.first + number * rhythm.every) < until:
            concerned = tuple(sellers) if rhythm.to_all else (sellers[number % len(sellers)],)
            found.append(Happening(at, rhythm.kind, concerned))
            number += 1
    return sorted(found, key=lambda one: one.at)


class LivelyWorld:
    """Lets happen what is due; `sellers` says how many products each seller usually has."""

    def __init__(
        self,
        market: MarketplaceControl,
        product_server: ProductServerControl,
        database: Database,
        sellers: Mapping[str, int],
        say: Callable[[str], None],
    ) -> None:
        self._market = market
        self._product_server = product_server
        self._database = database
        self._sellers = sellers
        self._say = say
        self._until = 0.0
        self._lost: dict[str, list[int]] = {}
        self._failure: int | None = None
        self._said: set[Kind] = set()

    def go_on(self, elapsed: float) -> None:
        """Do what has become due; what a server refuses is left out, and said once."""
        happenings = due(self._until, elapsed, list(self._sellers))
        self._until = max(self._until, elapsed)
        for one in happenings:
            try:
                self._do(one)
            except (httpx.HTTPError, ControlError, SQLAlchemyError, ValueError) as error:
                if one.kind not in self._said:
                    self._said.add(one.kind)
                    self._say(f"The simulated world goes on without a step ({one.kind.value}): {error}")

    def _do(self, happening: Happening) -> None:
        match happening.kind:
            case Kind.FAIL:
                self._fail()
            case Kind.RECOVER:
                self._recover()
            case kind:
                for seller_id in happening.sellers:
                    self._do_to(seller_id, kind)

    def _do_to(self, seller_id: str, kind: Kind) -> None:
        match kind:
            case Kind.RESTOCK:
                self._restock(seller_id)
            case Kind.CHANGE:
                self._market.random_changes(seller_id, CHANGED_PRODUCTS, ["PRICE", "STOCK"])
            case Kind.ADD:
                self._market.add_products(seller_id, 1)
            case Kind.REMOVE:
                self._market.remove(seller_id, count=1)
            case Kind.LOSE:
                self._lose(seller_id)
            case Kind.THROTTLE:
                self._market.fault("429", "api", sellerId=seller_id, count=THROTTLED_CALLS)
            case _:
                self._crawl(seller_id)

    def _lose(self, seller_id: str) -> None:
        count = round(LOST_SHARE * self._market.sellers()[seller_id])
        self._lost[seller_id] = self._market.remove(seller_id, count=count)

    def _restock(self, seller_id: str) -> None:
        """Put lost products back, which ends their deletion hold; if it was approved, new ones replace them."""
        if lost := self._lost.pop(seller_id, None):
            deleted = {held.item_no for held in self._product_server.state(seller_id) if held.deleted}
            self._market.restore(seller_id, [item_no for item_no in lost if item_no not in deleted])
        missing = self._sellers[seller_id] - self._market.sellers()[seller_id]
        if missing > 0:
            self._market.add_products(seller_id, missing)

    def _crawl(self, seller_id: str) -> None:
        # An INACTIVE seller stays so.
        with suppress(Conflict):
            open_or_join(self._database, SellerId(seller_id), triggered_by="demo", now=utc_now())

    def _fail(self) -> None:
        self._failure = self._product_server.fault("status", "events", **FAILED_EVENTS)

    def _recover(self) -> None:
        if self._failure is not None:
            self._product_server.clear_faults(self._failure)
            self._failure = None


@contextmanager
def lively_world(
    world: World, database: Database, sellers: Mapping[str, int], say: Callable[[str], None]
) -> Generator[LivelyWorld | None]:
    """The world's life; None where a real server is configured, or MUSTIT_DEMO is calm."""
    if world.marketplace is None or world.product_server is None or world.settings.demo == "calm":
        yield None
        return
    with ExitStack() as stack:
        market = stack.enter_context(MarketplaceControl(world.marketplace.url, PATIENCE_SECONDS))
        product_server = stack.enter_context(ProductServerControl(world.product_server.url, PATIENCE_SECONDS))
        yield LivelyWorld(market, product_server, database, sellers, say)
