"""The message of a task: what it says, its group, and what tells it from the task's other messages."""

import hashlib
import re
from uuid import UUID

import msgspec

from mustit_pipeline.aws.fifo_queue import Message, Outgoing
from mustit_pipeline.crawling.sql.messages import WaitingTask
from mustit_pipeline.domain.states import TaskType

# Messages of one group are given one after the other: so many of a seller's products can be worked on side by side.
GROUPS = 16
# What SQS takes as the name of a group, with room for the rest of the name.
_FITS = re.compile(r"[!-~]{1,100}")
# What SQS does not take in an attribute.
_UNFIT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# Attributes of a dead letter.
CODE, REASON = "errorCode", "reason"
LONGEST_REASON = 1000


class TaskMessage(msgspec.Struct, frozen=True, rename="camel"):
    """The body; only the id is used, the row in PostgreSQL says the rest."""

    task_id: UUID
    seller_id: str
    task_type: TaskType
    request_url: str


def message_of(task: WaitingTask) -> Outgoing:
    """The message of a task; published once more, it has another deduplication id."""
    body = TaskMessage(task.task_id, task.seller_id, task.task_type, task.request_url)
    return Outgoing(
        msgspec.json.encode(body).decode(),
        group_of(task),
        f"{task.task_id}:{task.retry_count}:{task.lease_no}",
    )


def dead_letter_of(message: Message, code: str | None, reason: str | None) -> Outgoing:
    """The same message for the dead-letter queue, and why its task has failed.

    SQS drops a second one of the same message. A message that an operator has moved back to the task queue is another.
    """
    said = {CODE: code, REASON: reason and _UNFIT.sub("\ufffd", reason)[:LONGEST_REASON]}
    return Outgoing(
        message.body,
        message.group,
        f"dead:{message.message_id}",
        {name: text for name, text in said.items() if text},
    )


def group_of(task: WaitingTask) -> str:
    """The seller, and the item number modulo 16; pages have groups of their own, by page number."""
    seller = task.seller_id
    if not _FITS.fullmatch(seller):
        seller = hashlib.sha256(seller.encode()).hexdigest()
    if task.item_no is None:
        return f"{seller}:page-{(task.page_no or 0) % GROUPS}"
    return f"{seller}:{task.item_no % GROUPS}"


def read_message(body: str) -> TaskMessage | None:
    """What a message says; None if it is none of ours."""
    try:
        return msgspec.json.decode(body, type=TaskMessage)
    except (msgspec.MsgspecError, UnicodeError):
        return None
