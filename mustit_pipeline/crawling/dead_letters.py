"""Dead letters: messages of tasks that have no attempt left, or with which no worker ever came to an end."""

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import Connection

from mustit_pipeline.aws.fifo_queue import FifoQueue, Message
from mustit_pipeline.crawling import recovery
from mustit_pipeline.crawling.planning import plan_products, planned_status
from mustit_pipeline.crawling.sql import executions, messages, tasks
from mustit_pipeline.crawling.sql.messages import TaskState
from mustit_pipeline.crawling.steering import open_or_join_within
from mustit_pipeline.crawling.task_messages import REASON, TaskMessage, read_message
from mustit_pipeline.domain.errors import Conflict, NotFound
from mustit_pipeline.domain.states import SweepStatus, TaskStatus
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.marketplace.endpoints import Endpoints
from mustit_pipeline.settings import Settings

# How long others do not see what is being looked at; it is given back earlier.
LOOK_SECONDS = 60
LOOKED_AT = 1000
TRIGGERED_BY = "dead letters"
NEVER_DELETED = "workers have received it, and none has ended it"
UNREADABLE = "it is no message of a task"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A parked message and its task as it is now; either may be unknown."""

    message: Message
    says: TaskMessage | None
    task: TaskState | None

    @property
    def id(self) -> str:
        return self.message.message_id

    @property
    def status(self) -> TaskStatus | None:
        return None if self.task is None else self.task.status

    @property
    def reason(self) -> str:
        """Why it lies here."""
        if said := self.message.attributes.get(REASON):
            return said
        if self.task is not None and self.task.error_text is not None:
            return self.task.error_text
        return UNREADABLE if self.says is None else NEVER_DELETED


@dataclass(frozen=True, slots=True)
class QueueDepths:
    """About how many messages lie in the task queue, are in workers' hands, and are parked."""

    visible: int
    in_flight: int
    dead: int


class Redriven(StrEnum):
    """What became of a dead letter that was to be sent again."""

    SENT_AGAIN = "its task is sent to workers again"
    PLANNED_ANEW = "its task has failed for good; its call is planned anew in another crawl of the seller"
    ON_ITS_WAY = "its call is on its way already"
    LATER = "its task has failed for good in a crawl that is still open; it can be redriven after that"
    INACTIVE = "its seller is INACTIVE"
    ENDED = "its task has succeeded or was cancelled"
    UNKNOWN = "it names no task of this database"

    @property
    def is_done(self) -> bool:
        """Whether the letter has served its purpose and is removed."""
        return self in (Redriven.SENT_AGAIN, Redriven.PLANNED_ANEW, Redriven.ON_ITS_WAY)


class _NotYet(Exception):
    """The seller's open crawl cannot take the call."""


def depths(settings: Settings) -> QueueDepths | None:
    """The depths of both queues; None where SQS carries no tasks."""
    if settings.task_transport != "sqs":
        return None
    tasks = FifoQueue(settings, settings.task_queue_name).depth()
    dead = FifoQueue(settings, settings.task_dlq_name).depth()
    return QueueDepths(tasks.visible, tasks.in_flight, dead.visible + dead.in_flight)


class DeadLetters:
    """The dead-letter queue; what is looked at and neither redriven nor dropped goes back to it unchanged."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._queue = FifoQueue(settings, settings.task_dlq_name)

    @contextmanager
    def look(self, most: int) -> Generator[list[DeadLetter]]:
        """Some of them, oldest first; of one group at most ten."""
        taken = self._receive(most)
        try:
            yield self._with_tasks(taken)
        finally:
            self._queue.extend([message.receipt for message in taken], 0)

    @contextmanager
    def find(self, wanted: str) -> Generator[DeadLetter]:
        """The one whose id begins so."""
        with self._look_at_all() as letters:
            found = [letter for letter in letters if letter.id.startswith(wanted)]
            if len(found) != 1:
                many = f"{len(found)} dead letters begin" if found else "No dead letter begins"
                raise NotFound(
                    "NOT_FOUND_DEAD_LETTER",
                    korean=f"배달 못한 메시지를 찾을 수 없습니다: {wanted}",
                    english=f"{many} with {wanted}: see `mustit dlq list`",
                )
            yield found[0]

    def redrive(self, letter: DeadLetter) -> Redriven:
        """Let the call of a letter be made, and remove the letter; where it cannot be made, the letter stays."""
        state = letter.task
        if state is None:
            return Redriven.UNKNOWN
        done = self._send_again(state) if state.is_open else self._plan_anew(state)
        if done.is_done:
            self.drop(letter)
        return done

    def _send_again(self, task: TaskState) -> Redriven:
        # Its last worker may have died a moment ago.
        recovery.release_expired(self._database, self._settings, utc_now())
        with self._database.transaction() as connection:
            sent = messages.withdraw(connection, [(task.task_id, task.lease_no)])
        return Redriven.SENT_AGAIN if sent else Redriven.ON_ITS_WAY

    def _plan_anew(self, task: TaskState) -> Redriven:
        """A failed task stays FAILED: another crawl of its seller, opened if need be, makes the call."""
        if not task.has_failed:
            return Redriven.ENDED
        try:
            with self._database.transaction() as connection:
                return self._plan_elsewhere(connection, task)
        except _NotYet:
            return Redriven.LATER
        except Conflict:
            return Redriven.INACTIVE

    def _plan_elsewhere(self, connection: Connection, task: TaskState) -> Redriven:
        now = utc_now()
        opened = open_or_join_within(
            connection,
            SellerId(task.seller_id),
            triggered_by=TRIGGERED_BY,
            now=now,
            sweeps=task.is_of_a_sweep,
        )
        stored = executions.get(connection, opened.stored.id, lock=True)
        if stored.id.value == task.execution_id or not stored.is_open:
            raise _NotYet
        if task.is_of_a_sweep or task.item_no is None:
            if stored.is_swept:
                raise _NotYet
            return Redriven.ON_ITS_WAY if opened.joined else Redriven.PLANNED_ANEW
        if opened.joined and not stored.is_planned:
            raise _NotYet
        # As urgent as a product that was never seen: an operator waits for it.
        planned = plan_products(Endpoints.from_settings(self._settings), {task.item_no: 0}, [task.task_type])
        added = tasks.add(connection, stored.home, planned, planned_status(self._settings))
        if not opened.joined:
            stored.execution.start(added, now)
            executions.save(connection, stored.execution)
            executions.set_sweep(connection, stored.id.value, SweepStatus.INCOMPLETE)
        return Redriven.PLANNED_ANEW if added else Redriven.ON_ITS_WAY

    def redrive_all(self) -> dict[str, Redriven]:
        """Redrive everything that can be; returns what became of each."""
        done: dict[str, Redriven] = {}
        while True:
            with self._look_at_all() as letters:
                new = [letter for letter in letters if letter.id not in done]
                done |= {letter.id: self.redrive(letter) for letter in new}
            if not new:
                return done

    def _look_at_all(self) -> AbstractContextManager[list[DeadLetter]]:
        # SQS counts about and late: a letter that has just come is not among them yet.
        return self.look(max(LOOKED_AT, self._queue.depth().visible))

    def drop(self, letter: DeadLetter) -> None:
        """Remove a letter for good."""
        if refused := self._queue.delete([letter.message.receipt]):
            raise Conflict(
                "CONFLICT_DEAD_LETTER_TAKEN",
                korean=f"메시지를 삭제하지 못했습니다: {letter.id}",
                english=f"SQS did not delete {letter.id} ({', '.join(refused.values())}): try again",
            )

    def _receive(self, most: int) -> list[Message]:
        taken: dict[str, Message] = {}
        while len(taken) < most and (some := self._queue.receive(most - len(taken), LOOK_SECONDS)):
            taken |= {message.message_id: message for message in some}
        return sorted(taken.values(), key=lambda message: (message.sent_at is not None, message.sent_at))

    def _with_tasks(self, taken: Sequence[Message]) -> list[DeadLetter]:
        says = {message.message_id: read_message(message.body) for message in taken}
        ids = [body.task_id for body in says.values() if body is not None]
        with self._database.reading() as connection:
            found = messages.states(connection, ids, max_retries=self._settings.task_max_retries)
        return [
            DeadLetter(message, body, None if body is None else found.get(body.task_id))
            for message in taken
            for body in (says[message.message_id],)
        ]
