"""Tasks through an SQS FIFO queue: sent as workers ask for them, leased in PostgreSQL, deleted once they are stored.

The rows in PostgreSQL stay the truth. A message only brings a task to a worker: whatever happens to messages, a task
is worked on under its lease alone.
"""

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

import structlog
from sqlalchemy import Connection

from mustit_pipeline.aws.clients import AwsRefused, AwsUnreachable
from mustit_pipeline.aws.fifo_queue import BATCH, FifoQueue, Message
from mustit_pipeline.crawling import recovery
from mustit_pipeline.crawling.queue import LOOK_SECONDS, gives_way, rest_of, worker_name
from mustit_pipeline.crawling.recovery import visibility_seconds
from mustit_pipeline.crawling.sql import leases, messages
from mustit_pipeline.crawling.sql.executions import StoredExecution
from mustit_pipeline.crawling.sql.leases import LeasedTask
from mustit_pipeline.crawling.sql.messages import TaskState, WaitingTask
from mustit_pipeline.crawling.task_messages import (
    GROUPS,
    TaskMessage,
    dead_letter_of,
    group_of,
    message_of,
    read_message,
)
from mustit_pipeline.domain.backoff import backoff_seconds
from mustit_pipeline.domain.states import TaskType
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.settings import Settings

# Unread messages of one execution: what its groups can give to workers in one call each.
MOST_UNREAD = GROUPS * BATCH
LONGEST_PAUSE_SECONDS = 30.0
# Of the time for which a message is ours, this part may go by before it is leased.
CLAIMING_SHARE = 4
T = TypeVar("T")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Failed:
    """A message whose task has no attempt left, and why the last one failed."""

    message: Message
    code: str | None
    reason: str | None


class SqsQueue:
    """The tasks of every running execution. A worker sends what it wants to receive, so that the queue stays short."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._owner = worker_name()
        self._queue = FifoQueue(settings, settings.task_queue_name)
        self._dead = FifoQueue(settings, settings.task_dlq_name)
        self._visibility = visibility_seconds(settings)
        # The messages of the tasks that we hold, by task and lease.
        self._messages: dict[tuple[UUID, int], Message] = {}
        self._failures = 0
        self._quiet_until = 0.0

    def claim(self, limit: int, *, pages: int | None = None) -> list[LeasedTask]:
        most_pages = limit if pages is None else pages
        with self._database.reading() as connection:
            # Before the first message: while PostgreSQL does not answer, messages are left alone.
            if self._gives_way(connection):
                return []
            waiting = self._waiting(connection, limit, most_pages)
        # Where SQS is slow, fewer: the first of many would be visible again before all have come and are leased.
        until = time.monotonic() + self._visibility / CLAIMING_SHARE
        received = self._receive(limit, until)
        accepted = self._send(waiting[: limit - len(received)], until)
        if accepted:
            received += self._receive(limit - len(received), until)
        if not received and not accepted:
            return []
        if any(message.receives > 1 for message in received):
            # Their last workers may have died: what they left must be free before it can be leased.
            recovery.release_expired(self._database, self._settings, utc_now())
        return self._lease(accepted, received, most_pages)

    def renew(self, held: Sequence[LeasedTask]) -> None:
        with self._database.transaction() as connection:
            leases.heartbeat(connection, held, self._settings.lease_seconds)
        receipts = [message.receipt for lease in held if (message := self._messages.get(_key(lease))) is not None]
        self._call(lambda: self._queue.extend(receipts, self._visibility))

    def settle(self, ended: Sequence[LeasedTask], handed_back: Sequence[LeasedTask]) -> None:
        if handed_back:
            # They get new messages: in the old ones, having been received would count as a lost worker.
            with self._database.transaction() as connection:
                messages.withdraw(connection, [_key(lease) for lease in handed_back])
        useless: list[str] = []
        failed: list[_Failed] = []
        for lease in (*ended, *handed_back):
            message = self._messages.pop(_key(lease), None)
            if message is None:
                continue
            if lease.is_exhausted:
                failed.append(_Failed(message, lease.error_code, lease.error_text))
            else:
                useless.append(message.receipt)
        self._delete([*useless, *self._park(failed)])

    def rest(self) -> float | None:
        recovery.recover_tasks(self._database, self._settings, utc_now())
        return LOOK_SECONDS

    def _gives_way(self, connection: Connection) -> bool:
        """Whether others come first; of the light crawls among all, `waiting` leaves the tasks where they are."""
        return False

    def _waiting(self, connection: Connection, limit: int, pages: int) -> list[WaitingTask]:
        """What may be sent."""
        return messages.waiting(connection, limit=limit, pages=pages, most=MOST_UNREAD)

    def _receive(self, limit: int, until: float) -> list[Message]:
        received: list[Message] = []
        while len(received) < limit:
            wanted = limit - len(received)
            some = self._call(lambda wanted=wanted: self._queue.receive(wanted, self._visibility))
            received += some or []
            if not some or time.monotonic() >= until:
                break
        return received

    def _send(self, tasks: Sequence[WaitingTask], until: float) -> list[WaitingTask]:
        """Send tasks, as many as there is time for; returns those that SQS has accepted. The others stay WAITING."""
        accepted: list[WaitingTask] = []
        # Group by group: a call gives several messages of one group, but none while others of it are in use.
        in_groups = sorted(tasks, key=group_of)
        for start in range(0, len(in_groups), BATCH):
            if time.monotonic() >= until:
                break
            batch = in_groups[start : start + BATCH]
            taken = self._call(lambda batch=batch: self._queue.send([message_of(task) for task in batch]))
            if taken is None:
                break
            accepted += [task for task, ours in zip(batch, taken, strict=True) if ours]
            if not all(taken):
                log.warning("SQS has refused messages of tasks; they are sent again", count=taken.count(False))
        return accepted

    def _lease(self, accepted: Sequence[WaitingTask], received: Sequence[Message], pages: int) -> list[LeasedTask]:
        """Store what SQS has accepted, and lease what it has given, in one transaction; tidy up the rest after it."""
        # A message that cannot be read is left to SQS, which parks it.
        read = [(message, body) for message in received if (body := read_message(message.body)) is not None]
        wanted, spare = _split(read, pages)
        with self._database.transaction() as connection:
            messages.publish(connection, accepted, [*wanted, *spare])
            leased = leases.claim_these(
                connection,
                list(wanted),
                owner=self._owner,
                lease_seconds=self._settings.lease_seconds,
                max_retries=self._settings.task_max_retries,
                max_releases=self._settings.task_max_releases,
            )
            ours = {lease.task_id for lease in leased}
            others = [task_id for task_id in (*wanted, *spare) if task_id not in ours]
            left = messages.states(connection, others, max_retries=self._settings.task_max_retries)
            halted = [one for one in left.values() if one.task_id in spare or not one.is_wanted]
            withdrawn = messages.withdraw(connection, [(one.task_id, one.lease_no) for one in halted])
        for lease in leased:
            self._messages[_key(lease)] = wanted[lease.task_id][0]
        self._tidy(read, ours, left, withdrawn)
        return leased

    def _tidy(
        self,
        read: Sequence[tuple[Message, TaskMessage]],
        ours: set[UUID],
        left: dict[UUID, TaskState],
        withdrawn: set[UUID],
    ) -> None:
        """Delete messages that are of no more use, and put off those whose task is in another worker's hands."""
        useless: list[str] = []
        failed: list[_Failed] = []
        first = {body.task_id: message.receipt for message, body in reversed(read)}
        for message, body in read:
            state = left.get(body.task_id)
            if body.task_id in ours:
                # A second message of a task that we hold by its first one.
                if first[body.task_id] != message.receipt:
                    useless.append(message.receipt)
            elif state is None:
                log.warning("a message names a task that does not exist; SQS parks it", task_id=str(body.task_id))
            elif state.is_exhausted:
                # Its worker was stopped before it could park the message, or has failed with the task.
                failed.append(_Failed(message, state.error_code, state.error_text))
            elif body.task_id in withdrawn or not state.is_open or not state.is_due:
                useless.append(message.receipt)
            elif state.is_leased and message.receives > self._settings.task_max_retries:
                # SQS would park it next. If the worker that has the task dies, recovery has it sent again.
                useless.append(message.receipt)
            elif state.is_leased:
                seconds = max(1, math.ceil(state.lease_left))
                self._call(lambda receipt=message.receipt, seconds=seconds: self._queue.extend([receipt], seconds))
        self._delete([*useless, *self._park(failed)])

    def _park(self, failed: Sequence[_Failed]) -> list[str]:
        """Send messages of tasks without an attempt left to the dead-letter queue; returns the receipts of those.

        The others stay in the task queue until they come again: a message is deleted only after it is parked.
        """
        parked: list[str] = []
        for start in range(0, len(failed), BATCH):
            batch = failed[start : start + BATCH]
            letters = [dead_letter_of(one.message, one.code, one.reason) for one in batch]
            try:
                taken = self._call(lambda letters=letters: self._dead.send(letters))
            except AwsRefused as error:
                # The redrive policy of the task queue parks them, without a reason.
                log.warning("SQS takes no dead letters", error=error.english, count=len(failed))
                break
            if taken is None:
                break
            parked += [one.message.receipt for one, ours in zip(batch, taken, strict=True) if ours]
        return parked

    def _delete(self, receipts: Sequence[str]) -> None:
        """What is not deleted comes again, and is found to be of no use then."""
        if receipts and (refused := self._call(lambda: self._queue.delete(receipts))):
            log.info("messages of tasks are not deleted and come again", count=len(refused))

    def _call(self, call: Callable[[], T]) -> T | None:
        """Call SQS unless it has just failed; None if it cannot be reached. Tasks wait meanwhile, and lose nothing."""
        if time.monotonic() < self._quiet_until:
            return None
        try:
            answer = call()
        except AwsUnreachable as error:
            self._failures += 1
            base = self._settings.retry_base_seconds
            pause = backoff_seconds(self._failures, base, LONGEST_PAUSE_SECONDS, random.random())
            self._quiet_until = time.monotonic() + pause
            log.warning("SQS does not answer", error=error.english, again_in=round(pause, 1))
            return None
        self._failures = 0
        return answer


class SqsExecutionQueue(SqsQueue):
    """The tasks of one execution and of some types, until all of them have ended or a light crawl gives way.

    It sends no others. But SQS does not give the messages of one execution alone: those of others, which other workers
    have sent, are worked on too.
    """

    def __init__(
        self, database: Database, settings: Settings, stored: StoredExecution, types: Sequence[TaskType]
    ) -> None:
        super().__init__(database, settings)
        self._stored = stored
        self._types = types

    def rest(self) -> float | None:
        recovery.recover_tasks(self._database, self._settings, utc_now(), execution_id=self._stored.id.value)
        left = rest_of(self._database, self._stored, self._types)
        return None if left is None else max(left, LOOK_SECONDS / 4)

    def _gives_way(self, connection: Connection) -> bool:
        return gives_way(connection, self._stored)

    def _waiting(self, connection: Connection, limit: int, pages: int) -> list[WaitingTask]:
        execution_id = self._stored.id.value
        return messages.waiting(
            connection, limit=limit, pages=pages, most=MOST_UNREAD, execution_id=execution_id, types=self._types
        )


def _split(
    read: Sequence[tuple[Message, TaskMessage]], pages: int
) -> tuple[dict[UUID, tuple[Message, TaskMessage]], set[UUID]]:
    """Messages by task, and tasks that are one listing page too many."""
    wanted: dict[UUID, tuple[Message, TaskMessage]] = {}
    spare: set[UUID] = set()
    room = pages
    for message, body in read:
        if body.task_id in wanted:
            continue
        if body.task_type is TaskType.MINISHOP:
            if room <= 0:
                spare.add(body.task_id)
                continue
            room -= 1
        wanted[body.task_id] = message, body
    return wanted, spare


def _key(lease: LeasedTask) -> tuple[UUID, int]:
    return lease.task_id, lease.lease_no
