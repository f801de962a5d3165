"""Queues of crawl tasks with something in them, whatever carries them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from sqlalchemy import text

from mustit_pipeline.crawling.fetching import RequestCounter
from mustit_pipeline.crawling.planning import plan_pages, plan_probes, plan_products, planned_status
from mustit_pipeline.crawling.queue import TaskQueue, execution_queue, shared_queue
from mustit_pipeline.crawling.results import ResultStore, TaskResult
from mustit_pipeline.crawling.sql import tasks
from mustit_pipeline.crawling.sql.executions import StoredExecution
from mustit_pipeline.crawling.sql.leases import LeasedTask
from mustit_pipeline.crawling.steering import open_or_join
from mustit_pipeline.domain.states import ExecutionKind, TaskType
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.marketplace.endpoints import Endpoints
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.crawling.checks import number
from mustit_pipeline_tests.integration.crawling.child import wait_until
from mustit_pipeline_tests.integration.crawls import register

# Those that serve every running crawl, and those that serve a single crawl.
SHARED = ("postgres", "sqs")
ADAPTERS = (*SHARED, "postgres of one execution", "sqs of one execution")


@dataclass(frozen=True)
class Queues:
    """One adapter of the port, on a database of its own."""

    adapter: str
    database: Database
    make_settings: MakeSettings
    # What stands in for the queues that each worker and its store of results share.
    _opened: list[TaskQueue] = field(default_factory=list[TaskQueue])

    @property
    def unclaimed(self) -> str:
        """The state of a task that a worker could claim: SQS does not have it before a worker asks."""
        return "WAITING" if self.adapter.startswith("sqs") else "PUBLISHED"

    def opened(
        self,
        seller_id: str,
        *,
        new: int = 0,
        known: int = 0,
        pages: int = 0,
        probes: Sequence[int] = (),
        kind: ExecutionKind = ExecutionKind.DUE,
    ) -> StoredExecution:
        """A running crawl with calls to make; what is least urgent was planned first."""
        register(self.database, seller_id)
        opened = open_or_join(self.database, SellerId(seller_id), triggered_by="test", now=utc_now())
        stored = replace(opened.stored, kind=kind)
        endpoints = Endpoints.from_settings(self.make_settings())
        running = text(
            "UPDATE crawling_schedule_executions SET status = 'RUNNING', kind = :kind WHERE execution_id = :id"
        )
        with self.database.transaction() as connection:
            connection.execute(running, {"id": stored.execution.id.value, "kind": kind.value})
            options = [TaskType.PRODUCT_OPTION]
            seen_before = dict.fromkeys(range(1, known + 1), 3)
            never_seen = dict.fromkeys(range(known + 1, known + new + 1), 0)
            count = pages * endpoints.page_size
            for planned in (
                plan_products(endpoints, seen_before, options),
                plan_products(endpoints, never_seen, options),
                plan_probes(endpoints, probes),
                plan_pages(endpoints, SellerId(seller_id), count, None),
            ):
                tasks.add(connection, stored.home, planned, planned_status(self.make_settings()))
        return stored

    def queue(self, stored: StoredExecution, *, lease_seconds: float = 60.0) -> TaskQueue:
        """What a worker of its own takes tasks from."""
        if self.adapter in SHARED:
            queue = shared_queue(self.database, self.make_settings(lease_seconds=lease_seconds))
        else:
            queue = self.of_crawl(stored, lease_seconds=lease_seconds)
        self._opened.append(queue)
        return queue

    def of_crawl(self, stored: StoredExecution, *, lease_seconds: float = 60.0) -> TaskQueue:
        """What a run that works on one crawl takes tasks from."""
        return execution_queue(self.database, self.make_settings(lease_seconds=lease_seconds), stored, list(TaskType))

    def store(self) -> ResultStore:
        """Where the results of all workers go."""
        settings = self.make_settings()
        return ResultStore(self.database, settings, Endpoints.from_settings(settings), settle=self._settle)

    def _settle(self, ended: Sequence[LeasedTask], handed_back: Sequence[LeasedTask]) -> None:
        # Each queue knows the messages of its own leases.
        for queue in self._opened:
            queue.settle(ended, handed_back)

    def come_back(self, stored: StoredExecution) -> list[LeasedTask]:
        """All tasks without a holder, once the first lease has ended."""
        queue = self.queue(stored)
        taken: list[LeasedTask] = []

        def some() -> bool:
            queue.rest()
            taken.extend(queue.claim(100))
            return bool(taken)

        wait_until(some)
        return taken

    def states(self) -> dict[str, int]:
        """How many tasks are in which state."""
        query = text("SELECT status, count(*) AS tasks FROM crawler_tasks GROUP BY status")
        with self.database.reading() as connection:
            return {row.status: row.tasks for row in connection.execute(query)}

    def counted(self, column: str) -> int:
        """A counter of all executions together."""
        return number(self.database, f"SELECT sum({column}) FROM crawling_schedule_executions")

    def bodies(self) -> list[str]:
        """Every body that is stored."""
        with self.database.reading() as connection:
            return list(connection.execute(text("SELECT body FROM product_raw_data ORDER BY body")).scalars())


def fetched(leased: LeasedTask, body: str = "[]", requests: int = 1, throttled: int = 0) -> TaskResult:
    """The task was fetched and brought this body."""
    leased.task.complete(utc_now())
    return TaskResult(leased, RequestCounter(requests, throttled), body=body)


def refused(leased: LeasedTask, body: str) -> TaskResult:
    """The task was fetched for the last time, and this body was refused."""
    leased.task.fail("items takes a list", utc_now(), code="EXTERNAL_MALFORMED_BODY", permanent=True)
    return TaskResult(leased, RequestCounter(1), body=body)


def ids(leases: Sequence[LeasedTask]) -> list[UUID]:
    """Whose leases they are."""
    return [lease.task.id.value for lease in leases]
