"""EventBridge rules: the rule of a schedule, and the idempotent calls that set it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

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
    def of(cls, outbox: SchedulerOutbox) -> "Rule":
        """The rule of a change that names its target."""
        payload = json.loads(outbox.payload)
        message = payload["input"]
        if not isinstance(message, str):
            # As changes were stored before.
            message = json.dumps(message, ensure_ascii=False)
        return cls(payload["ruleName"], payload["scheduleExpression"], payload["targetArn"], message)


@dataclass(frozen=True, slots=True)
class PresentRule:
    """A rule as EventBridge has it; `rule` is None if it has not exactly one target of ours."""

    name: str
    is_enabled: bool
    rule: Rule | None


class EventBridge:
    """The rules of one account and region; never called inside a transaction."""

    def __init__(self, settings: Settings) -> None:
        self._client = aws_client(settings, "events")
        # EventBridge calls an API destination only in a role that may do so.
        self._role = {} if settings.trigger_role_arn is None else {"RoleArn": settings.trigger_role_arn}

    def apply(self, event_type: ScheduleEventType, rule: Rule) -> None:
        """Set the rule as the change says; a repeat changes nothing."""
        if event_type is ScheduleEventType.SCHEDULE_DEACTIVATED:
            self._remove(rule)
        else:
            self._put(rule)

    def present(self, prefix: str) -> Iterator[PresentRule]:
        """The rules whose names begin so."""
        for one in self._pages("list_rules", "Rules", NamePrefix=prefix):
            name = one["Name"]
            targets = list(self._pages("list_targets_by_rule", "Targets", Rule=name))
            whole = len(targets) == 1 and targets[0].get("RoleArn") == self._role.get("RoleArn")
            rule = None
            if whole:
                rule = Rule(name, one.get("ScheduleExpression", ""), targets[0]["Arn"], targets[0].get("Input", ""))
            yield PresentRule(name, one.get("State") == "ENABLED", rule)

    def _pages(self, call: str, what: str, **asked: str) -> Iterator[dict[str, Any]]:
        more: dict[str, str] = {}
        while True:
            with aws_failures("the rules of EventBridge"):
                answer = getattr(self._client, call)(**asked, **more)
            yield from answer.get(what, [])
            if not (token := answer.get("NextToken")):
                return
            more = {"NextToken": token}

    def _put(self, rule: Rule) -> None:
        where = f"the rule {rule.name}"
        with aws_failures(where):
            self._client.put_rule(Name=rule.name, ScheduleExpression=rule.expression, State="ENABLED")
            target = {"Id": TARGET_ID, "Arn": rule.target_arn, "Input": rule.input, **self._role}
            answer = self._client.put_targets(Rule=rule.name, Targets=[target])
        _raise_failed(where, answer)
        self._take_away(rule, [one for one in self._targets(rule) if one != TARGET_ID])

    def _remove(self, rule: Rule) -> None:
        """The first call stops it; the others free its place in the account's quota."""
        calls = (
            lambda: self._client.disable_rule(Name=rule.name),
            # Of others too: EventBridge deletes no rule that has a target.
            lambda: self._take_away(rule, self._targets(rule)),
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

    def _targets(self, rule: Rule) -> list[str]:
        return [one["Id"] for one in self._pages("list_targets_by_rule", "Targets", Rule=rule.name)]

    def _take_away(self, rule: Rule, targets: list[str]) -> None:
        if targets:
            where = f"the rule {rule.name}"
            with aws_failures(where):
                _raise_failed(where, self._client.remove_targets(Rule=rule.name, Ids=targets))


def _raise_failed(where: str, answer: dict[str, Any]) -> None:
    """A call that is answered well can have failed for a target all the same."""
    for entry in answer.get("FailedEntries", []):
        error = {"Code": entry.get("ErrorCode"), "Message": entry.get("ErrorMessage")}
        raise failure_of_answer(where, {"Error": error, "ResponseMetadata": {"HTTPStatusCode": 400}})
