"""The overview: what runs, is due and late; requests, agents, events, changes; and what needs a person."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta

from fastapi import APIRouter, Response
from sqlalchemy import Connection

from mustit_pipeline.agents import roster
from mustit_pipeline.console import charts, live
from mustit_pipeline.console.charts import Columns
from mustit_pipeline.console.formats import Formats
from mustit_pipeline.console.pages.frame import framed
from mustit_pipeline.console.visits import Visit, Visiting
from mustit_pipeline.console.words import WORDS
from mustit_pipeline.crawling.sql import executions
from mustit_pipeline.domain.states import ChangeType, ExecutionStatus, LifeCycle
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.monitoring.sql import activity, health
from mustit_pipeline.monitoring.sql.activity import MOST_COUNTED, CountedChanges, Moving
from mustit_pipeline.sellers.sql import sellers
from mustit_pipeline.settings import Settings

SHOWN_CRAWLS = 8
HOURS = 24
# The series of the chart, in the order of its legend; types that are rarer share one.
KINDS = (ChangeType.PRICE, ChangeType.STOCK, LifeCycle.CREATED, LifeCycle.DELETED)
OTHER = "other"
_SERIES = {ChangeType.PRICE: 3, ChangeType.STOCK: 2, LifeCycle.CREATED: 5, LifeCycle.DELETED: 4, OTHER: 1}

router = APIRouter()


@dataclass(frozen=True, slots=True)
class FirstSteps:
    """What a fresh installation lacks."""

    marketplace: bool
    product_server: bool
    seller: bool
    crawl: bool
    alerts: bool

    @property
    def are_done(self) -> bool:
        """Whether the pipeline works; addresses for alerts can wait."""
        return self.marketplace and self.product_server and self.seller and self.crawl


@dataclass(frozen=True, slots=True)
class ChangesOfDay:
    """The changes of the last hours: the chart, and the table behind it."""

    chart: Columns
    kinds: tuple[str, ...]
    series: dict[str, int]
    hours: list[tuple[datetime, dict[str, int]]]
    total: int
    # Of how many of the newest change sets this is, where it is not of all.
    newest: int | None


@router.get("/")
def overview(visit: Visiting) -> Response:
    """What runs, and what needs a person."""
    now = utc_now()
    with visit.database.reading() as connection:
        running = executions.newest(connection, None, SHOWN_CRAWLS, status=ExecutionStatus.RUNNING)
        schedules = activity.schedules(connection)
        return framed(
            visit,
            connection,
            "overview.html",
            events=live.address(*Moving),
            steps=_first_steps(connection, visit.settings),
            running=running,
            schedules=schedules,
            overdue=health.overdue(connection, now, visit.settings.overdue_intervals, 5),
            pool=roster.pool_status(connection, visit.settings, now),
            backlog=health.unsent_events(connection),
            changes=_changes(visit, activity.changes_by_hour(connection, now - timedelta(hours=HOURS)), now),
        )


def _first_steps(connection: Connection, settings: Settings) -> FirstSteps:
    return FirstSteps(
        marketplace=settings.base_url is not None,
        product_server=settings.product_server_url is not None,
        seller=sellers.first_registered(connection) is not None,
        crawl=executions.has_any_completed(connection),
        alerts=bool(settings.alert_addresses()),
    )


def _changes(visit: Visit, found: CountedChanges, now: datetime) -> ChangesOfDay:
    formats = Formats(visit.language)
    first = now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=HOURS - 1)
    counted: dict[datetime, dict[str, int]] = {
        first + timedelta(hours=number): defaultdict(int) for number in range(HOURS)
    }
    for one in found.hours:
        if one.hour in counted:
            counted[one.hour][one.kind if one.kind in KINDS else OTHER] += one.number
    kinds = (*KINDS, OTHER)
    most = max((sum(numbers.values()) for numbers in counted.values()), default=0)
    stacks = [
        [
            (_SERIES[kind], numbers[kind], f"{formats.clock(hour)} {_name(visit, kind)}: {numbers[kind]:,}")
            for kind in kinds
            if numbers.get(kind)
        ]
        for hour, numbers in counted.items()
    ]
    rows = [(value, formats.number(value)) for value in charts.round_steps(0, max(most, 4))]
    chart = charts.columns([formats.clock(hour) for hour in counted], stacks, rows, 200)
    total, newest = sum(one.number for one in found.hours), None if found.is_whole else MOST_COUNTED
    return ChangesOfDay(chart, kinds, _SERIES, list(counted.items()), total, newest)


def _name(visit: Visit, kind: str) -> str:
    return visit.say(WORDS.get(kind, "Other"))
