"""Recovery: one pass over all work that can get stuck; workers, relays and the pool do the same for their own work."""

from collections.abc import Callable, Collection
from dataclasses import astuple, dataclass
from datetime import datetime
from uuid import UUID

import structlog

from mustit_pipeline.agents import roster
from mustit_pipeline.catalog.processing import catalog_work, process
from mustit_pipeline.catalog.publishing import belief_rules
from mustit_pipeline.catalog.reading import reading_rules
from mustit_pipeline.crawling.recovery import recover_tasks
from mustit_pipeline.crawling.steering import complete_if_done
from mustit_pipeline.domain.states import ExecutionStatus
from mustit_pipeline.domain.values import ExecutionId, SellerId
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.foundation.liveness import find_dead
from mustit_pipeline.outbox.sql import outbox
from mustit_pipeline.sellers.sql import scheduler_outbox
from mustit_pipeline.settings import Settings
from mustit_pipeline.upkeep.sql import stuck

log = structlog.get_logger(__name__)

# Between a crawl's last task and its end, a run may still be writing its change sets.
IDLE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Recovered:
    """How much was stuck, or was recovered, by kind."""

    tasks: int = 0
    executions: int = 0
    events: int = 0
    agents: int = 0
    sellers: int = 0

    @property
    def anything(self) -> bool:
        return any(astuple(self))

    def __str__(self) -> str:
        return (
            f"{self.tasks} tasks of silent workers, {self.executions} crawls that only had to be ended, "
            f"{self.events} events without a sender, {self.agents} suspended agents to recover, "
            f"{self.sellers} sellers with unprocessed fetched changes"
        )


def find_stuck(database: Database, now: datetime, *, busy: Collection[str]) -> Recovered:
    """What a pass would recover now, without sellers that a run works on."""
    with database.reading() as connection:
        found = stuck.counts(connection, now)
        ended = [one for one in stuck.unended(connection, IDLE_SECONDS) if one.seller_id not in busy]
    left = unprocessed(database, busy=busy, idle_seconds=IDLE_SECONDS)
    return Recovered(found.tasks, len(ended), found.events, found.agents, len(left))


def unprocessed(database: Database, *, busy: Collection[str] = (), idle_seconds: float) -> list[str]:
    """Sellers whose fetched changes would wait until the next crawl."""
    with database.reading() as connection:
        found = [seller for seller in stuck.unprocessed(connection, idle_seconds) if seller not in busy]
    at_work = {catalog_work(seller): seller for seller in found}
    return sorted(at_work[name] for name in find_dead(database, list(at_work)))


def recover(
    database: Database,
    settings: Settings,
    clock: Callable[[], datetime],
    *,
    busy: Collection[str],
    idle_seconds: float = IDLE_SECONDS,
) -> Recovered:
    """Recover all stuck work; returns how much it was."""
    released = recover_tasks(database, settings, clock())
    with database.transaction() as connection:
        events = outbox.release_expired(connection) + scheduler_outbox.release_expired(connection)
    with database.transaction() as connection:
        agents = roster.recover_suspended(connection, settings, clock())
    troubles: list[Exception] = []

    def absorb(seller_id: str) -> bool:
        """One seller's failure does not stop the others, and is raised at the end."""
        try:
            _process_seller(database, settings, clock, seller_id)
        except Exception as error:
            log.exception("fetched changes cannot be processed", seller_id=seller_id)
            troubles.append(error)
            return False
        return True

    with database.reading() as connection:
        left = [one for one in stuck.unended(connection, idle_seconds) if one.seller_id not in busy]
    # Steps that a crawl's last run did not reach: its change sets, then its end.
    ended = sum(absorb(one.seller_id) and _completed(database, one.execution_id, clock) for one in left)
    sellers = sum(map(absorb, unprocessed(database, busy=busy, idle_seconds=idle_seconds)))
    if troubles:
        raise troubles[0]
    return Recovered(released, ended, events, agents, sellers)


def _completed(database: Database, execution_id: UUID, clock: Callable[[], datetime]) -> bool:
    ended = complete_if_done(database, ExecutionId(execution_id), clock())
    return ended.status is ExecutionStatus.COMPLETED


def _process_seller(database: Database, settings: Settings, clock: Callable[[], datetime], seller_id: str) -> None:
    process(
        database,
        SellerId(seller_id),
        now=clock,
        raw_attempts=settings.raw_max_attempts,
        rules=belief_rules(settings),
        reading_rules=reading_rules(database, settings),
    )
