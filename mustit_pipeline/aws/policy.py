"""The least IAM policies with which the pipeline works, and with which `mustit aws setup` and `rules` do."""

from collections.abc import Sequence
from typing import Any

from mustit_pipeline.aws.setup import DESTINATION, trigger_queue_name
from mustit_pipeline.domain.schedule import RULE_PREFIX
from mustit_pipeline.settings import Settings

RECEIVING = ("sqs:ReceiveMessage", "sqs:DeleteMessage")
HOLDING = ("sqs:ChangeMessageVisibility", "sqs:GetQueueAttributes", "sqs:GetQueueUrl")
# A file may arrive in parts, which are put together or given up; a head is part of getting.
FILES = ("s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:PutObject")
MAKING = ("sqs:CreateQueue", "sqs:GetQueueAttributes", "sqs:GetQueueUrl", "sqs:SetQueueAttributes")


def work_policy(settings: Settings) -> dict[str, Any]:
    """For workers, the Dagster daemon and the runs: what the settings switch on, and no more."""
    statements: list[dict[str, Any]] = []
    if settings.task_transport == "sqs":
        # A task without an attempt left is sent to the second one.
        queues = [_queue(settings.task_queue_name), _queue(settings.task_dlq_name)]
        statements.append(_allow("Tasks", ("sqs:SendMessage", *RECEIVING, *HOLDING), queues))
    if settings.trigger_queue_url is not None:
        queue = _queue(trigger_queue_name(settings.trigger_queue_url))
        statements.append(_allow("Triggers", RECEIVING, [queue]))
    if settings.trigger == "eventbridge":
        calls = ("PutRule", "PutTargets", "DisableRule", "RemoveTargets", "DeleteRule", "ListTargetsByRule")
        rules = f"arn:aws:events:*:*:rule/{RULE_PREFIX}*"
        statements.append(_allow("Rules", [f"events:{call}" for call in calls], [rules]))
        # EventBridge knows no single rule as the resource of this one.
        statements.append(_allow("RulesCompared", ["events:ListRules"], ["*"]))
        if settings.trigger_role_arn is not None:
            pass_role = _allow("RoleOfRules", ["iam:PassRole"], [settings.trigger_role_arn])
            statements.append(
                pass_role | {"Condition": {"StringEquals": {"iam:PassedToService": "events.amazonaws.com"}}}
            )
    statements += _on_s3("Lake", settings.lake_uri, ("s3:ListBucket", "s3:ListBucketMultipartUploads"))
    statements += _on_s3("Logs", settings.compute_logs_uri, ("s3:ListBucket",))
    return _document(statements)


def setup_policy(settings: Settings) -> dict[str, Any]:
    """For the person or pipeline that runs `mustit aws setup`."""
    statements: list[dict[str, Any]] = []
    names = [] if settings.trigger_queue_url is None else [trigger_queue_name(settings.trigger_queue_url)]
    if settings.task_transport == "sqs":
        names += [settings.task_dlq_name, settings.task_queue_name]
    if names:
        statements.append(_allow("Queues", MAKING, [_queue(name) for name in names]))
    if settings.trigger_api_url is not None:
        for kind, arn in (("Connection", "connection"), ("ApiDestination", "api-destination")):
            calls = [f"events:{verb}{kind}" for verb in ("Describe", "Create", "Update")]
            statements.append(_allow(kind, calls, [f"arn:aws:events:*:*:{arn}/{DESTINATION}*"]))
        statements += _for_the_connection()
    return _document(statements)


def _for_the_connection() -> list[dict[str, Any]]:
    """What EventBridge does in the name of the maker of a connection: its secret, and the role that reads it."""
    secrets = [
        f"secretsmanager:{verb}" for verb in ("CreateSecret", "GetSecretValue", "PutSecretValue", "UpdateSecret")
    ]
    service = "apidestinations.events.amazonaws.com"
    role = f"arn:aws:iam::*:role/aws-service-role/{service}/AWSServiceRoleForAmazonEventBridgeApiDestinations"
    return [
        _allow("SecretOfConnection", secrets, [f"arn:aws:secretsmanager:*:*:secret:events!connection/{DESTINATION}/*"]),
        _allow("RoleOfConnection", ["iam:CreateServiceLinkedRole"], [role])
        | {"Condition": {"StringEquals": {"iam:AWSServiceName": service}}},
    ]


def _on_s3(sid: str, uri: str | None, listing: Sequence[str]) -> list[dict[str, Any]]:
    """For what lies on S3, if it does."""
    if uri is None or not uri.startswith("s3://"):
        return []
    name = uri.removeprefix("s3://").rstrip("/")
    return [
        _allow(f"{sid}Files", FILES, [f"arn:aws:s3:::{name}/*"]),
        _allow(f"{sid}Listed", listing, [f"arn:aws:s3:::{name.partition('/')[0]}"]),
    ]


def _queue(name: str) -> str:
    return f"arn:aws:sqs:*:*:{name}"


def _allow(sid: str, actions: Sequence[str], resources: Sequence[str]) -> dict[str, Any]:
    return {"Sid": sid, "Effect": "Allow", "Action": sorted(actions), "Resource": sorted(resources)}


def _document(statements: list[dict[str, Any]]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": statements}
