"""One pass over everything that can be left behind; workers, relays and the pool do the same for what they meet."""

from collections.abc import Callable, Collection
from dataclasses import astuple, dataclass
from datetime import datetime

from mustit_pipeline.agents import roster
from mustit_pipeline.catalog.guard import belief_rules
from mustit_pipeline.catalog.processing import catalog_work, process
from mustit_pipeline.catalog.refusals import reading_rules
from mustit_pipeline.crawling.executions import complete_if_done
from mustit_pipeline.crawling.recovery import release_expired
from mustit_pipeline.domain.states import ExecutionStatus
from mustit_pipeline.domain.values import ExecutionId, SellerId
from mustit_pipeline.settings import Settings
from mustit_pipeline.store import outbox, stuck
from mustit_pipeline.store.database import Database
from mustit_pipeline.store.presence import absent

# Between a crawl's last task and its end lie the change sets, which a run may still be writing.
IDLE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Recovered:
    """How much was stuck, or has been set free, of each kind."""

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
            f"{self.events} events without a sender, {self.agents} rested agents, "
            f"{self.sellers} sellers whose fetched changes nobody processed"
        )


def find_stuck(
    database: Database, now: datetime, *, busy: Collection[str], idle_seconds: float = IDLE_SECONDS
) -> Recovered:
    """What a pass would set free now; sellers that a run works on are that run's."""
    with database.reading() as connection:
        found = stuck.counts(connection, now)
        ended = [one for one in stuck.unended(connection, idle_seconds) if one.seller_id not in busy]
    left = unprocessed(database, busy=busy, idle_seconds=idle_seconds)
    return Recovered(found.tasks, len(ended), found.events, found.agents, len(left))


def unprocessed(database: Database, *, busy: Collection[str] = (), idle_seconds: float) -> list[str]:
    """Sellers whose fetched changes wait although nobody will come for them before the next crawl."""
    with database.reading() as connection:
        found = [seller for seller in stuck.unprocessed(connection, idle_seconds) if seller not in busy]
    at_work = {catalog_work(seller): seller for seller in found}
    return sorted(at_work[name] for name in absent(database, list(at_work)))


def recover(
    database: Database,
    settings: Settings,
    clock: Callable[[], datetime],
    *,
    busy: Collection[str],
    idle_seconds: float = IDLE_SECONDS,
) -> Recovered:
    """Set everything free that is stuck; says how much it was."""
    released = release_expired(database, settings, clock())
    with database.transaction() as connection:
        events = outbox.release_expired(connection)
    with database.transaction() as connection:
        agents = roster.recover_suspended(connection, settings, clock())
    ended = _end_crawls(database, settings, clock, busy, idle_seconds)
    return Recovered(released, ended, events, agents, _process(database, settings, clock, busy, idle_seconds))


def _end_crawls(
    database: Database, settings: Settings, clock: Callable[[], datetime], busy: Collection[str], idle_seconds: float
) -> int:
    """Do what a crawl's last run did not come to: write the change sets, then complete it."""
    with database.reading() as connection:
        left = [one for one in stuck.unended(connection, idle_seconds) if one.seller_id not in busy]
    completed = 0
    for one in left:
        _process_seller(database, settings, clock, one.seller_id)
        ended = complete_if_done(database, ExecutionId(one.execution_id), clock())
        completed += ended.execution.status is ExecutionStatus.COMPLETED
    return completed


def _process(
    database: Database, settings: Settings, clock: Callable[[], datetime], busy: Collection[str], idle_seconds: float
) -> int:
    """Process what crawls that are over, or a replay that was stopped, left behind."""
    left = unprocessed(database, busy=busy, idle_seconds=idle_seconds)
    for seller_id in left:
        _process_seller(database, settings, clock, seller_id)
    return len(left)


def _process_seller(database: Database, settings: Settings, clock: Callable[[], datetime], seller_id: str) -> None:
    process(
        database,
        SellerId(seller_id),
        now=clock,
        raw_attempts=settings.raw_max_attempts,
        rules=belief_rules(settings),
        reading_rules=reading_rules(database, settings),
    )
