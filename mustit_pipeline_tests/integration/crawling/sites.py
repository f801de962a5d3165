"""A seller whose products are left to fetch, and a worker of the test's own that fetches them."""

import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from mustit_pipeline.agents.pool import AgentPool
from mustit_pipeline.catalog.reading import ReadingRules
from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.planning import PRODUCT_TYPES
from mustit_pipeline.crawling.queue import ExecutionQueue
from mustit_pipeline.crawling.worker import Worker
from mustit_pipeline.domain.states import ExecutionStatus
from mustit_pipeline.foundation import event_loop
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.marketplace.client import MarketplaceClient
from mustit_pipeline.settings import Settings
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline_tests.integration.crawling.checks import check_outcomes
from mustit_pipeline_tests.integration.crawls import crawl

HELD = "SELECT count(*) FROM crawler_tasks WHERE lease_owner IS NOT NULL"
HURT = "SELECT count(*) FROM crawler_tasks WHERE retry_count + release_count > 0"


@dataclass(frozen=True)
class Site:
    """A seller whose listing has been swept: its products are left to fetch."""

    database: Database
    market: MarketplaceControl
    work: Crawl

    def settings(self, **changed: Any) -> Settings:
        return self.work.settings.model_copy(update=changed)

    def run(
        self,
        scenario: Callable[[Worker], Coroutine[Any, Any, None]],
        *,
        redis_url: str | None = None,
        **changed: Any,
    ) -> None:
        """Let a worker of its own do something."""
        settings = self.settings(**changed)

        async def go() -> None:
            async with (
                MarketplaceClient(settings) as client,
                AgentPool(settings, self.database, client, redis_url=redis_url) as pool,
            ):
                queue = ExecutionQueue(self.database, settings, self.work.stored, PRODUCT_TYPES)
                await scenario(
                    Worker(settings, self.database, client, pool, queue, reading_rules=ReadingRules(), seconds=math.inf)
                )

        event_loop.run(go())

    def asked(self) -> int:
        return sum(times for url, times in self.market.requested_urls().items() if "/item/" in url or "options" in url)

    def called(self) -> int:
        """Every call but those for sessions: a control after a 429 asks for a listing."""
        return sum(times for url, times in self.market.requested_urls().items() if "mustit-api" in url)

    def finish(self) -> None:
        """The next crawl ends what this one left, and everything adds up."""
        done = crawl(self.database, self.work.settings, "s").stored.execution
        assert (done.id, done.status) == (self.work.stored.execution.id, ExecutionStatus.COMPLETED)
        rows = check_outcomes(self.database, done.id)
        assert {row.status for row in rows.values()} == {"COMPLETED"}
