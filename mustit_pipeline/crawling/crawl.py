"""The two steps of a crawl: the sweep of a seller's listing, and the fetching of its products."""

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial

import structlog
from sqlalchemy import Connection

from mustit_pipeline.agents.pool import AgentPool
from mustit_pipeline.catalog.deletion import judge_sweep
from mustit_pipeline.catalog.processing import absorb_waiting
from mustit_pipeline.catalog.reading import reading_rules
from mustit_pipeline.catalog.sql import products
from mustit_pipeline.crawling.attempts import LONGEST_BACKOFF_SECONDS
from mustit_pipeline.crawling.fetching import Fetcher, NoAgentFree, RequestCounter
from mustit_pipeline.crawling.planning import plan_pages, plan_probes, plan_products, planned_status
from mustit_pipeline.crawling.queue import execution_queue
from mustit_pipeline.crawling.recrawl import fetches_everything, judge_pool, plan_rest
from mustit_pipeline.crawling.result_buffer import Progress, Tally, WorkReport
from mustit_pipeline.crawling.sql import executions, recrawl_terms, tasks
from mustit_pipeline.crawling.sql.executions import StoredExecution
from mustit_pipeline.crawling.steering import complete_if_done, fail_plan, find
from mustit_pipeline.crawling.worker import LONGEST_SLEEP_SECONDS, Worker
from mustit_pipeline.domain.backoff import Tries, backoff_seconds
from mustit_pipeline.domain.drift import Deviation
from mustit_pipeline.domain.states import ExecutionStatus, SweepStatus, TaskType
from mustit_pipeline.domain.values import ExecutionId
from mustit_pipeline.foundation import event_loop, logs
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database, addresses
from mustit_pipeline.foundation.failures import FetchError, SessionRefused
from mustit_pipeline.marketplace.client import MarketplaceClient
from mustit_pipeline.marketplace.endpoints import Endpoints
from mustit_pipeline.marketplace.parsing import parse_count
from mustit_pipeline.sellers.sql import sellers
from mustit_pipeline.settings import Settings
from mustit_pipeline.tallies.sql import tallies
from mustit_pipeline.tallies.sql.tallies import Subject

# Results per pass of absorbing beside the fetching: a smaller seller is processed as fast after all fetches.
ABSORBED_AT_ONCE = 1000

log = structlog.get_logger(__name__)


class Absorption:
    """Absorbs bodies while others are being fetched, one pass at a time; the rest are processed afterwards."""

    def __init__(self, absorb: Callable[[], object], progress: Progress | None) -> None:
        self._absorb = absorb
        self._progress = progress
        self._pass: asyncio.Task[object] | None = None
        self._stored = 0
        self._failed = False

    def follow(self, report: WorkReport) -> None:
        """Start a pass when enough results are stored, and hand the report on."""
        under_way = self._pass is not None and not self._pass.done()
        if not (self._failed or under_way) and report.completed - self._stored >= ABSORBED_AT_ONCE:
            self._stored = report.completed
            self._pass = asyncio.create_task(asyncio.to_thread(self._absorb))
            self._pass.add_done_callback(self._ended)
        if self._progress is not None:
            self._progress(report)

    async def end(self) -> None:
        """Wait for the running pass."""
        if self._pass is not None:
            await asyncio.wait([self._pass])

    def _ended(self, ended: asyncio.Task[object]) -> None:
        error = None if ended.cancelled() else ended.exception()
        if error is not None:
            # If the fault persists, processing meets and reports it; the fetching continues.
            self._failed = True
            log.warning("bodies are absorbed after the fetching", error=type(error).__name__)


@dataclass(frozen=True, slots=True)
class Crawl:
    """One seller's open execution, and the work on it."""

    database: Database
    settings: Settings
    stored: StoredExecution

    def sweep(self, seconds: float, progress: Progress | None = None) -> WorkReport:
        """Count the products, fetch the listing pages, and judge the products that were not seen."""
        if not fetches_everything(self.settings, self.stored):
            judge_pool(self.database, self.settings, utc_now())
        with self._named_in_logs():
            report = event_loop.run(self._work([TaskType.MINISHOP], seconds, progress))
            self._close_sweep()
        return report

    def fetch_products(self, types: Sequence[TaskType], seconds: float, progress: Progress | None = None) -> WorkReport:
        """Fetch details and options, product by product."""
        with self._named_in_logs():
            return event_loop.run(self._work(types, seconds, progress))

    def plan_known_products(self, types: Sequence[TaskType]) -> int:
        """Plan a refetch of known products without a sweep; an execution that has a plan keeps it."""
        endpoints = Endpoints.from_settings(self.settings)
        with self.database.transaction() as connection:
            stored = executions.get(connection, self.stored.id, lock=True)
            if stored.is_planned or not stored.is_open:
                return 0
            added = 0
            # In one transaction, but chunk by chunk: memory does not grow with the seller.
            for items in products.known_items(connection, stored.home.seller_id, limit=stored.product_limit):
                planned = plan_products(endpoints, dict.fromkeys(items, 1), types)
                added += tasks.add(connection, stored.home, planned, planned_status(self.settings))
            if stored.status is ExecutionStatus.PENDING:
                stored.execution.start(added, utc_now())
                executions.save(connection, stored.execution)
            executions.set_sweep(connection, stored.id.value, SweepStatus.INCOMPLETE)
        return added

    def remaining(self, types: Sequence[TaskType]) -> int:
        """How many tasks of these types have not ended."""
        with self.database.reading() as connection:
            return tasks.open_work(connection, self.stored.home, types).open

    def end(self) -> StoredExecution:
        """Complete the execution where all of it has ended."""
        return complete_if_done(self.database, self.stored.id, utc_now())

    def reload(self) -> StoredExecution:
        """The execution as it is now."""
        return find(self.database, self.stored.id)

    def _named_in_logs(self) -> AbstractContextManager[None]:
        return logs.about(execution_id=self.stored.id, seller_id=self.stored.seller_id)

    async def _work(self, types: Sequence[TaskType], seconds: float, progress: Progress | None) -> WorkReport:
        """Fetch what is planned of these types; listing pages are planned first, where they are not yet."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        async with MarketplaceClient(self.settings) as client, self._pool(client) as pool:
            if TaskType.MINISHOP not in types or self.reload().is_planned:
                return await self._fetch(client, pool, types, seconds, progress)
            # The count call is not a task, but counts as a request of the sweep.
            counting, report = RequestCounter(), WorkReport(remaining=1)
            with suppress(NoAgentFree):
                await self._plan(client, pool, deadline, counting)
            if self.reload().is_planned:
                report = await self._fetch(client, pool, types, max(0.0, deadline - loop.time()), progress)
        report.count(TaskType.MINISHOP, Tally(requests=counting.requests, throttled=counting.throttled))
        return report

    async def _wait(self, deadline: float, seconds: float) -> None:
        """Wait for an agent, until the slice's time is over or the crawl is paused or ended."""
        left = deadline - asyncio.get_running_loop().time()
        execution = (await asyncio.to_thread(self.reload)).execution
        if left <= 0 or not execution.is_open or execution.status is ExecutionStatus.PAUSED:
            raise NoAgentFree
        await asyncio.sleep(min(seconds, left, LONGEST_SLEEP_SECONDS))

    async def _plan(self, client: MarketplaceClient, pool: AgentPool, deadline: float, calls: RequestCounter) -> None:
        """Ask how many products there are and plan the pages; without an answer, or another's plan, it fails."""
        seller_id = self.stored.seller_id
        fetcher = Fetcher(
            self.settings,
            client,
            pool,
            deadline=math.inf,
            wait=partial(self._wait, deadline),
            token_patience=self.settings.session_patience_seconds,
        )
        drift: list[Deviation] = []
        try:
            count = await self._count(client.endpoints.count(seller_id).value, fetcher, calls, drift)
        except BaseException as error:
            with self.database.transaction() as connection:
                _count_calls(connection, self.stored.id, calls)
            # Where another run has planned it meanwhile, it goes on.
            if isinstance(error, FetchError) and not fail_plan(
                self.database,
                self.stored.id,
                error,
                utc_now(),
                base=self.settings.plan_backoff_seconds,
                longest=self.settings.plan_longest_backoff_seconds,
                seen=drift,
            ):
                return
            raise
        pages = plan_pages(client.endpoints, seller_id, count, self.stored.product_limit)
        await asyncio.to_thread(self._start, calls, count, pages)

    async def _count(self, url: str, fetcher: Fetcher, calls: RequestCounter, drift: list[Deviation]) -> int:
        """The count call is not a task, but gets as many attempts."""
        tries = Tries(1 + self.settings.task_max_retries)
        read = partial(parse_count, drift=drift, most=self.settings.seller_most_products)
        while True:
            try:
                return (await fetcher.fetch(url, read, calls)).value
            except FetchError as error:
                tries.failed()
                hopeless = not error.transient or isinstance(error, SessionRefused)
                if hopeless or not tries.can_retry():
                    raise
            base = self.settings.retry_base_seconds
            await asyncio.sleep(backoff_seconds(tries.failures, base, LONGEST_BACKOFF_SECONDS, random.random()))

    def _start(self, calls: RequestCounter, count: int, pages: list[tasks.PlannedTask]) -> None:
        now = utc_now()
        with self.database.transaction() as connection:
            seller, schedule = sellers.get(connection, self.stored.seller_id, lock=True)
            stored = executions.get(connection, self.stored.id, lock=True)
            _count_calls(connection, stored.id, calls)
            if stored.is_planned or not stored.is_open:
                return
            added = tasks.add(connection, stored.home, pages, planned_status(self.settings))
            if stored.status is ExecutionStatus.PENDING:
                stored.execution.start(added, now)
                executions.save(connection, stored.execution)
            executions.raise_listed(connection, stored.id.value, count)
            seller.count_products(count, now)
            schedule.plan_settled()
            sellers.save(connection, seller, schedule)

    async def _fetch(
        self,
        client: MarketplaceClient,
        pool: AgentPool,
        types: Sequence[TaskType],
        seconds: float,
        progress: Progress | None,
    ) -> WorkReport:
        queue = execution_queue(self.database, self.settings, self.stored, types)
        rules = reading_rules(self.database, self.settings)
        seller_id = self.stored.seller_id
        absorption = Absorption(lambda: absorb_waiting(self.database, seller_id, reading_rules=rules), progress)
        worker = Worker(
            self.settings,
            self.database,
            client,
            pool,
            queue,
            reading_rules=rules,
            seconds=seconds,
            progress=absorption.follow,
        )
        try:
            report = await worker.run()
        finally:
            await absorption.end()
        report.remaining = self.remaining(types)
        return report

    def _pool(self, client: MarketplaceClient) -> AgentPool:
        return AgentPool(self.settings, self.database, client, redis_url=addresses(self.settings).redis_url)

    def _close_sweep(self) -> None:
        """Once every page has ended, record whether the whole listing was seen, and judge the absences."""
        with self.database.transaction() as connection:
            stored = executions.get(connection, self.stored.id, lock=True)
            if stored.is_swept or stored.status is not ExecutionStatus.RUNNING:
                return
            if stored.listed_count is None:
                # An execution that failed without a plan and was resumed: it has fetched no page yet.
                return
            pages = tasks.page_outcomes(connection, stored.home)
            if pages.open:
                return
            seen = products.count_seen(connection, stored.home.seller_id, stored.home.execution_id)
            missed = pages.failed or stored.skipped_items
            whole = stored.product_limit is None and not missed and seen >= stored.listed_count
            status = SweepStatus.COMPLETE if whole else SweepStatus.INCOMPLETE
            executions.set_sweep(connection, stored.home.execution_id, status, seen)
            if whole:
                self._judge(connection, stored)
            self._plan_rest(connection, stored)
            if not whole:
                log.warning(
                    "listing seen in part: absent products are not judged",
                    seller_id=stored.home.seller_id,
                    execution_id=str(stored.id),
                    seen=seen,
                    listed=stored.listed_count,
                    failed_pages=pages.failed,
                    skipped_items=stored.skipped_items,
                )

    def _plan_rest(self, connection: Connection, stored: StoredExecution) -> None:
        """Plan by the recrawl policy what the pages have not planned, and record the look at the seller."""
        if stored.product_limit is not None:
            return
        now, planned = utc_now(), stored.planned_tasks
        if not fetches_everything(self.settings, stored):
            planned = plan_rest(connection, self.settings, stored, now)
        recrawl_terms.swept(connection, stored.home.seller_id, now)
        recrawl_terms.count_planned(connection, planned)

    def _judge(self, connection: Connection, stored: StoredExecution) -> None:
        """Judge the absences, and plan the calls that confirm them."""
        judgement = judge_sweep(
            connection,
            stored.execution,
            listed=stored.listed_count or 0,
            hold_share=self.settings.deletion_hold_share,
            sweeps=self.settings.deletion_sweeps,
        )
        probes = plan_probes(Endpoints.from_settings(self.settings), judgement.candidates)
        tasks.add(connection, stored.home, probes, planned_status(self.settings))


def _count_calls(connection: Connection, execution_id: ExecutionId, calls: RequestCounter) -> None:
    executions.count_requests(connection, execution_id.value, requests=calls.requests, throttled=calls.throttled)
    tallies.add(connection, Subject.FETCH, calls.durations)
