"""What the settings name in AWS: made where it is missing, changed where it differs."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from mustit_pipeline.aws.clients import AwsRefused, aws_client, aws_failures
from mustit_pipeline.aws.fifo_queue import NO_QUEUE
from mustit_pipeline.domain.schedule import RULE_PREFIX
from mustit_pipeline.settings import Settings

LONGEST_RETENTION_SECONDS = 14 * 24 * 3600
FIFO = {
    "FifoQueue": "true",
    # A task's messages share a group: duplicates are found inside it, and SQS takes thousands of calls a second.
    "DeduplicationScope": "messageGroup",
    "FifoThroughputLimit": "perMessageGroupId",
}


# The connection, which holds the API key, and the API destination that uses it.
DESTINATION = "mustit-crawl-trigger"
API_PATH = "/api/internal/crawling/trigger"
KEY_HEADER = "X-API-Key"
NOT_THERE = "ResourceNotFoundException"


@dataclass(frozen=True, slots=True)
class QueueSetup:
    """A queue, whether it was missing, and the attributes that were set, or would be."""

    name: str
    created: bool
    changed: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DestinationSetup:
    """The API destination, whether it was missing, and its ARN for MUSTIT_TRIGGER_TARGET_ARN once it is there."""

    endpoint: str
    created: bool
    arn: str | None


def make_queues(settings: Settings, *, dry_run: bool = False) -> list[QueueSetup]:
    """Make the queues that the settings switch on; a repeat changes nothing."""
    client = aws_client(settings, "sqs")
    made: list[QueueSetup] = []
    if settings.trigger_queue_url is not None:
        made.append(_trigger_queue(client, trigger_queue_name(settings.trigger_queue_url), dry_run=dry_run))
    if settings.task_transport == "sqs":
        made += _task_queues(client, settings, dry_run=dry_run)
    return made


def make_destination(settings: Settings, *, dry_run: bool = False) -> DestinationSetup | None:
    """Make the API destination that the settings switch on; the API key that it sends is always set anew."""
    if settings.trigger_api_url is None or settings.trigger_api_key is None:
        return None
    client, endpoint = aws_client(settings, "events"), settings.trigger_api_url.rstrip("/") + API_PATH
    connection = _described(client.describe_connection)
    destination = _described(client.describe_api_destination)
    arn = None if destination is None else destination["ApiDestinationArn"]
    if not dry_run:
        key = {"ApiKeyName": KEY_HEADER, "ApiKeyValue": settings.trigger_api_key.get_secret_value()}
        with aws_failures(f"the connection {DESTINATION}"):
            connection = (client.create_connection if connection is None else client.update_connection)(
                Name=DESTINATION, AuthorizationType="API_KEY", AuthParameters={"ApiKeyAuthParameters": key}
            )
        with aws_failures(f"the API destination {DESTINATION}"):
            put = client.create_api_destination if destination is None else client.update_api_destination
            arn = put(
                Name=DESTINATION,
                ConnectionArn=connection["ConnectionArn"],
                InvocationEndpoint=endpoint,
                HttpMethod="POST",
            )["ApiDestinationArn"]
    return DestinationSetup(endpoint, destination is None, arn)


def trigger_queue_name(url: str) -> str:
    """The last part of a queue's address."""
    return urlsplit(url).path.rpartition("/")[2]


def _described(describe: Any) -> dict[str, Any] | None:
    try:
        with aws_failures(f"{DESTINATION} of EventBridge"):
            return describe(Name=DESTINATION)
    except AwsRefused as error:
        if error.answer == NOT_THERE:
            return None
        raise


def _trigger_queue(client: Any, name: str, *, dry_run: bool) -> QueueSetup:
    """A queue that EventBridge may send to; the policy of a queue that has one is its owner's matter."""
    made = _ensure(client, name, {"MessageRetentionPeriod": str(LONGEST_RETENTION_SECONDS)}, dry_run=dry_run)
    present = _attributes(client, name) or {}
    if "Policy" in present:
        return made
    arn = present.get("QueueArn", f"(the ARN of {name})")
    _, partition, _, region, account, _ = arn.split(":") if arn.startswith("arn:") else ("", "aws", "", "*", "*", "")
    rules = f"arn:{partition}:events:{region}:{account}:rule/{RULE_PREFIX}*"
    statement = {
        "Sid": "RulesOfSchedules",
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": arn,
        "Condition": {"ArnLike": {"aws:SourceArn": rules}},
    }
    policy = {"Policy": json.dumps({"Version": "2012-10-17", "Statement": [statement]})}
    if not dry_run:
        with aws_failures(f"the queue {name}"):
            client.set_queue_attributes(QueueUrl=_url(client, name), Attributes=policy)
    return QueueSetup(name, made.created, {**made.changed, **policy})


def _task_queues(client: Any, settings: Settings, *, dry_run: bool) -> list[QueueSetup]:
    """The task queue and its dead-letter queue."""
    letters = FIFO | {"MessageRetentionPeriod": str(LONGEST_RETENTION_SECONDS)}
    dead = _ensure(client, settings.task_dlq_name, letters, dry_run=dry_run)
    parked_at = (_attributes(client, settings.task_dlq_name) or {}).get("QueueArn")
    policy = {
        "deadLetterTargetArn": parked_at or f"(the ARN of {settings.task_dlq_name})",
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
