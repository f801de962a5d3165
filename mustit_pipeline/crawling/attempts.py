"""One attempt at a leased task: fetch, read, and move the task on."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import structlog

from mustit_pipeline.agents.pool import Booking
from mustit_pipeline.catalog import canonical
from mustit_pipeline.catalog.reading import ReadingRules
from mustit_pipeline.crawling.fault_attribution import Subject
from mustit_pipeline.crawling.fetching import Fetcher, NoAgentFree, RequestCounter
from mustit_pipeline.crawling.results import TaskResult
from mustit_pipeline.crawling.sql.leases import LeasedTask
from mustit_pipeline.domain.backoff import backoff_seconds
from mustit_pipeline.domain.drift import Deviation
from mustit_pipeline.domain.states import TaskType
from mustit_pipeline.domain.task import CrawlerTask
from mustit_pipeline.foundation import logs
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.failures import BLOCKED_DRIFT, FetchError, MalformedBody, NotFoundAnswer
from mustit_pipeline.marketplace.endpoints import Endpoints
from mustit_pipeline.marketplace.parsing import Parser, parse_detail, parse_listing, parse_options, text_of
from mustit_pipeline.settings import Settings

log = structlog.get_logger(__name__)

# The longest pause before a task is tried again.
LONGEST_BACKOFF_SECONDS = 60.0
_PARSERS: dict[TaskType, Parser[Any]] = {
    TaskType.MINISHOP: parse_listing,
    TaskType.PRODUCT_DETAIL: parse_detail,
    TaskType.PRODUCT_OPTION: parse_options,
}


class Attempts:
    """Makes attempts for one worker; never raises for what the marketplace does."""

    def __init__(self, settings: Settings, fetcher: Fetcher, endpoints: Endpoints, rules: ReadingRules) -> None:
        self._fetcher = fetcher
        self._endpoints = endpoints
        self._retry_base = settings.retry_base_seconds
        self._rules = rules

    async def make(self, leased: LeasedTask, booking: Booking, calls: RequestCounter) -> TaskResult:
        """Fetch one task's body and move the task to where that leaves it; `calls` counts what that took."""
        task, home = leased.task, leased.home
        drift: list[Deviation] = []
        ended = partial(TaskResult, leased, calls, drift=drift)
        checks = {"most": self._rules.most_products} if leased.item_no is None else {"item_no": leased.item_no}
        with logs.about(task_id=leased.task_id, execution_id=home.execution_id, seller_id=home.seller_id):
            try:
                fetched = await self._fetcher.fetch(
                    self._endpoints.present(task.request_url),
                    partial(_PARSERS[task.task_type], drift=drift, **checks),
                    calls,
                    booking,
                    control=lambda: self._endpoints.count(task.seller_id).value,
                    subject=Subject(task.seller_id, task.task_type),
                )
            except NoAgentFree:
                return ended(handed_back=True)
            except FetchError as error:
                if leased.probe and isinstance(error, NotFoundAnswer):
                    task.complete(utc_now())
                    return ended(gone=True)
                refused = error.document if isinstance(error, MalformedBody) else None
                return self._failed(
                    task, ended, error.code, error.english, permanent=not error.transient, refused=refused
                )
            blocked = self._rules.blocking(drift)
            if blocked is not None:
                # The agent did well, and asking again would bring the same.
                return self._failed(task, ended, BLOCKED_DRIFT, blocked, permanent=True, refused=fetched.body)
        value: Any = fetched.value
        task.complete(utc_now())
        if task.task_type is TaskType.PRODUCT_DETAIL and not value.is_of(home.seller_id):
            # An answer like any other, and nothing of this seller's.
            return ended(gone=True) if leased.probe else ended(foreign=True)
        body = text_of(fetched.body)
        if task.task_type is TaskType.MINISHOP:
            return ended(body=body, page=value)
        return ended(body=body, content=canonical.content_of(value, leased.known_hash))

    def _failed(
        self,
        task: CrawlerTask,
        ended: Callable[..., TaskResult],
        code: str,
        reason: str,
        *,
        permanent: bool,
        refused: bytes | None,
    ) -> TaskResult:
        task.fail(reason[:1000], utc_now(), code=code, permanent=permanent)
        log.info("attempt failed", code=code, reason=reason[:200])
        if not task.can_retry():
            # JSON, so it is text that PostgreSQL can hold.
            return ended(body=None if refused is None else text_of(refused))
        task.retry()
        delay = backoff_seconds(task.retry_count, self._retry_base, LONGEST_BACKOFF_SECONDS, random.random())
        return ended(delay=delay)
