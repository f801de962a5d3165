"""The queues that the settings name: made where they are missing, changed where they differ."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mustit_pipeline.aws.clients import AwsRefused, aws_client, aws_failures
from mustit_pipeline.aws.fifo_queue import NO_QUEUE
from mustit_pipeline.settings import Settings

LONGEST_RETENTION_SECONDS = 14 * 24 * 3600
FIFO = {
    "FifoQueue": "true",
    # A task's messages share a group: duplicates are found inside it, and SQS takes thousands of calls a second.
    "DeduplicationScope": "messageGroup",
    "FifoThroughputLimit": "perMessageGroupId",
}


@dataclass(frozen=True, slots=True)
class QueueSetup:
    """A queue, whether it was missing, and the attributes that were set, or would be."""

    name: str
    created: bool
    changed: Mapping[str, str]


def make_queues(settings: Settings, *, dry_run: bool = False) -> list[QueueSetup]:
    """Make the task queue and its dead-letter queue as the settings say; a repeat changes nothing."""
    client = aws_client(settings, "sqs")
    letters = FIFO | {"MessageRetentionPeriod": str(LONGEST_RETENTION_SECONDS)}
    dead = _ensure(client, settings.task_dlq_name, letters, dry_run=dry_run)
    policy = {
        "deadLetterTargetArn": _arn(client, settings.task_dlq_name) or f"(the ARN of {settings.task_dlq_name})",
        "maxReceiveCount": 1 + settings.task_max_retries,
    }
    wanted = FIFO | {
        "VisibilityTimeout": str(math.ceil(settings.lease_seconds)),
        "MessageRetentionPeriod": str(LONGEST_RETENTION_SECONDS),
        "RedrivePolicy": json.dumps(policy),
    }
    return [dead, _ensure(client, settings.task_queue_name, wanted, dry_run=dry_run)]


def _ensure(client: Any, name: str, wanted: Mapping[str, str], *, dry_run: bool) -> QueueSetup:
    present = _attributes(client, name)
    if present is None:
        if not dry_run:
            with aws_failures(f"the queue {name}"):
                client.create_queue(QueueName=name, Attributes=dict(wanted))
        return QueueSetup(name, True, dict(wanted))
    changed = {key: value for key, value in wanted.items() if not _same(present.get(key), value)}
    if changed and not dry_run:
        with aws_failures(f"the queue {name}"):
            client.set_queue_attributes(QueueUrl=_url(client, name), Attributes=changed)
    return QueueSetup(name, False, changed)


def _arn(client: Any, name: str) -> str | None:
    return (_attributes(client, name) or {}).get("QueueArn")


def _attributes(client: Any, name: str) -> dict[str, str] | None:
    """The attributes of a queue; None if there is none of this name."""
    try:
        with aws_failures(f"the queue {name}"):
            return client.get_queue_attributes(QueueUrl=_url(client, name), AttributeNames=["All"])["Attributes"]
    except AwsRefused as error:
        if error.answer in NO_QUEUE:
            return None
        raise


def _url(client: Any, name: str) -> str:
    with aws_failures(f"the queue {name}"):
        return client.get_queue_url(QueueName=name)["QueueUrl"]


def _same(present: str | None, wanted: str) -> bool:
    """Policies are JSON, and come back with other spaces and numbers as text."""
    if present is None or not wanted.startswith("{"):
        return present == wanted
    return {key: str(value) for key, value in json.loads(present).items()} == {
        key: str(value) for key, value in json.loads(wanted).items()
    }
