"""What is asked of a pipeline all the time, whatever it has stored: each as one call that can be timed."""

import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from sqlalchemy import text
from typer.testing import CliRunner

from benchmarks.filling import seller_name
from mustit_pipeline.catalog.history import find_product, find_version
from mustit_pipeline.catalog.sql import history
from mustit_pipeline.cli.app import app
from mustit_pipeline.crawling import budget
from mustit_pipeline.crawling.recrawl import judge_pool, spare_requests, terms_of
from mustit_pipeline.crawling.sql import recrawl_terms
from mustit_pipeline.crawling.sql.choosing import Chooser
from mustit_pipeline.domain.states import OutboxStatus
from mustit_pipeline.domain.values import ItemNo, SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.monitoring.criteria import CRITERIA
from mustit_pipeline.monitoring.metrics import SEOUL, metrics_of
from mustit_pipeline.monitoring.sql import spot_checks
from mustit_pipeline.outbox.sql import outbox_list
from mustit_pipeline.scheduling.light import CONSIDERED
from mustit_pipeline.scheduling.sql.next_sellers import count_next_sellers, next_sellers
from mustit_pipeline.settings import Settings, load_settings
from mustit_pipeline.upkeep.maintenance import maintain
from mustit_pipeline.upkeep.recovery import recover

LANES = 4
SLICE_SECONDS = 600.0
PAGE = 20
# The variables that a command reads its settings from.
VARIABLES = (
    "home",
    "database_url",
    "dagster_database_url",
    "redis_url",
    "base_url",
    "listing_path",
    "product_server_url",
)


@dataclass(frozen=True, slots=True)
class Ground:
    """What the operations work on: one product that they look at, and its seller."""

    database: Database
    settings: Settings
    seller_id: str
    item_no: int
    # A seller that was crawled a moment ago.
    crawled_id: str


# What the recrawl policy asks of everything that is stored; each has a second, however much that is.
RECRAWL = PLANNING, LIGHT, JUDGING, BUDGET = (
    "planning an adaptive crawl",
    "choosing a seller for a light crawl",
    "judging the pool",
    "budget view",
)


def operations(ground: Ground) -> dict[str, Callable[[], object]]:
    """By the name of their row, those that leave everything as it is."""
    database, settings = ground.database, ground.settings
    return {
        "due-seller choice": lambda: _choose(database),
        "recovery, nothing stuck": lambda: _recover(database, settings),
        "hourly checks": lambda: _check(database, settings),
        "daily metrics": lambda: metrics_of(database, datetime.now(UTC).astimezone(ZoneInfo(SEOUL)).date()),
        "doctor": lambda: _command(settings, "doctor", "--json"),
        "product show": lambda: _show(ground),
        "changes": lambda: _changes(database, None),
        "changes of a seller": lambda: _changes(database, SellerId(ground.seller_id)),
        "outbox list": lambda: _events(database, None, None),
        "outbox list of a seller": lambda: _events(database, None, SellerId(ground.seller_id)),
        "outbox list, FAILED": lambda: _events(database, OutboxStatus.FAILED, None),
        JUDGING: lambda: _judge(database, settings),
        PLANNING: lambda: _plan(ground),
        LIGHT: lambda: _choose_light(database, settings),
        BUDGET: lambda: _view(database, settings),
    }


def criteria(ground: Ground) -> dict[str, Callable[[], object]]:
    """The rules of the hourly checks one by one, to see which of them grows."""

    def judged(number: int) -> object:
        with ground.database.reading() as connection:
            return CRITERIA[number].judge(connection, ground.settings, utc_now())

    return {one.name: lambda number=number: judged(number) for number, one in enumerate(CRITERIA)}


def keep(database: Database, settings: Settings) -> int:
    """A night's maintenance; returns how many bodies it removed."""
    done = maintain(database, settings, utc_now())
    return done.bodies_aged + done.bodies_unchanged


def _choose(database: Database) -> None:
    with database.reading() as connection:
        chosen = next_sellers(connection, LANES, busy=[seller_name(0)], slice_seconds=SLICE_SECONDS)
        waiting = count_next_sellers(connection, busy=[])
    _require(len(chosen) == LANES and waiting >= LANES, "no seller is due")


def _judge(database: Database, settings: Settings) -> None:
    """Anew, whenever it was judged last."""
    with database.transaction() as connection:
        connection.execute(text("UPDATE recrawl_pool SET judged_at = now() - interval '1 hour'"))
    judge_pool(database, settings, utc_now())


def _plan(ground: Ground) -> None:
    """The choice among all sources of a seller, a day later: what is planned then is written by one COPY."""
    now = utc_now() + timedelta(days=1)
    with ground.database.reading() as connection:
        terms = terms_of(connection, ground.settings, ground.crawled_id, now)
        chosen = sum(len(chunk) for chunk in Chooser(connection, ground.crawled_id, terms, now).choose(None))
    _require(chosen > 0, "nothing is worth a request")


def _choose_light(database: Database, settings: Settings) -> None:
    now = utc_now()
    with database.reading() as connection:
        pool = recrawl_terms.read_pool(connection)
        _require(pool is not None, "the pool was not judged")
        assert pool is not None
        found = recrawl_terms.light_candidates(
            connection, pool, page_size=settings.page_size, busy=[], now=now, limit=LANES + CONSIDERED
        )
        spare_requests(connection, settings, now)
    _require(bool(found), "no seller can have a light crawl")


def _view(database: Database, settings: Settings) -> None:
    with database.reading() as connection:
        budget.view(connection, settings, utc_now())


def _recover(database: Database, settings: Settings) -> None:
    found = recover(database, settings, utc_now, busy=())
    _require(not found.anything, f"something was stuck: {found}")


def _check(database: Database, settings: Settings) -> None:
    with database.reading() as connection:
        spot_checks.suspects(connection, settings.truth_sample)
        spot_checks.known(connection, spot_checks.draw(connection, settings.truth_sample))
        for one in CRITERIA:
            one.judge(connection, settings, utc_now())


def _show(ground: Ground) -> None:
    with ground.database.reading() as connection:
        product = find_product(connection, ItemNo(ground.item_no), None)
        find_version(connection, product, product.version)
        history.versions(connection, product.seller_id, product.item_no, limit=PAGE)


def _changes(database: Database, seller_id: SellerId | None) -> None:
    with database.reading() as connection:
        found = history.changes(connection, history.ChangeFilter(seller_id), PAGE)
    _require(len(found.rows) == PAGE, "too few changes are stored")


def _events(database: Database, status: OutboxStatus | None, seller_id: SellerId | None) -> None:
    with database.reading() as connection:
        found = outbox_list.newest(connection, status=status, seller_id=seller_id, limit=PAGE)
    _require(len(found.rows) > 0, "no event is stored")


def _command(settings: Settings, *arguments: str) -> None:
    """A command in this process: the start of one of its own would hide what grows."""
    values: Mapping[str, object] = settings.model_dump()
    environment = {f"MUSTIT_{name.upper()}": str(values[name]) for name in VARIABLES}
    for name in ("token_key", "jwt_secret"):
        secret = getattr(settings, name)
        environment[f"MUSTIT_{name.upper()}"] = secret.get_secret_value()
    with _own_environment():
        load_settings.cache_clear()
        result = CliRunner().invoke(app, list(arguments), env=environment)
        load_settings.cache_clear()
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    _require(result.stdout.startswith("["), f"{arguments} said {result.output[:200]}")


@contextmanager
def _own_environment() -> Generator[None]:
    """A command tells Dagster its home by variables, which must not reach the next command."""
    before = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise RuntimeError(otherwise)
