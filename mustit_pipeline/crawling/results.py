"""What became of leased tasks, stored with everything that follows from it in one transaction."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from mustit_pipeline.catalog import deletion
from mustit_pipeline.crawling.fetching import RequestCounter
from mustit_pipeline.crawling.planning import plan_pages, plan_products, within_limit
from mustit_pipeline.domain.states import TaskStatus, TaskType
from mustit_pipeline.marketplace.endpoints import Endpoints
from mustit_pipeline.marketplace.models import ListingPage
from mustit_pipeline.settings import Settings
from mustit_pipeline.store import executions, products, raw, tasks
from mustit_pipeline.store.database import Database
from mustit_pipeline.store.executions import StoredExecution
from mustit_pipeline.store.raw import NewRaw
from mustit_pipeline.store.tasks import LeasedTask


@dataclass(frozen=True, slots=True)
class TaskResult:
    """One attempt's end: the task already moved to its next state, and what it brought."""

    leased: LeasedTask
    body: str | None = None
    page: ListingPage | None = None
    gone: bool = False
    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class StoredOutcome:
    """What of a batch was really written; a late writer's share is not."""

    completed: int
    failed: int
    lost: int


class ResultStore:
    """Stores batches of results for one execution."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        stored: StoredExecution,
        endpoints: Endpoints,
        now: Callable[[], datetime],
    ) -> None:
        self._database = database
        self._settings = settings
        self._stored = stored
        self._endpoints = endpoints
        self._now = now

    def store(self, results: Sequence[TaskResult], counted: RequestCounter) -> StoredOutcome:
        """Write task states, bodies, sightings, follow-up tasks and counters, or nothing at all."""
        home = self._stored.home
        with self._database.transaction() as connection:
            ours = tasks.save(connection, [(result.leased, result.delay) for result in results])
            kept = [result for result in results if result.leased.task.id.value in ours]
            raw.add(connection, [_raw(result, result.body) for result in kept if result.body is not None])
            for result in kept:
                if result.page is not None and result.leased.page_no is not None:
                    self._follow_up(connection, result.leased.page_no, result.page)
            deletion.delete_confirmed(
                connection,
                self._stored,
                [result.leased.task.item_no.value for result in kept if result.gone and result.leased.task.item_no],
                sweeps=self._settings.deletion_sweeps,
                at=self._now(),
            )
            executions.count_requests(
                connection, home.execution_id, requests=counted.requests, throttled=counted.throttled
            )
        return StoredOutcome(
            completed=sum(result.leased.task.status is TaskStatus.COMPLETED for result in kept),
            failed=sum(result.leased.task.status is TaskStatus.FAILED for result in kept),
            lost=len(results) - len(kept),
        )

    def _follow_up(self, connection: Connection, page_no: int, page: ListingPage) -> None:
        """A page shows products: remember that they were seen and plan the calls for them."""
        home = self._stored.home
        limit = self._stored.product_limit
        items = [entry.item_no for entry in page.entries]
        executions.raise_listed(connection, home.execution_id, page.count)
        versions = products.sight(connection, home.seller_id, home.execution_id, items) if items else {}
        wanted = within_limit(self._endpoints, page_no, list(dict.fromkeys(items)), limit)
        planned = plan_products(self._endpoints, {item: versions[item] for item in wanted})
        seller_id = self._stored.execution.seller_id
        tasks.add(connection, home, [*plan_pages(self._endpoints, seller_id, page.count, limit), *planned])


def _raw(result: TaskResult, body: str) -> NewRaw:
    task = result.leased.task
    return NewRaw(
        seller_id=task.seller_id.value,
        execution_id=task.execution_id.value,
        task_id=task.id.value,
        source=TaskType(task.task_type),
        item_no=None if task.item_no is None else task.item_no.value,
        page_no=result.leased.page_no,
        body=body,
    )
