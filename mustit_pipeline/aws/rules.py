"""EventBridge rules: the rule of a schedule, and the idempotent calls that set it."""

import json
from dataclasses import dataclass

from mustit_pipeline.aws.clients import AwsRefused, aws_client, aws_failures, failure_of_answer
from mustit_pipeline.domain.outbox import SchedulerOutbox
from mustit_pipeline.domain.states import ScheduleEventType
from mustit_pipeline.settings import Settings

TARGET_ID = "mustit"
NOT_THERE = "ResourceNotFoundException"


@dataclass(frozen=True, slots=True)
class Rule:
    """One seller's rule: its rate, its target and its message."""

    name: str
    expression: str
    target_arn: str
    input: str

    @classmethod
    def of(cls, outbox: SchedulerOutbox, target_arn: str) -> "Rule":
        """The rule of a change; its target is the configured one unless the change names one."""
        payload = json.loads(outbox.payload)
        message = json.dumps(payload["input"], ensure_ascii=False)
        return cls(payload["ruleName"], payload["scheduleExpression"], payload["targetArn"] or target_arn, message)


class EventBridge:
    """The rules of one account and region; never called inside a transaction."""

    def __init__(self, settings: Settings) -> None:
        self._client = aws_client(settings, "events")

    def apply(self, event_type: ScheduleEventType, rule: Rule) -> None:
        """Set the rule as the change says; a repeat changes nothing."""
        if event_type is ScheduleEventType.SCHEDULE_DEACTIVATED:
            self._remove(rule)
        else:
            self._put(rule)

    def _put(self, rule: Rule) -> None:
        where = f"the rule {rule.name}"
        with aws_failures(where):
            self._client.put_rule(Name=rule.name, ScheduleExpression=rule.expression, State="ENABLED")
            target = {"Id": TARGET_ID, "Arn": rule.target_arn, "Input": rule.input}
            answer = self._client.put_targets(Rule=rule.name, Targets=[target])
        for entry in answer.get("FailedEntries", []):
            error = {"Code": entry.get("ErrorCode"), "Message": entry.get("ErrorMessage")}
            raise failure_of_answer(where, {"Error": error, "ResponseMetadata": {"HTTPStatusCode": 400}})

    def _remove(self, rule: Rule) -> None:
        """The first call stops it; the others free its place in the account's quota."""
        calls = (
            lambda: self._client.disable_rule(Name=rule.name),
            lambda: self._client.remove_targets(Rule=rule.name, Ids=[TARGET_ID]),
            lambda: self._client.delete_rule(Name=rule.name),
        )
        try:
            for call in calls:
                with aws_failures(f"the rule {rule.name}"):
                    call()
        except AwsRefused as error:
            # Removed before, or never created: nothing can fire.
            if error.answer != NOT_THERE:
                raise
