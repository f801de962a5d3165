"""The recrawl policy with a tenth of the requests that everything would take, and its crawls killed in between."""

import signal
import time
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import text

from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.faults.children import crawling, running_crawl
from mustit_pipeline_tests.faults.invariants import check_all
from mustit_pipeline_tests.faults.scenarios import LONG, SELLER, Numbers, Size
from mustit_pipeline_tests.faults.world import PATIENCE_SECONDS, World, wait_until
from mustit_pipeline_tests.integration.crawls import crawl, register

AGENTS = 50
CHANGED_SHARE = 0.01
# Of the pool's requests: the rest is for listings and what they show.
PROMISE_TAKES = 0.65

# The policy reckons in hours, and believes at first that a seller is looked at once in one.
LOOKED_AT = "UPDATE recrawl_sellers SET look_hours = :hours"
FORGET_POOL = "DELETE FROM recrawl_pool"
PASS_TIME = (
    """UPDATE recrawl_products SET detail_fetched_at = detail_fetched_at - CAST(:by AS interval),
                                   option_fetched_at = option_fetched_at - CAST(:by AS interval)""",
    """UPDATE recrawl_sellers SET swept_at = swept_at - CAST(:by AS interval),
                                  oldest_at = oldest_at - CAST(:by AS interval)""",
)
OLDEST = "SELECT min(least(detail_fetched_at, option_fetched_at)) FROM recrawl_products WHERE seller_id = :seller"
FOUND = "SELECT item_no FROM product_change_sets WHERE seller_id = :seller AND life_cycle = 'UPDATED'"
COMPLETED = "SELECT count(*) FROM crawling_schedule_executions WHERE status = 'COMPLETED' AND failed_tasks = 0"
OPEN = "SELECT count(*) FROM crawling_schedule_executions WHERE status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')"


@dataclass(frozen=True, slots=True)
class _Frame:
    """A seller that everything of would take `lack` times the pool's requests of a window, and a compressed window."""

    products: int
    lack: int
    window: float
    # From one crawl to the next: what is stored is made older by what is more than a window.
    between: float
    kills: int
    dagster: bool

    @property
    def everything(self) -> int:
        """The requests that fetch all of it."""
        return 2 * self.products + 2

    @property
    def max_age(self) -> timedelta:
        """What the requests keep."""
        return timedelta(seconds=2 * self.products * self.between / (AGENTS * PROMISE_TAKES))

    @property
    def passing(self) -> timedelta:
        """What passes beside the clock from one crawl to the next."""
        return timedelta(seconds=self.between - self.window)

    def settings(self, world: World) -> Settings:
        """One request for each agent and window."""
        return world.with_settings(
            recrawl="adaptive",
            requests_per_hour=1,
            window_seconds=self.window,
            max_age_hours=self.max_age.total_seconds() / 3600,
            lease_seconds=1,
        )


SHORT_FRAME = _Frame(products=99, lack=4, window=0.5, between=600, kills=1, dagster=False)
# Nothing passes beside the clock, so that the policy reckons with the requests that there are.
LONG_FRAME = _Frame(products=249, lack=10, window=15, between=15, kills=5, dagster=True)


@dataclass(slots=True)
class _Hidden:
    """Changes that the listing does not show, by product: when they were made, and when found."""

    made: dict[int, datetime] = field(default_factory=dict[int, datetime])
    found: dict[int, datetime] = field(default_factory=dict[int, datetime])

    def look(self, items: Set[int], now: datetime) -> None:
        """A product is changed only once."""
        for item_no in (self.made.keys() & items) - self.found.keys():
            self.found[item_no] = now

    def longest(self) -> timedelta:
        """Until it was found."""
        if lost := self.made.keys() - self.found.keys():
            raise AssertionError(f"{len(lost)} of {len(self.made)} hidden changes were never found")
        return max(self.found[item_no] - at for item_no, at in self.made.items())


def requests_go_where_changes_are(world: World, size: Size) -> Numbers:
    """Shown changes are delivered by the next crawl, hidden ones within the promise, and no window is over."""
    frame = LONG_FRAME if size == LONG else SHORT_FRAME
    settings = frame.settings(world)
    _begin(world, frame)
    items = [product["itemNo"] for product in world.market.products(SELLER)]
    each = max(1, round(frame.products * CHANGED_SHARE / 2))
    hidden, oldest, longest_round = _Hidden(), timedelta(), timedelta()
    rounds = kills = shown_changes = 0
    began = clock = utc_now()
    changing_until = began + frame.max_age / 3
    while clock < changing_until + frame.max_age + longest_round:
        shown: list[int] = []
        if clock < changing_until:
            shown, quiet, items = items[:each], items[-each:], items[each:-each]
            _change(world, shown, "name")
            _change(world, quiet, "description")
            hidden.made |= dict.fromkeys(quiet, clock)
            shown_changes += len(shown)
        kill = kills < frame.kills and rounds % 2 == 1
        kills += _crawl(world, settings, dagster=frame.dagster, kill=kill)
        rounds += 1
        # Of what is stored, so that it is the age of what the product server is told.
        oldest = max(oldest, utc_now() - _moment(world, OLDEST))
        world.deliver(settings)
        _expect_delivered(world, shown)
        _pass_time(world, frame.passing)
        before, clock = clock, utc_now() + frame.passing * rounds
        longest_round = max(longest_round, clock - before)
        hidden.look(_found(world), clock)
    if kills < frame.kills:
        raise AssertionError(f"{kills} of {frame.kills} crawls were killed in their midst")
    _expect_promise(frame, max(oldest, hidden.longest()), longest_round)
    requests = _expect_budget(world, frame, utc_now() - began, clock - began)
    return {
        "crawls": rounds,
        "kills": kills,
        "requests": requests,
        "everything would take": rounds * frame.everything,
        "shown changes": shown_changes,
        "hidden changes": len(hidden.made),
        "longest until found s": round(hidden.longest().total_seconds()),
        "oldest s": round(oldest.total_seconds()),
        "promised s": round(frame.max_age.total_seconds()),
        "longest round s": round(longest_round.total_seconds()),
        "effects": check_all(world, SELLER, settings),
    }


def _expect_promise(frame: _Frame, waited: timedelta, longest_round: timedelta) -> None:
    """What a crawl fetches too late by a busy machine, the next one does."""
    if waited > frame.max_age + longest_round:
        raise AssertionError(f"{waited} without a fetch, {frame.max_age} were promised, a round took {longest_round}")


def _expect_budget(world: World, frame: _Frame, took: timedelta, passed: timedelta) -> int:
    """By the clock, and by the time that has passed for what is stored."""
    requests: int = world.market.audit()["requests"]
    # A window may have begun before the first request and another after the last.
    most = AGENTS * (took.total_seconds() / frame.window + 2)
    if requests > most:
        raise AssertionError(f"{requests} requests in {took}, the pool has {most:.0f}")
    crawls = passed.total_seconds() / frame.between + 1
    if requests > crawls * frame.everything / frame.lack:
        raise AssertionError(f"{requests} requests in {passed} are more than 1/{frame.lack} of everything")
    return requests


def _begin(world: World, frame: _Frame) -> None:
    """A seller that is known: its first crawl has no limits."""
    world.market.add_seller(SELLER, frame.products)
    register(world.database, SELLER)
    crawl(world.database, world.settings, SELLER)
    world.deliver(world.settings)
    with world.database.transaction() as connection:
        connection.execute(text(LOOKED_AT), {"hours": frame.between / 3600})
        connection.execute(text(FORGET_POOL))
    time.sleep(frame.window)
    world.market.settings(requestsPerWindow=1, windowSeconds=frame.window)
    world.market.reset_audit()


def _change(world: World, items: Sequence[int], shown_in: str) -> None:
    for item_no in items:
        world.market.set_fields(SELLER, item_no, **{shown_in: f"<p>changed {item_no}</p>"})


def _pass_time(world: World, by: timedelta) -> None:
    with world.database.transaction() as connection:
        for statement in PASS_TIME:
            connection.execute(text(statement), {"by": by})


def _crawl(world: World, settings: Settings, *, dagster: bool, kill: bool) -> bool:
    """One crawl, as a Dagster run where that is wanted; after kill -9 in its midst another process ends it.

    Whether it was killed: it may have ended before.
    """
    before, killed = world.number(COMPLETED), False
    if kill:
        asked = world.market.audit()["requests"]
        with running_crawl(world, settings, SELLER) if dagster else crawling(world, settings, SELLER) as process:
            wait_until(partial(_asks, world, asked + 2, process.poll), "the crawl asks for something")
            process.kill()
            killed = process.wait() == -signal.SIGKILL
    if dagster:
        with running_crawl(world, settings, SELLER) as process:
            if process.wait(PATIENCE_SECONDS) != 0:
                raise AssertionError(f"`mustit crawl` ended with {process.returncode}")
    elif not kill or world.number(OPEN):
        crawl(world.database, settings, SELLER)
    wait_until(lambda: world.number(COMPLETED) > before, "the crawl is over, and nothing in it has failed")
    return killed


def _asks(world: World, number: int, poll: Callable[[], object]) -> bool:
    return world.market.audit()["requests"] >= number or poll() is not None


def _expect_delivered(world: World, items: Sequence[int]) -> None:
    """The product server has what the marketplace shows of these."""
    on_sale = {product["itemNo"]: product for product in world.market.products(SELLER)}
    held = world.receiver.products(SELLER)
    late = [item_no for item_no in items if held.get(item_no) != on_sale[item_no]]
    if late:
        raise AssertionError(f"{len(late)} changes that the listing shows were not delivered by the crawl after them")


def _moment(world: World, query: str) -> datetime:
    with world.database.reading() as connection:
        return connection.execute(text(query), {"seller": SELLER}).scalar_one()


def _found(world: World) -> set[int]:
    with world.database.reading() as connection:
        return set(connection.execute(text(FOUND), {"seller": SELLER}).scalars())


RECRAWL_SCENARIOS: tuple[Callable[[World, Size], Numbers], ...] = (requests_go_where_changes_are,)
