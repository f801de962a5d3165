"""Dead letters: messages of tasks that SQS has parked because no worker ever came to an end with them."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from mustit_pipeline.aws.fifo_queue import FifoQueue, Message
from mustit_pipeline.crawling import recovery
from mustit_pipeline.crawling.sql import messages
from mustit_pipeline.crawling.task_messages import TaskMessage, read_message
from mustit_pipeline.domain.errors import Conflict, NotFound
from mustit_pipeline.domain.states import TASK, TaskStatus
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.settings import Settings

# How long others do not see what is being looked at; it is given back earlier.
LOOK_SECONDS = 60


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A parked message and its task as it is now; either may be unknown."""

    message: Message
    says: TaskMessage | None
    status: TaskStatus | None
    lease_no: int = 0

    @property
    def id(self) -> str:
        return self.message.message_id

    @property
    def is_open(self) -> bool:
        """Whether its task still has to be done."""
        return self.status in TASK.sources("cancel")


@dataclass(frozen=True, slots=True)
class QueueDepths:
    """About how many messages lie in the task queue, are in workers' hands, and are parked."""

    visible: int
    in_flight: int
    dead: int


class Redriven(StrEnum):
    """What became of a dead letter that was to be sent again."""

    SENT_AGAIN = "its task is sent to workers again"
    ON_ITS_WAY = "its task is on its way already, by another message"
    ENDED = "its task has ended; the next crawl asks again"
    UNKNOWN = "it names no task of this database"


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
        with self.look(self._queue.depth().visible) as letters:
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
        """Let the task be sent again, and remove the letter; one whose task has ended or is unknown stays."""
        if letter.status is None or letter.says is None:
            return Redriven.UNKNOWN
        if not letter.is_open:
            return Redriven.ENDED
        # Its last worker may have died a moment ago.
        recovery.release_expired(self._database, self._settings, utc_now())
        with self._database.transaction() as connection:
            sent = messages.withdraw(connection, [(letter.says.task_id, letter.lease_no)])
        self.drop(letter)
        return Redriven.SENT_AGAIN if sent else Redriven.ON_ITS_WAY

    def redrive_all(self) -> dict[str, Redriven]:
        """Redrive everything that can be; returns what became of each."""
        done: dict[str, Redriven] = {}
        while True:
            with self.look(self._queue.depth().visible) as letters:
                new = [letter for letter in letters if letter.id not in done]
                done |= {letter.id: self.redrive(letter) for letter in new}
            if not new:
                return done

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
            found = messages.states(connection, ids)
        return [_letter(message, says[message.message_id], found) for message in taken]


def _letter(message: Message, says: TaskMessage | None, found: dict[UUID, messages.TaskState]) -> DeadLetter:
    state = None if says is None else found.get(says.task_id)
    if state is None:
        return DeadLetter(message, says, None)
    return DeadLetter(message, says, state.status, state.lease_no)
