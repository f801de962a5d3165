"""The SQS queue through which others ask for crawls."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from mustit_pipeline.aws.clients import aws_client, aws_failures
from mustit_pipeline.settings import Settings

# The most that SQS hands out, and takes back, at once.
BATCH = 10
# Asks all of SQS's servers and not only some of them; a tick that finds nothing costs as much.
WAIT_SECONDS = 1


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message in our hands until its time is over: the same one may come again, with another receipt."""

    message_id: str
    receipt: str
    body: str
    sent_at: datetime | None = None


class TriggerQueue:
    """One queue; nothing of it is called inside a transaction."""

    def __init__(self, settings: Settings, url: str) -> None:
        self.url = url
        self._client = aws_client(settings, "sqs")

    def receive(self, most: int = BATCH) -> list[Delivery]:
        """Messages that wait, at most ten; none where there are none within a second."""
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
        """Give back what is stored; says of which messages SQS did not take that, and why: they come again."""
        if not deliveries:
            return {}
        entries = [{"Id": str(number), "ReceiptHandle": one.receipt} for number, one in enumerate(deliveries)]
        with aws_failures(self.url):
            answer = self._client.delete_message_batch(QueueUrl=self.url, Entries=entries)
        return {deliveries[int(one["Id"])].message_id: one["Code"] for one in answer.get("Failed", [])}


def _sent(attributes: dict[str, str]) -> datetime | None:
    said = attributes.get("SentTimestamp", "")
    return datetime.fromtimestamp(int(said) / 1000, UTC) if said.isdecimal() else None
