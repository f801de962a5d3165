"""An SQS FIFO queue: messages sent in batches, received for a time, kept invisible, deleted."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any
from uuid import uuid4

from mustit_pipeline.aws.clients import AwsRefused, aws_client, aws_failures
from mustit_pipeline.settings import Settings

# The most messages that SQS takes, gives or deletes in one call.
BATCH = 10
NO_QUEUE = {"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"}
SYSTEM_ATTRIBUTES = ["ApproximateReceiveCount", "SentTimestamp", "MessageGroupId", "MessageDeduplicationId"]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to be sent; SQS drops another one with the same deduplication id for five minutes."""

    body: str
    group: str
    deduplication: str
    # Said beside the body; neither a name nor a text may be empty.
    attributes: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Message:
    """A received message, invisible to others until its time is over; then `receipt` is worth nothing."""

    message_id: str
    receipt: str
    body: str
    receives: int
    group: str
    deduplication: str
    sent_at: datetime | None
    attributes: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Depth:
    """About how many messages lie in a queue: visible ones, and those that receivers hold."""

    visible: int
    in_flight: int


class FifoQueue:
    """One queue by its name; never called inside a transaction."""

    def __init__(self, settings: Settings, name: str) -> None:
        self.name = name
        self._client = aws_client(settings, "sqs")

    @cached_property
    def url(self) -> str:
        try:
            with aws_failures(f"the queue {self.name}"):
                return self._client.get_queue_url(QueueName=self.name)["QueueUrl"]
        except AwsRefused as error:
            if error.answer in NO_QUEUE:
                hint = "there is no such queue; `mustit aws setup` makes it"
                raise AwsRefused(f"the queue {self.name}", hint, error.answer) from None
            raise

    def send(self, messages: Sequence[Outgoing]) -> list[bool]:
        """Send at most ten; says of each whether SQS has accepted it. If the call fails, none is known to be."""
        entries = [
            {
                "Id": str(number),
                "MessageBody": one.body,
                "MessageGroupId": one.group,
                "MessageDeduplicationId": one.deduplication,
                "MessageAttributes": {
                    name: {"DataType": "String", "StringValue": value} for name, value in one.attributes.items()
                },
            }
            for number, one in enumerate(messages)
        ]
        with aws_failures(f"the queue {self.name}"):
            answer = self._client.send_message_batch(QueueUrl=self.url, Entries=entries)
        accepted = {entry["Id"] for entry in answer.get("Successful", [])}
        return [entry["Id"] in accepted for entry in entries]

    def receive(self, most: int, visibility_seconds: int) -> list[Message]:
        """Visible messages, at most ten; other receivers do not get them for so long."""
        with aws_failures(f"the queue {self.name}"):
            answer = self._client.receive_message(
                QueueUrl=self.url,
                MaxNumberOfMessages=min(most, BATCH),
                VisibilityTimeout=visibility_seconds,
                WaitTimeSeconds=0,
                MessageSystemAttributeNames=SYSTEM_ATTRIBUTES,
                MessageAttributeNames=["All"],
                # If the answer is lost, the client's next try gets the same messages.
                ReceiveRequestAttemptId=uuid4().hex,
            )
        return [_message(one) for one in answer.get("Messages", [])]

    def delete(self, receipts: Sequence[str]) -> dict[str, str]:
        """Delete messages; returns those that SQS did not delete, and why: they come again."""
        return self._in_batches(self._client.delete_message_batch, receipts)

    def extend(self, receipts: Sequence[str], seconds: int) -> dict[str, str]:
        """Keep messages invisible for so long from now; returns those that are not ours any more, and why."""
        return self._in_batches(self._client.change_message_visibility_batch, receipts, VisibilityTimeout=seconds)

    def depth(self) -> Depth:
        """About how many messages lie in it."""
        wanted = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        with aws_failures(f"the queue {self.name}"):
            found = self._client.get_queue_attributes(QueueUrl=self.url, AttributeNames=wanted)["Attributes"]
        return Depth(*(int(found[name]) for name in wanted))

    def _in_batches(self, call: Callable[..., Any], receipts: Sequence[str], **values: object) -> dict[str, str]:
        refused: dict[str, str] = {}
        for start in range(0, len(receipts), BATCH):
            batch = receipts[start : start + BATCH]
            entries = [{"Id": str(number), "ReceiptHandle": one, **values} for number, one in enumerate(batch)]
            with aws_failures(f"the queue {self.name}"):
                answer = call(QueueUrl=self.url, Entries=entries)
            refused |= {batch[int(entry["Id"])]: entry["Code"] for entry in answer.get("Failed", [])}
        return refused


def _message(one: dict[str, Any]) -> Message:
    attributes = one.get("Attributes", {})
    sent_ms = attributes.get("SentTimestamp", "")
    return Message(
        one["MessageId"],
        one["ReceiptHandle"],
        one["Body"],
        int(attributes.get("ApproximateReceiveCount", "1")),
        attributes.get("MessageGroupId", ""),
        attributes.get("MessageDeduplicationId", ""),
        datetime.fromtimestamp(int(sent_ms) / 1000, UTC) if sent_ms.isdecimal() else None,
        {name: value.get("StringValue", "") for name, value in one.get("MessageAttributes", {}).items()},
    )
