"""The message of a task: what it says, its group, and what tells it from the task's other messages."""

import hashlib
import re
from uuid import UUID

import msgspec

from mustit_pipeline.aws.fifo_queue import Outgoing
from mustit_pipeline.crawling.sql.messages import WaitingTask
from mustit_pipeline.domain.states import TaskType

# Messages of one group are given one after the other: so many of a seller's products can be worked on side by side.
GROUPS = 16
# What SQS takes as the name of a group, with room for the rest of the name.
_FITS = re.compile(r"[!-~]{1,100}")


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
