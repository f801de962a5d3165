"""The SQS queue of messages that ask for crawls."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from mustit_pipeline.aws.clients import aws_client, aws_failures
from mustit_pipeline.settings import Settings

# The most messages that SQS delivers or deletes at once.
BATCH = 10
# Long polling asks all of SQS's servers; a tick that finds nothing takes this long.
WAIT_SECONDS = 1


@dataclass(frozen=True, slots=True)
class Delivery:
    """A received message; after its visibility timeout it may come again, with another receipt."""

    message_id: str
    receipt: str
    body: str
    sent_at: datetime | None = None


class TriggerQueue:
    """One queue; never called inside a transaction."""

    def __init__(self, settings: Settings, url: str) -> None:
        self.url = url
        self._client = aws_client(settings, "sqs")

    def receive(self, most: int = BATCH) -> list[Delivery]:
        """Waiting messages, at most ten; waits up to a second for one."""
        with aws_failures(self.url):
            answer = self._client.receive_message(
                QueueUrl=self.url,
                MaxNumberOfMessages=min(most, BATCH),
                WaitTimeSeconds=WAIT_SECONDS,
                MessageSystemAttributeNames=["SentTimestamp"],
            )
        return [
            Delivery(one["MessageId"], one["ReceiptHandle"], one["Body"], _sent(one.get("Attributes", {})))
            for one in answer.get("Messages", [])
        ]

    def delete(self, deliveries: Sequence[Delivery]) -> dict[str, str]:
        """Delete stored messages; returns those that SQS did not delete, and why: they come again."""
        if not deliveries:
            return {}
        entries = [{"Id": str(number), "ReceiptHandle": one.receipt} for number, one in enumerate(deliveries)]
        with aws_failures(self.url):
            answer = self._client.delete_message_batch(QueueUrl=self.url, Entries=entries)
        return {deliveries[int(one["Id"])].message_id: one["Code"] for one in answer.get("Failed", [])}


def _sent(attributes: dict[str, str]) -> datetime | None:
    sent_ms = attributes.get("SentTimestamp", "")
    return datetime.fromtimestamp(int(sent_ms) / 1000, UTC) if sent_ms.isdecimal() else None
