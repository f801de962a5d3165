"""Where a worker's tasks come from: one execution's own, or whatever any running execution has to do.

The settings say which transport carries them: the task rows themselves, or messages of SQS (`sqs_queue`).
"""

import os
import socket
from collections.abc import Sequence
from typing import Protocol
from uuid import uuid4

from sqlalchemy import Connection

from mustit_pipeline.crawling import recovery
from mustit_pipeline.crawling.sql import executions, leases, tasks
from mustit_pipeline.crawling.sql.executions import StoredExecution
from mustit_pipeline.crawling.sql.leases import LeasedTask
from mustit_pipeline.domain.states import ExecutionStatus, TaskType
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.settings import Settings

# How often a worker without work looks for some; it gets no signal.
LOOK_SECONDS = 1.0
SOONEST_SECONDS = 0.05


class TaskQueue(Protocol):
    """Leases tasks to one worker; whatever is leased and neither stored nor renewed goes back by itself."""

    def claim(self, limit: int, *, pages: int | None = None) -> list[LeasedTask]:
        """The next tasks, most urgent first; where it is said how many, no more listing pages than that."""
        ...

    def renew(self, held: Sequence[LeasedTask]) -> None:
        """Keep leases alive."""
        ...

    def settle(self, ended: Sequence[LeasedTask], handed_back: Sequence[LeasedTask]) -> None:
        """The results of these leases are stored; a task that was handed back is to be claimed again."""
        ...

    def rest(self) -> float | None:
        """Nothing was there to claim: how long until there may be; None where there is nothing left to do."""
        ...


class _PostgresQueue:
    """The task rows themselves are the queue: planned and published by the transaction that stores them."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._owner = worker_name()

    def renew(self, held: Sequence[LeasedTask]) -> None:
        with self._database.transaction() as connection:
            leases.heartbeat(connection, held, self._settings.lease_seconds)

    def settle(self, ended: Sequence[LeasedTask], handed_back: Sequence[LeasedTask]) -> None:
        """Their rows say all there is to say."""


class ExecutionQueue(_PostgresQueue):
    """The tasks of one execution and of some types, until all of them have ended.

    A light crawl's queue also ends once a crawl that is due is open: the rest is left for a later slice.
    """

    def __init__(
        self, database: Database, settings: Settings, stored: StoredExecution, types: Sequence[TaskType]
    ) -> None:
        super().__init__(database, settings)
        self._stored = stored
        self._types = types

    def claim(self, limit: int, *, pages: int | None = None) -> list[LeasedTask]:
        types = self._types
        if pages is not None and TaskType.MINISHOP in types:
            # Pages come first: whatever is claimed may be one.
            limit = min(limit, pages or limit)
            types = types if pages else [kind for kind in types if kind is not TaskType.MINISHOP]
        if not types:
            return []
        with self._database.transaction() as connection:
            if gives_way(connection, self._stored):
                return []
            return leases.claim(
                connection,
                self._stored.home,
                types,
                owner=self._owner,
                limit=limit,
                lease_seconds=self._settings.lease_seconds,
                max_retries=self._settings.task_max_retries,
                max_releases=self._settings.task_max_releases,
            )

    def rest(self) -> float | None:
        recovery.recover_tasks(self._database, self._settings, utc_now(), execution_id=self._stored.id.value)
        left = rest_of(self._database, self._stored, self._types)
        return None if left is None else max(left, SOONEST_SECONDS)


class SharedQueue(_PostgresQueue):
    """The tasks of every running execution, one of each seller after the other; there is always a next one."""

    def claim(self, limit: int, *, pages: int | None = None) -> list[LeasedTask]:
        with self._database.transaction() as connection:
            return leases.claim_any(
                connection,
                owner=self._owner,
                limit=limit,
                pages=pages,
                lease_seconds=self._settings.lease_seconds,
                max_retries=self._settings.task_max_retries,
                max_releases=self._settings.task_max_releases,
            )

    def rest(self) -> float:
        recovery.recover_tasks(self._database, self._settings, utc_now())
        return LOOK_SECONDS


def shared_queue(database: Database, settings: Settings) -> TaskQueue:
    """The tasks of every running execution."""
    if settings.task_transport == "sqs":
        from mustit_pipeline.crawling.sqs_queue import SqsQueue

        return SqsQueue(database, settings)
    return SharedQueue(database, settings)


def execution_queue(
    database: Database, settings: Settings, stored: StoredExecution, types: Sequence[TaskType]
) -> TaskQueue:
    """The tasks of one execution, until those of these types have ended."""
    if settings.task_transport == "sqs":
        from mustit_pipeline.crawling.sqs_queue import SqsExecutionQueue

        return SqsExecutionQueue(database, settings, stored, types)
    return ExecutionQueue(database, settings, stored, types)


def worker_name() -> str:
    """The owner of a worker's leases."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"


def gives_way(connection: Connection, stored: StoredExecution) -> bool:
    """Whether it is a light crawl while one that is due is open: the rest of it is left for a later slice."""
    return stored.is_light and executions.is_due_open(connection)


def rest_of(database: Database, stored: StoredExecution, types: Sequence[TaskType]) -> float | None:
    """Seconds until a task of the execution can be claimed or its lease expires; None if it has nothing left to do.

    A light crawl has nothing to do while one that is due is open.
    """
    with database.reading() as connection:
        current = executions.get(connection, stored.id)
        if current.status is not ExecutionStatus.RUNNING or gives_way(connection, current):
            return None
        work = tasks.open_work(connection, stored.home, types)
    return work.next_in if work.open else None
