"""What became of leased tasks, stored with everything that follows from it in one transaction."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from uuid import UUID

import orjson
from msgspec import Struct, field
from sqlalchemy import Connection

from mustit_pipeline.catalog import canonical, deletion
from mustit_pipeline.catalog.canonical import Content
from mustit_pipeline.catalog.sql import products, raw
from mustit_pipeline.catalog.sql.drift import Sighting
from mustit_pipeline.catalog.sql.products import Sighted
from mustit_pipeline.catalog.sql.raw import NewRaw
from mustit_pipeline.crawling.fetching import RequestCounter, durations_of
from mustit_pipeline.crawling.planning import plan_pages, plan_products, planned_status, within_limit
from mustit_pipeline.crawling.recrawl import fetches_everything, plan_signalled
from mustit_pipeline.crawling.sql import executions, leases, tasks
from mustit_pipeline.crawling.sql.executions import StoredExecution
from mustit_pipeline.crawling.sql.learning import Fetched, learn
from mustit_pipeline.crawling.sql.leases import LeasedTask
from mustit_pipeline.crawling.sql.tasks import TaskHome
from mustit_pipeline.domain.drift import Deviation
from mustit_pipeline.domain.states import TASK, TaskStatus, TaskType
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database, is_committed
from mustit_pipeline.marketplace.endpoints import Endpoints
from mustit_pipeline.marketplace.models import ListingEntry, ListingPage
from mustit_pipeline.settings import Settings
from mustit_pipeline.tallies.sql import tallies
from mustit_pipeline.tallies.sql.tallies import Subject


class TaskResult(Struct, frozen=True):
    """One attempt's end: the task already moved to its next state, and what it brought.

    One that is handed back has not moved: it could not be tried for want of an agent. The body of a failed one was
    refused for its shape.
    """

    leased: LeasedTask
    calls: RequestCounter = field(default_factory=RequestCounter)
    body: str | None = None
    content: Content | None = None
    page: ListingPage | None = None
    gone: bool = False
    # Another seller's product, by its detail.
    foreign: bool = False
    delay: float = 0.0
    handed_back: bool = False
    drift: Sequence[Deviation] = ()

    @property
    def holds_page(self) -> bool:
        """Whether it holds the body of a listing page, a refused one included."""
        return self.leased.page_no is not None and self.body is not None


@dataclass(frozen=True, slots=True)
class StoredOutcome:
    """What of a batch was really written; a late writer's share is not."""

    # Tasks that this batch moved, by type and by where they stand now.
    ended: Counter[tuple[TaskType, TaskStatus]]
    lost: int

    @property
    def completed(self) -> int:
        """Tasks that succeeded."""
        return sum(number for (_, status), number in self.ended.items() if status is TaskStatus.COMPLETED)

    @property
    def failed(self) -> int:
        """Tasks that failed for good."""
        return sum(number for (_, status), number in self.ended.items() if status is TaskStatus.FAILED)


@dataclass(slots=True)
class Receipt:
    """What a batch comes to if its transaction was committed, if the connection is lost before that is known."""

    transaction: str | None = None
    outcome: StoredOutcome | None = None


@dataclass(frozen=True, slots=True)
class _Shown:
    """Of the products on pages: those whose entry has changed, and those of other sellers that are not asked for."""

    signalled: Sequence[int] = ()
    left_out: Set[int] = frozenset()


class ResultStore:
    """Stores batches of results, of one execution or of many."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        endpoints: Endpoints,
        *,
        settle: Callable[[Sequence[LeasedTask], Sequence[LeasedTask]], None] | None = None,
    ) -> None:
        self._database = database
        self._settings = settings
        self._endpoints = endpoints
        # Told after the transaction which leases it has ended, and which tasks are to be claimed again.
        self._settle = settle

    def store(self, results: Sequence[TaskResult], receipt: Receipt | None = None) -> StoredOutcome:
        """Write task states, bodies, sightings, follow-up tasks and counters, or nothing at all.

        With the same receipt as before, the same results are written only if they were not.
        """
        receipt = receipt or Receipt()
        if receipt.outcome is not None and self._is_stored(results, receipt):
            return receipt.outcome
        newest = _newest(results)
        tried = [result for result in newest if not result.handed_back]
        bodies = _bodies(tried, TaskStatus.COMPLETED)
        with self._database.transaction() as connection:
            # The bulk of it before any lock, so that batches only wait for each other where they must.
            raw.add(connection, bodies)
            tallies.add(connection, Subject.FETCH, durations_of(result.calls for result in results))
            # The executions before their tasks, in the common lock order: cancelling one meanwhile must not deadlock.
            locked = executions.lock_all(connection, {result.leased.home.execution_id for result in results})
            leases.hand_back(connection, [result.leased for result in newest if result.handed_back])
            ours = leases.save(connection, [(result.leased, result.delay) for result in tried], _calls(results))
            kept = [result for result in tried if result.leased.task_id in ours]
            raw.take_back(connection, [body for body in bodies if body.task_id not in ours])
            # Refused ones are few, and are not processed now.
            raw.add(connection, _bodies(kept, TaskStatus.FAILED))
            # Their products in the order in which the relay locks them too.
            by_seller = sorted(locked.stored, key=lambda one: one.home.seller_id)
            _lock_products(connection, by_seller, kept)
            signalled = {
                current.home: self._follow_up(
                    connection, current, [result for result in kept if result.leased.home == current.home]
                )
                for current in by_seller
            }
            learn(
                connection,
                [lesson for result in kept if (lesson := _lesson(result)) is not None],
                [(home.seller_id, item_no) for home, items in signalled.items() for item_no in items],
                {
                    (leased.home.seller_id, leased.item_no, leased.task_type): leased.ended_at
                    for leased in (result.leased for result in kept)
                    if leased.status is TaskStatus.FAILED and leased.item_no is not None
                },
            )
            for current in by_seller:
                # Planned where the recrawl policy believes that they have changed.
                if signalled[current.home] and not fetches_everything(self._settings, current):
                    plan_signalled(connection, self._settings, current, signalled[current.home], utc_now())
            seen = [
                Sighting(
                    result.leased.home.seller_id, result.leased.item_no, result.leased.home.execution_id, deviation
                )
                for result in kept
                for deviation in result.drift
            ]
            executions.record_drift(connection, seen)
            receipt.transaction = locked.transaction
            receipt.outcome = StoredOutcome(
                ended=Counter((result.leased.task_type, result.leased.status) for result in kept),
                lost=len(tried) - len(kept) + len(results) - len(newest),
            )
        if self._settle is not None:
            released = TASK.target("release")
            back = [result.leased for result in newest if result.handed_back or result.leased.status is released]
            self._settle([result.leased for result in kept if result.leased.status is not released], back)
        return receipt.outcome

    def _is_stored(self, results: Sequence[TaskResult], receipt: Receipt) -> bool:
        with self._database.transaction() as connection:
            # A transaction that may still be committed holds these locks until it is.
            executions.lock_all(connection, {result.leased.home.execution_id for result in results})
            return receipt.transaction is not None and is_committed(connection, receipt.transaction)

    def _follow_up(self, connection: Connection, current: StoredExecution, kept: Sequence[TaskResult]) -> Sequence[int]:
        """Remember what pages show and whose it is, and plan the calls for it. What is gone is deleted.

        Returns the products whose listing entry has changed.
        """
        home = current.home
        deletion.delete_confirmed(
            connection,
            current.execution,
            [result.leased.item_no for result in kept if result.gone and result.leased.item_no],
            sweeps=self._settings.deletion_sweeps,
            at=utc_now(),
        )
        foreign = [result.leased.item_no for result in kept if result.foreign and result.leased.item_no]
        if foreign:
            products.set_foreign(connection, home.seller_id, foreign, utc_now())
        shown = self._plan_shown(connection, current, kept)
        if foreign or shown.left_out:
            executions.count_foreign(connection, home)
        return shown.signalled

    def _plan_shown(self, connection: Connection, current: StoredExecution, kept: Sequence[TaskResult]) -> _Shown:
        """Remember what pages show, and plan what they lead to."""
        pages = [
            (leased.page_no, result.page, leased.ended_at)
            for result in kept
            if result.page is not None and (leased := result.leased).page_no is not None
        ]
        if not pages:
            return _Shown()
        # All pages at once and in one order: another transaction may be at these products too.
        pages.sort(key=lambda page: page[2])
        seen_at = {entry.item_no: at for _, page, at in pages for entry in page.entries}
        home, limit = current.home, current.product_limit
        executions.count_skipped(connection, home.execution_id, sum(page.skipped for _, page, _ in pages))
        count = max(page.count for _, page, _ in pages)
        if count > (current.listed_count or 0):
            executions.raise_listed(connection, home.execution_id, count)
            tasks.add(
                connection,
                home,
                plan_pages(self._endpoints, current.seller_id, count, limit),
                planned_status(self._settings),
            )
        sighted = products.sight(connection, home.seller_id, home.execution_id, seen_at) if seen_at else {}
        entries = {entry.item_no: entry for _, page, _ in pages for entry in page.entries}
        changed = {
            item for item, seen in sighted.items() if (seen.version or seen.foreign) and _differs(entries[item], seen)
        }
        parts = {item: entries[item] for item in changed if not entries[item].is_whole}
        if parts:
            changed -= _unchanged_parts(connection, home.seller_id, parts, sighted)
        foreign = {item for item, seen in sighted.items() if seen.foreign}
        asked = foreign if current.full_refetch else foreign & changed
        if asked:
            # Before it is known what comes of it: where nothing does, the next crawl asks again.
            products.set_foreign(connection, home.seller_id, sorted(asked), None)
        everything = fetches_everything(self._settings, current)
        for page_no, page, _ in pages:
            shown = list(dict.fromkeys(entry.item_no for entry in page.entries))
            wanted = within_limit(self._endpoints, page_no, shown, limit)
            versions = {
                item: sighted[item].version
                for item in wanted
                if item in asked or (item not in foreign and (everything or _is_new(current, sighted[item])))
            }
            tasks.add(
                connection,
                home,
                plan_products(self._endpoints, versions, changed=changed),
                planned_status(self._settings),
            )
        return _Shown(sorted(changed - foreign), foreign - asked)


def _is_new(current: StoredExecution, seen: Sighted) -> bool:
    """Whether a product is fetched because it is new; what failed before waits for a crawl that is due."""
    first_seen = seen.created_at >= current.created_at
    return seen.is_new and (first_seen or seen.deleted or not current.is_light)


def _lock_products(connection: Connection, by_seller: Sequence[StoredExecution], kept: Sequence[TaskResult]) -> None:
    """All that the batch writes, where pages are not all of it: a deletion's outbox row comes after every product."""
    if not any(result.gone or result.foreign for result in kept):
        return
    items: dict[TaskHome, list[int]] = {}
    for result in kept:
        of_home = items.setdefault(result.leased.home, [])
        if result.leased.item_no is not None and (result.gone or result.foreign):
            of_home.append(result.leased.item_no)
        if result.page is not None:
            of_home.extend(entry.item_no for entry in result.page.entries)
    for current in by_seller:
        if items.get(current.home):
            products.lock(connection, current.home.seller_id, items[current.home])


def _differs(entry: ListingEntry, seen: Sighted, earlier: str | None = None) -> bool:
    """Whether the listing says something else of a product than it did when that was last absorbed."""
    said = canonical.listing_json(entry, None if earlier is None else orjson.loads(earlier))
    return canonical.content_hash(said) != seen.listing_hash


def _unchanged_parts(
    connection: Connection, seller_id: str, parts: Mapping[int, ListingEntry], sighted: Mapping[int, Sighted]
) -> set[int]:
    """The entries without a price that say nothing new once the earlier price completes them."""
    known = products.contents(connection, seller_id, sorted(parts))
    return {
        item
        for item, entry in parts.items()
        if item in known and not _differs(entry, sighted[item], known[item].listing)
    }


def _newest(results: Sequence[TaskResult]) -> list[TaskResult]:
    """A worker that lost a lease may hold the same task under its next one: only that can still be ours."""
    newest: dict[UUID, int] = {}
    for result in results:
        task_id = result.leased.task_id
        newest[task_id] = max(result.leased.lease_no, newest.get(task_id, 0))
    return [result for result in results if result.leased.lease_no == newest[result.leased.task_id]]


def _calls(results: Sequence[TaskResult]) -> dict[UUID, tuple[int, int]]:
    """Requests and 429s by execution."""
    counted: dict[UUID, tuple[int, int]] = {}
    for result in results:
        execution_id = result.leased.home.execution_id
        requests, throttled = counted.get(execution_id, (0, 0))
        counted[execution_id] = (requests + result.calls.requests, throttled + result.calls.throttled)
    return counted


def _lesson(result: TaskResult) -> Fetched | None:
    """What a result teaches the recrawl policy; only a whole body can be compared with the last one."""
    leased, content = result.leased, result.content
    if content is None or leased.item_no is None:
        return None
    known = leased.known_hash if content.whole else None
    changed = None if known is None else content.hash != known
    return Fetched(leased.home.seller_id, leased.item_no, leased.task_type, leased.ended_at, changed, content.sold_out)


def _bodies(results: Sequence[TaskResult], status: TaskStatus) -> list[NewRaw]:
    """What tasks that ended so have brought."""
    bodies: list[NewRaw] = []
    for result in results:
        leased, task = result.leased, result.leased.task
        if result.body is None or task.status is not status:
            continue
        content = None if result.content is None else result.content.text
        if result.page is not None:
            content = canonical.listing_content(result.page.entries)
        bodies.append(
            NewRaw(
                seller_id=leased.home.seller_id,
                execution_id=leased.home.execution_id,
                task_id=leased.task_id,
                source=leased.task_type,
                item_no=leased.item_no,
                page_no=leased.page_no,
                body=result.body,
                fetched_at=leased.ended_at,
                content=content,
                content_hash=None if result.content is None else result.content.hash,
                error_code=task.error_code,
                error_text=task.error_text,
            )
        )
    return bodies
