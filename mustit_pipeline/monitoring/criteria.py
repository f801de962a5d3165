"""The success criteria and the quality of the data, one rule each, for asset checks and `mustit doctor`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import Connection

from mustit_pipeline.catalog.sql import drift
from mustit_pipeline.crawling import budget
from mustit_pipeline.domain.states import TruthVerdict
from mustit_pipeline.monitoring import staleness
from mustit_pipeline.monitoring.fetch_times import fetch_times
from mustit_pipeline.monitoring.sql import criteria as numbers
from mustit_pipeline.monitoring.sql import health, spot_checks
from mustit_pipeline.monitoring.staleness import Sampled, SellerSize, Share
from mustit_pipeline.settings import Settings

NAMES = 20
LONGEST_INTERVAL = timedelta(days=31)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result of a rule: one line of text, and numbers for plots."""

    passed: bool
    summary: str
    metadata: Mapping[str, int | float | str] = field(default_factory=dict[str, int | float | str])


@dataclass(frozen=True, slots=True)
class Criterion:
    """A rule, its asset, and what to do if it fails."""

    name: str
    asset: str
    description: str
    remedy: str
    judge: Callable[[Connection, Settings, datetime], Judgement]
    # Whether a failure breaks a success criterion; otherwise it is a warning.
    error: bool = True


def _window(settings: Settings, now: datetime) -> datetime:
    return now - timedelta(hours=settings.check_window_hours)


def _percent(part: float, whole: float) -> float:
    return round(100 * part / whole, 2) if whole else 100.0


def crawl_success(connection: Connection, settings: Settings, now: datetime) -> Judgement:
    found = numbers.outcomes(connection, _window(settings, now))
    tasks, crawls = found.completed_tasks + found.failed_tasks, found.completed_crawls + found.failed_crawls
    of_tasks, of_crawls = _percent(found.completed_tasks, tasks), _percent(found.completed_crawls, crawls)
    # A crawl that failed without a plan has no tasks, so crawls count too.
    reached = min(of_tasks, of_crawls)
    return Judgement(
        reached >= settings.crawl_success_percent,
        f"{of_tasks:g} % of {tasks} tasks and {of_crawls:g} % of {crawls} crawls succeeded",
        {
            "success_percent": reached,
            "wanted_percent": settings.crawl_success_percent,
            "tasks": tasks,
            "failed_tasks": found.failed_tasks,
            "crawls": crawls,
            "failed_crawls": found.failed_crawls,
        },
    )


def listing_coverage(connection: Connection, settings: Settings, now: datetime) -> Judgement:
    found = health.sweeps(connection, now - LONGEST_INTERVAL)
    listed, seen = sum(one.listed for one in found), sum(min(one.seen, one.listed) for one in found)
    reached = _percent(seen, listed)
    partial = [f"{one.seller_id} ({one.seen} of {one.listed})" for one in found if not one.complete]
    return Judgement(
        reached >= settings.coverage_percent,
        f"{reached:g} % of {listed} listed products were seen by the last sweeps",
        {
            "coverage_percent": reached,
            "wanted_percent": settings.coverage_percent,
            "listed": listed,
            "seen": seen,
            "incomplete_sweeps": len(partial),
            "sellers": _names(partial),
        },
    )


def completeness(connection: Connection, settings: Settings, now: datetime) -> Judgement:
    found = numbers.completeness(connection, _window(settings, now), NAMES)
    reached = _percent(max(0, found.listed - found.incomplete), found.listed)
    return Judgement(
        reached >= settings.completeness_percent,
        f"{reached:g} % of {found.listed} listed products are complete in time",
        {
            "complete_percent": reached,
            "wanted_percent": settings.completeness_percent,
            "listed": found.listed,
            "incomplete": found.incomplete,
            "sellers": _names(found.sellers, found.behind),
        },
    )


def delivered_in_time(connection: Connection, settings: Settings, now: datetime) -> Judgement:
    found = numbers.deliveries(connection, _window(settings, now), now, settings.delivery_hours)
    return Judgement(
        not found.late and not found.overdue,
        f"{found.delivered} changes delivered, {found.late} of them late; {found.overdue} late and still here",
        {
            "delivered": found.delivered,
            "late": found.late,
            "overdue": found.overdue,
            "longest_hours": round(found.longest_hours, 3),
            "wanted_hours": settings.delivery_hours,
        },
    )


def products_a_day(connection: Connection, settings: Settings, now: datetime) -> Judgement:
    found = numbers.throughput(connection, now - timedelta(days=1))
    return Judgement(
        found.fetched >= settings.products_per_day or not found.waiting,
        f"{found.fetched} products fetched in a day; {found.waiting} calls have waited longer than that",
        {"fetched": found.fetched, "wanted": settings.products_per_day, "waiting_calls": found.waiting},
    )


def fetch_p95(connection: Connection, settings: Settings, now: datetime) -> Judgement:
    found = fetch_times(connection, _window(settings, now), now)
    slow = {hour: p95 for hour, p95 in found.by_hour.items() if p95 >= settings.fetch_p95_seconds}
    reached = found.p95 or 0.0
    said = f"95 % of {found.number} fetches took less than {reached:.3g} s; {len(slow)} hours were slower than wanted"
    return Judgement(
        reached < settings.fetch_p95_seconds,
        said if found.number else "nothing was fetched",
        {
            "p95_seconds": round(reached, 3),
            "wanted_seconds": settings.fetch_p95_seconds,
            "fetches": found.number,
            "slow_hours": len(slow),
            "slowest_hour_seconds": round(max(found.by_hour.values(), default=0.0), 3),
        },
    )


def outbox_age(connection: Connection, settings: Settings, now: datetime) -> Judgement:
    found = health.unsent_events(connection)
    hours = 0.0 if found.oldest is None else max(0.0, (now - found.oldest).total_seconds() / 3600)
    return Judgement(
        hours <= settings.outbox_age_hours,
        f"{found.number} events are unsent, the oldest change has waited {hours:.1f} h",
        {"unsent": found.number, "oldest_hours": round(hours, 3), "wanted_hours": settings.outbox_age_hours},
    )


def no_failed_events(connection: Connection, settings: Settings, now: datetime) -> Judgement:
    failed = health.failed_events(connection)
    return Judgement(not failed, f"{failed} events are FAILED", {"failed": failed})


def sellers_succeeding(connection: Connection, settings: Settings, now: datetime) -> Judgement:
    found = health.failing(connection, now - LONGEST_INTERVAL, settings.crawl_success_percent, NAMES)
    return Judgement(
        not found.number,
        f"the last crawl of {found.number} sellers failed",
        {"failing": found.number, "sellers": _names(found.names, found.number)},
    )


def sellers_on_time(connection: Connection, settings: Settings, now: datetime) -> Judgement:
    found = health.overdue(connection, now, settings.overdue_intervals, NAMES)
    return Judgement(
        not found.number,
        f"{found.number} sellers have had no whole crawl for {settings.overdue_intervals:g} of their intervals",
        {"overdue": found.number, "sellers": _names(found.names, found.number)},
    )


def products_fresh(connection: Connection, settings: Settings, now: datetime) -> Judgement:
    if settings.recrawl == "everything":
        return Judgement(passed=True, summary="every crawl fetches everything: no age is promised")
    found = budget.view(connection, settings, now)
    oldest = found.oldest_age or 0.0
    needed = (
        "" if found.affords_promise else f"; the pool keeps {found.kept_age:.0f} h, {found.remedies.agents} agents "
    )
    return Judgement(
        found.promise_kept,
        f"the oldest detail or option set is {oldest:.1f} h old, {found.max_age:g} h are promised"
        + (f"{needed}would keep that" if needed else ""),
        {
            "oldest_hours": round(oldest, 3),
            "wanted_hours": found.max_age,
            "kept_hours": round(found.kept_age, 3),
            "expected_freshness_percent": round(100 * found.expected_freshness, 2),
            "capacity_per_day": found.capacity_per_day,
            "used_today": found.used_today,
            "reserved": found.reserved,
            "cost_per_day": found.cost_per_day,
            "agents": found.agents,
            "agents_needed": found.remedies.agents,
            "sellers": _names([f"{one.seller_id} ({one.oldest_age or 0.0:.1f} h)" for one in found.sellers]),
        },
    )


def price_jumps(connection: Connection, settings: Settings, now: datetime) -> Judgement:
    found = numbers.jumps(connection, _window(settings, now), settings.price_jump_factor)
    many = [
        one
        for one in found
        if one.jumped >= settings.suspicious_least and one.jumped > settings.suspicious_share * one.products
    ]
    return Judgement(
        not many,
        f"prices of {sum(one.jumped for one in found)} products jumped; {len(many)} sellers have many of them",
        {
            "jumped": sum(one.jumped for one in found),
            "suspicious_sellers": len(many),
            "sellers": _names([f"{one.seller_id} ({one.jumped} of {one.products})" for one in many]),
        },
    )


def null_share(connection: Connection, settings: Settings, now: datetime) -> Judgement:
    found = numbers.gaps(connection, _window(settings, now))
    lacking = {name: n for name, n in found.missing.items() if n > settings.null_share * found.versions}
    return Judgement(
        not lacking,
        f"of {found.versions} new versions too many lack {', '.join(lacking)}" if lacking else "no field is missing",
        {"versions": found.versions, **{f"without_{name}": n for name, n in found.missing.items()}},
    )


def schema_drift(connection: Connection, settings: Settings, now: datetime) -> Judgement:
    number = drift.count_open(connection)
    shown = drift.newest(connection, since=None, accepted=False, limit=NAMES).rows if number else []
    paths = list(dict.fromkeys(one.deviation.path for one in shown))
    return Judgement(
        not number, f"{number} fields changed their shape", {"fields": number, "paths": _names(paths, number)}
    )


def sampled_truth(connection: Connection, settings: Settings, now: datetime) -> Judgement:
    since = now - timedelta(days=settings.truth_window_days)
    found = numbers.verdicts(connection, since)
    wrong = found.get(TruthVerdict.WRONG, 0)
    right = found.get(TruthVerdict.EQUAL, 0) + found.get(TruthVerdict.EXPLAINED, 0)
    reached = _percent(right, right + wrong)
    compared = staleness.shares(connection, since, now)
    whole = staleness.of_source(compared, Sampled.PRODUCT)
    low, high = (100 * end for end in whole.interval)
    return Judgement(
        reached >= settings.correct_percent,
        f"{reached:g} % of {right + wrong} sampled products equal the marketplace's; "
        f"{100 * whole.ratio:.3g} % ({low:.2f} to {high:.2f}) of {whole.compared} were stale when sampled",
        {
            **_staleness("", whole),
            **{
                name: value
                for source in (Sampled.DETAIL, Sampled.OPTIONS, Sampled.LISTING)
                for name, value in _staleness(f"{source.lower()}_", staleness.of_source(compared, source)).items()
            },
            **{
                name: value
                for size in SellerSize
                for name, value in _staleness(f"{size.lower()}_sellers_", staleness.of_size(compared, size)).items()
            },
            "sampled_without_answer": whole.unanswered,
            "correct_percent": reached,
            "wanted_percent": settings.correct_percent,
            "right": right,
            "explained": found.get(TruthVerdict.EXPLAINED, 0),
            "wrong": wrong,
            "undecided": found.get(TruthVerdict.OPEN, 0),
            "wrong_products": _names(spot_checks.wrong(connection, since, NAMES), wrong),
        },
    )


def _staleness(prefix: str, share: Share) -> dict[str, int | float | str]:
    low, high = share.interval
    return {
        f"{prefix}sampled": share.compared,
        f"{prefix}stale_percent": round(100 * share.ratio, 3),
        f"{prefix}stale_percent_at_least": round(100 * low, 3),
        f"{prefix}stale_percent_at_most": round(100 * high, 3),
    }


def _names(names: list[str] | tuple[str, ...], number: int | None = None) -> str:
    shown, total = list(names)[:NAMES], len(names) if number is None else number
    more = f" and {total - len(shown)} more" if total > len(shown) else ""
    return ", ".join(shown) + more or "none"


# The criteria concern all sellers, so they belong to the two ends of the lineage: checks of an asset with seller
# partitions would run with each partition, a thousand times in a backfill.
CRITERIA = (
    Criterion(
        "crawl_success",
        "mustit_marketplace",
        "Success criterion: enough of the last crawls, and of their tasks, succeeded.",
        "See `mustit execution list`, then `show ID` for the reasons.",
        crawl_success,
    ),
    Criterion(
        "listing_coverage",
        "mustit_marketplace",
        "The last sweeps of all active sellers saw as many products as the marketplace counts.",
        "See `mustit execution list` for sweeps that are INCOMPLETE, then `show ID` for why.",
        listing_coverage,
    ),
    Criterion(
        "completeness",
        "mustit_marketplace",
        "Success criterion: products that are listed are complete within the window.",
        "See `mustit execution show ID` of the named sellers for failing calls.",
        completeness,
    ),
    Criterion(
        "delivered_in_time",
        "product_server",
        "Success criterion: every change has reached the product server in time.",
        "See `mustit outbox list` and `mustit doctor` for the cause.",
        delivered_in_time,
    ),
    Criterion(
        "products_a_day",
        "mustit_marketplace",
        "Success criterion: so many products are fetched in a day, unless nothing has been waiting for that long.",
        "See `mustit agents status`: more agents, or longer intervals.",
        products_a_day,
    ),
    Criterion(
        "sampled_truth",
        "mustit_marketplace",
        "Success criterion: sampled products equal the marketplace's, or the difference is explained.",
        "See the products that the check names, then `mustit product show ITEM` and the marketplace.",
        sampled_truth,
    ),
    Criterion(
        "sellers_succeeding",
        "mustit_marketplace",
        "The last crawl of every active seller succeeded.",
        "See `mustit execution list --seller ID`.",
        sellers_succeeding,
    ),
    Criterion(
        "sellers_on_time",
        "mustit_marketplace",
        "Every active seller has had a whole crawl within the allowed number of its intervals.",
        "See `mustit execution list --seller ID`; is the daemon running?",
        sellers_on_time,
    ),
    Criterion(
        "products_fresh",
        "mustit_marketplace",
        "No detail and no option set is older than the promised MAX_AGE_HOURS.",
        "See `mustit budget` for what would keep the promise: more agents, fewer products or a longer age.",
        products_fresh,
    ),
    Criterion(
        "no_failed_events",
        "product_server",
        "No event has been given up.",
        "See `mustit outbox list --status FAILED`, then `mustit outbox retry`.",
        no_failed_events,
    ),
    Criterion(
        "outbox_age",
        "product_server",
        "No event waits for long.",
        "See `mustit outbox list` and whether the product server answers.",
        outbox_age,
        error=False,
    ),
    Criterion(
        "fetch_p95",
        "mustit_marketplace",
        "Of the calls to the marketplace, 95 % are answered in time.",
        "See whether the marketplace or the network is slow; a lower MUSTIT_MAX_CONCURRENT_REQUESTS asks less at once.",
        fetch_p95,
        error=False,
    ),
    Criterion(
        "price_jumps",
        "product_server",
        "No seller has many published prices that jumped.",
        "See `mustit changes --type PRICE`.",
        price_jumps,
        error=False,
    ),
    Criterion(
        "null_share",
        "product_server",
        "New versions have all essential fields.",
        "See `mustit drift list` and `mustit product show ITEM`.",
        null_share,
        error=False,
    ),
    Criterion(
        "schema_drift",
        "mustit_marketplace",
        "The marketplace's bodies have the shape that the parser was written for.",
        "See `mustit drift list`, then `mustit drift accept PATH` for harmless changes.",
        schema_drift,
        error=False,
    ),
)
