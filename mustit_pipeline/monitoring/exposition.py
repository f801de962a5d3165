"""The metrics that Prometheus scrapes: read from the databases when asked, so right whichever process answers.

Counters are the sums of `tallies`, which are written with what they count and never fall. Everything else is a gauge of
the present. No label is an item or a seller, so the number of series does not depend on what is stored.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from importlib.metadata import version
from threading import Lock
from typing import TypeVar

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from mustit_pipeline.agents import roster
from mustit_pipeline.aws.clients import AwsRefused, AwsUnreachable
from mustit_pipeline.catalog.sql import drift
from mustit_pipeline.crawling import dead_letters
from mustit_pipeline.crawling.fetching import FetchOutcome
from mustit_pipeline.domain.states import ExecutionStatus, ProductEventType, TaskType
from mustit_pipeline.foundation import schema
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database, addresses, make_engine
from mustit_pipeline.monitoring import staleness
from mustit_pipeline.monitoring.criteria import LONGEST_INTERVAL, NAMES
from mustit_pipeline.monitoring.sql import alerts, dagster_runs, exposition, health
from mustit_pipeline.monitoring.sql.metrics import CHANGE_KINDS
from mustit_pipeline.settings import Settings
from mustit_pipeline.tallies.histogram import Histogram
from mustit_pipeline.tallies.sql import tallies
from mustit_pipeline.tallies.sql.tallies import Labels, Subject

FRESH_SECONDS = 5.0
# Meanwhile others get the numbers before, unless they are older than this: a counter that a second server has told
# higher would seem to fall between two scrapes.
STALE_SECONDS = 10.0
RUN_HOURS = 24
DAGSTER_SECONDS = 2.0
# Dagster's database or SQS, if it does not answer, is not asked with every scrape.
SILENT_PAUSE_SECONDS = 60.0

# The two forms that are kept: any other wish of a reader is answered with the second.
OPEN_METRICS, PLAIN = "application/openmetrics-text", "text/plain"

T = TypeVar("T")
log = structlog.get_logger(__name__)


class _Families(Collector):
    """What was read, as a collector."""

    def __init__(self, found: Sequence[Metric]) -> None:
        self._found = found

    def collect(self) -> Iterable[Metric]:
        return self._found


class _Scrape:
    """All metrics as they were read at one moment, in each form that was asked for."""

    def __init__(self, found: Sequence[Metric]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Families(found))
        self._texts: dict[str, tuple[bytes, str]] = {}
        self._read_at = time.monotonic()

    @property
    def age(self) -> float:
        return time.monotonic() - self._read_at

    def text(self, accept: str) -> tuple[bytes, str]:
        """The text and its content type."""
        form = f"{OPEN_METRICS}; version=1.0.0" if OPEN_METRICS in accept else PLAIN
        if form not in self._texts:
            encode, content_type = choose_encoder(form)
            self._texts[form] = encode(self._registry), content_type
        return self._texts[form]


class Exposition:
    """The metrics of one server process, read at most once in a few seconds, by one request at a time."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._dagster: Database | None = None
        self._dagster_silent_until = 0.0
        self._sqs_silent_until = 0.0
        self._reading = Lock()
        self._last: _Scrape | None = None

    def text(self, accept: str) -> tuple[bytes, str]:
        """The metrics in the form that the reader prefers, and its content type."""
        return self._present().text(accept)

    def close(self) -> None:
        """Close the connection to Dagster's database."""
        if self._dagster is not None:
            self._dagster.close()

    def _present(self) -> _Scrape:
        last = self._last
        if last is not None and last.age < FRESH_SECONDS:
            return last
        # Others do not wait for the one that reads, unless they would get something old.
        usable = last if last is not None and last.age < STALE_SECONDS else None
        if not self._reading.acquire(blocking=usable is None) and usable is not None:
            return usable
        try:
            last = self._last
            if last is None or last.age >= FRESH_SECONDS:
                last = self._last = _Scrape([*self._business(), *self._runs(), *self._task_queue()])
            return last
        finally:
            self._reading.release()

    def _business(self) -> list[Metric]:
        with self._database.reading() as connection:
            return list(families(connection, self._settings, utc_now()))

    def _runs(self) -> Iterator[Metric]:
        """Dagster's part; without its database that is said, and the rest is told all the same."""
        found = self._recent_runs()
        up = "Whether Dagster's database answers"
        yield _gauge("mustit_dagster_database_up", up, 0 if found is None else 1)
        if found is not None:
            runs = {(one.job, one.state.lower()): one.number for one in found}
            text = f"Dagster runs whose state changed in the last {RUN_HOURS} hours"
            yield _gauges("mustit_dagster_runs", text, ("job", "state"), runs)

    def _task_queue(self) -> Iterator[Metric]:
        """What lies in SQS, where it carries the tasks; if it does not answer, that is said."""
        if self._settings.task_transport != "sqs":
            return
        found = self._queue_depths()
        yield _gauge("mustit_task_queue_up", "Whether SQS answers", 0 if found is None else 1)
        if found is not None:
            states = {("visible",): found.visible, ("in_flight",): found.in_flight}
            yield _gauges("mustit_task_queue_messages", "Messages of tasks in SQS, by state", ("state",), states)
            yield _gauge("mustit_dead_letters", "Messages of tasks that are parked", found.dead)

    def _queue_depths(self) -> dead_letters.QueueDepths | None:
        if time.monotonic() < self._sqs_silent_until:
            return None
        try:
            return dead_letters.depths(self._settings)
        except (AwsRefused, AwsUnreachable) as error:
            log.warning("SQS does not answer: no metrics of the task queue", error=error.english)
            self._sqs_silent_until = time.monotonic() + SILENT_PAUSE_SECONDS
            return None

    def _recent_runs(self) -> list[dagster_runs.Runs] | None:
        if time.monotonic() < self._dagster_silent_until:
            return None
        try:
            if self._dagster is None:
                self._dagster = _dagster_database(self._settings)
            with self._dagster.reading() as connection:
                return dagster_runs.recent(connection, RUN_HOURS)
        except SQLAlchemyError as error:
            log.warning("Dagster's database does not answer: no metrics of runs", error=type(error).__name__)
            self._dagster_silent_until = time.monotonic() + SILENT_PAUSE_SECONDS
            return None


def families(connection: Connection, settings: Settings, now: datetime) -> Iterator[Metric]:
    """Every metric of the business database."""
    yield _build(connection)
    yield from _fetches(connection)
    yield from _agents(connection, settings, now)
    yield from _sweeps(connection, now)
    yield from _changes(connection)
    yield from _outbox(connection, now)
    yield from _held(connection)
    yield from _sellers(connection, settings, now)
    yield from _crawls(connection)
    yield from _staleness(connection, settings, now)


def _build(connection: Connection) -> Metric:
    labels = {"version": version("mustit-pipeline"), "schema": schema.current_revision(connection) or "none"}
    family = GaugeMetricFamily("mustit_build_info", "Version of the server and of the schema", labels=list(labels))
    family.add_metric(list(labels.values()), 1)
    return family


def _fetches(connection: Connection) -> Iterator[Metric]:
    found = tallies.totals(connection, Subject.FETCH)
    known = {(endpoint.value, outcome.value): 0 for endpoint in TaskType for outcome in FetchOutcome}
    numbers = known | {labels: one.number for labels, one in found.items()}
    text = "Calls to the marketplace, by how they ended; calls for session tokens are not counted"
    yield _counters("mustit_fetches", text, ("endpoint", "outcome"), _lower(numbers))
    by_endpoint = {(endpoint.value,): Histogram() for endpoint in TaskType}
    for (endpoint, _), one in found.items():
        by_endpoint[(endpoint,)] += one
    text = "Time from sending a call to having read its whole answer"
    yield _histograms("mustit_fetch_duration_seconds", text, ("endpoint",), _lower(by_endpoint), Subject.FETCH.bounds)


def _agents(connection: Connection, settings: Settings, now: datetime) -> Iterator[Metric]:
    pool = roster.pool_status(connection, settings, now)
    states = {("available",): pool.available, ("suspended",): pool.suspended, ("blocked",): pool.blocked}
    yield _gauges("mustit_agents", "User agents by state", ("state",), states)
    yield _gauge("mustit_agents_with_token", "User agents with a valid session token", pool.with_token)
    text = "Requests of available agents in the present window"
    yield _gauge("mustit_budget_used_requests", text, pool.used_in_window)
    left = max(0, pool.available * settings.requests_per_hour - pool.used_in_window)
    yield _gauge("mustit_budget_left_requests", "Requests that available agents have left in the window", left)
    circuits = {(state,): int(pool.circuit == state) for state in ("closed", "open", "half-open")}
    yield _gauges("mustit_circuit", "State of the marketplace's circuit breaker", ("state",), circuits)
    paused = pool.host_paused_until is not None
    yield _gauge("mustit_marketplace_paused", "Whether all calls pause because the host throttles", int(paused))


def _sweeps(connection: Connection, now: datetime) -> Iterator[Metric]:
    found = health.sweeps(connection, now - LONGEST_INTERVAL)
    listed, seen = sum(one.listed for one in found), sum(min(one.seen, one.listed) for one in found)
    yield _gauge("mustit_sweep_listed_products", "Products that the last sweeps should have seen", listed)
    yield _gauge("mustit_sweep_seen_products", "Products that they have seen", seen)
    text = "Share of listed products that the last sweeps have seen"
    yield _gauge("mustit_sweep_coverage_ratio", text, seen / listed if listed else 1)
    incomplete = sum(not one.complete for one in found)
    yield _gauge("mustit_sweeps_incomplete", "Sellers whose last sweep saw only a part of the listing", incomplete)


def _changes(connection: Connection) -> Iterator[Metric]:
    known = {(kind,): 0 for kind in CHANGE_KINDS}
    numbers = known | {labels: one.number for labels, one in tallies.totals(connection, Subject.CHANGE).items()}
    yield _counters("mustit_changes", "Published changes by type", ("type",), _lower(numbers))
    delays = {(event.value,): Histogram() for event in ProductEventType}
    delays |= tallies.totals(connection, Subject.DELIVERY)
    text = "Time from the detection of a change to its delivery"
    events = {(event.removeprefix("PRODUCT_"),): one for (event,), one in delays.items()}
    yield _histograms("mustit_delivery_delay_seconds", text, ("event",), _lower(events), Subject.DELIVERY.bounds)


def _outbox(connection: Connection, now: datetime) -> Iterator[Metric]:
    found = exposition.outbox(connection)
    numbers = {(state.value,): rows.number for state, rows in found.items()}
    yield _gauges("mustit_outbox_rows", "Events that are not delivered, by state", ("state",), _lower(numbers))
    ages = {
        (state.value,): 0.0 if rows.oldest is None else max(0.0, (now - rows.oldest) / timedelta(seconds=1))
        for state, rows in found.items()
    }
    text = "Age of the oldest event that is not delivered, by state"
    yield _gauges("mustit_outbox_oldest_age_seconds", text, ("state",), _lower(ages))


def _held(connection: Connection) -> Iterator[Metric]:
    deletions, changes = health.held_deletions(connection), health.held_changes(connection)
    held = {("deletion",): sum(one.number for one in deletions), ("change",): sum(one.number for one in changes)}
    yield _gauges("mustit_held_products", "Products whose deletion or change is held back", ("kind",), held)
    sellers = {("deletion",): len(deletions), ("change",): len(changes)}
    yield _gauges("mustit_held_sellers", "Sellers with held deletions or changes", ("kind",), sellers)
    yield _gauge("mustit_drift_fields", "Fields whose shape changed and is not accepted", drift.count_open(connection))
    yield _gauge("mustit_alerts_open", "Open alerts", alerts.open_alerts(connection)[0])


def _sellers(connection: Connection, settings: Settings, now: datetime) -> Iterator[Metric]:
    states = {(status.value,): number for status, number in exposition.sellers(connection).items()}
    yield _gauges("mustit_sellers", "Sellers by state", ("state",), _lower(states))
    text = "Active sellers that are due and wait for their crawl to begin"
    yield _gauge("mustit_sellers_due", text, exposition.due_sellers(connection))
    text = "Active sellers without a whole crawl for too many of their intervals"
    overdue = health.overdue(connection, now, settings.overdue_intervals, NAMES)
    yield _gauge("mustit_sellers_overdue", text, overdue.number)


def _crawls(connection: Connection) -> Iterator[Metric]:
    found = exposition.open_executions(connection)
    crawls = {(status.value,): one.number for status, one in found.items()}
    yield _gauges("mustit_crawls_open", "Crawls that have not ended, by state", ("state",), _lower(crawls))
    leased = exposition.leased_tasks(connection)
    yield _gauge("mustit_tasks_leased", "Tasks that a worker holds", leased)
    # More workers would not help a crawl that an operator has paused.
    unended = sum(one.tasks for status, one in found.items() if status is not ExecutionStatus.PAUSED)
    text = "Tasks of crawls that are not paused that wait for a worker, an agent or their next try"
    yield _gauge("mustit_tasks_waiting", text, max(0, unended - leased))


def _staleness(connection: Connection, settings: Settings, now: datetime) -> Iterator[Metric]:
    """What the uniform sample of the last days shows, by source and size of seller."""
    found = staleness.shares(connection, now - timedelta(days=settings.truth_window_days), now)
    labels = ("source", "size")
    named = _lower({(source.value, size.value): share for (source, size), share in found.items()})
    numbers = {of: share.compared for of, share in named.items()}
    yield _gauges("mustit_sampled_products", "Products compared with the marketplace", labels, numbers)
    ratios = {of: share.ratio for of, share in named.items()}
    yield _gauges("mustit_sampled_stale_ratio", "Share of them that was stale", labels, ratios)
    low = {of: share.interval[0] for of, share in named.items()}
    yield _gauges("mustit_sampled_stale_ratio_lower", "Lower end of its 95 % confidence interval", labels, low)
    high = {of: share.interval[1] for of, share in named.items()}
    yield _gauges("mustit_sampled_stale_ratio_upper", "Upper end of its 95 % confidence interval", labels, high)


def _lower(found: Mapping[Labels, T]) -> dict[Labels, T]:
    return {tuple(label.lower() for label in labels): value for labels, value in found.items()}


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _gauges(name: str, text: str, labels: Sequence[str], values: Mapping[Labels, float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for of, value in sorted(values.items()):
        family.add_metric(of, value)
    return family


def _counters(name: str, text: str, labels: Sequence[str], values: Mapping[Labels, float]) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for of, value in sorted(values.items()):
        family.add_metric(of, value)
    return family


def _histograms(
    name: str, text: str, labels: Sequence[str], values: Mapping[Labels, Histogram], bounds: Sequence[float]
) -> Metric:
    family = HistogramMetricFamily(name, text, labels=labels)
    for of, one in sorted(values.items(), key=lambda item: item[0]):
        below, buckets = 0, list[tuple[str, float]]()
        for bound, inside in zip((*bounds, float("inf")), one.buckets or (0,) * (len(bounds) + 1), strict=True):
            below += inside
            buckets.append(("+Inf" if bound == float("inf") else repr(bound), below))
        family.add_metric(of, buckets, one.seconds)
    return family


def _dagster_database(settings: Settings) -> Database:
    url = addresses(settings).dagster_database_url.set(drivername="postgresql+psycopg")
    engine = make_engine(
        url, connections=1, max_connections=1, statement_seconds=DAGSTER_SECONDS, connect_seconds=int(DAGSTER_SECONDS)
    )
    return Database(engine)
