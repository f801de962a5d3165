"""The transitions as the specification gives them, written a second time and independently of the domain's tables."""

from dataclasses import dataclass
from typing import Any

from mustit_pipeline.domain import states
from mustit_pipeline.domain.errors import Conflict, DomainError, InvariantViolated
from mustit_pipeline.domain.machine import StateMachine


@dataclass(frozen=True)
class Rule:
    sources: str
    target: str
    code: str
    # Where the specification gives the words of the refusal.
    korean: str | None = None

    @property
    def error(self) -> type[DomainError]:
        return Conflict if self.code.startswith("CONFLICT_") else InvariantViolated


NAMES = ("seller", "schedule", "execution", "task", "agent", "raw", "product_outbox", "scheduler_outbox")
MACHINES: dict[str, StateMachine[Any]] = {name: getattr(states, name.upper()) for name in NAMES}

_OUTBOX = {
    "send": Rule("WAITING", "SENDING", "CONFLICT_OUTBOX_SEND", "WAITING 상태에서만 전송할 수 있습니다"),
    "complete": Rule("SENDING", "COMPLETED", "CONFLICT_OUTBOX_COMPLETE", "SENDING 상태에서만 완료할 수 있습니다"),
    "fail": Rule("SENDING", "FAILED", "CONFLICT_OUTBOX_FAIL"),
    "retry": Rule("FAILED", "WAITING", "CONFLICT_OUTBOX_RETRY"),
    "release": Rule("SENDING", "WAITING", "CONFLICT_OUTBOX_RELEASE"),
    "supersede": Rule("WAITING FAILED", "COMPLETED", "CONFLICT_OUTBOX_SUPERSEDE"),
}

RULES: dict[str, dict[str, Rule]] = {
    "seller": {
        "activate": Rule("INACTIVE", "ACTIVE", "CONFLICT_SELLER_ALREADY_ACTIVE"),
        "deactivate": Rule("ACTIVE", "INACTIVE", "CONFLICT_SELLER_ALREADY_INACTIVE"),
    },
    "schedule": {
        "activate": Rule("INACTIVE FAILED", "ACTIVE", "CONFLICT_SCHEDULE_ALREADY_ACTIVE", "이미 ACTIVE 상태입니다"),
        "deactivate": Rule("ACTIVE FAILED", "INACTIVE", "CONFLICT_SCHEDULE_ALREADY_INACTIVE"),
        "change_interval": Rule(
            "ACTIVE", "ACTIVE", "CONFLICT_SCHEDULE_INTERVAL", "ACTIVE 상태에서만 주기를 변경할 수 있습니다"
        ),
        "fail": Rule("ACTIVE INACTIVE", "FAILED", "CONFLICT_SCHEDULE_ALREADY_FAILED"),
    },
    "execution": {
        "start": Rule("PENDING", "RUNNING", "CONFLICT_EXECUTION_START"),
        "pause": Rule("RUNNING", "PAUSED", "CONFLICT_EXECUTION_PAUSE"),
        "resume": Rule("PAUSED FAILED", "RUNNING", "CONFLICT_EXECUTION_RESUME"),
        "complete": Rule("RUNNING", "COMPLETED", "CONFLICT_EXECUTION_COMPLETE"),
        "fail": Rule("PENDING RUNNING PAUSED", "FAILED", "CONFLICT_EXECUTION_FAIL"),
        "cancel": Rule("PENDING RUNNING PAUSED", "CANCELLED", "CONFLICT_EXECUTION_CANCEL"),
    },
    "task": {
        "publish": Rule("WAITING", "PUBLISHED", "CONFLICT_TASK_PUBLISH", "WAITING 상태에서만 발행할 수 있습니다"),
        "republish": Rule("RETRY", "PUBLISHED", "CONFLICT_TASK_REPUBLISH"),
        "withdraw": Rule("PUBLISHED", "WAITING", "CONFLICT_TASK_WITHDRAW"),
        "start": Rule(
            "PUBLISHED RETRY",
            "IN_PROGRESS",
            "CONFLICT_TASK_START",
            "PUBLISHED 또는 RETRY 상태에서만 시작할 수 있습니다",
        ),
        "complete": Rule(
            "IN_PROGRESS", "COMPLETED", "CONFLICT_TASK_COMPLETE", "IN_PROGRESS 상태에서만 완료할 수 있습니다"
        ),
        "fail": Rule("IN_PROGRESS", "FAILED", "CONFLICT_TASK_FAIL"),
        "retry": Rule("FAILED", "RETRY", "CONFLICT_TASK_RETRY", "FAILED 상태에서만 재시도할 수 있습니다"),
        "release": Rule("IN_PROGRESS", "PUBLISHED", "CONFLICT_TASK_RELEASE"),
        "exhaust": Rule("PUBLISHED IN_PROGRESS", "FAILED", "CONFLICT_TASK_EXHAUST"),
        "cancel": Rule("WAITING PUBLISHED IN_PROGRESS RETRY", "FAILED", "CONFLICT_TASK_CANCEL"),
    },
    "agent": {
        "suspend": Rule("AVAILABLE SUSPENDED", "SUSPENDED", "CONFLICT_AGENT_SUSPEND"),
        "recover": Rule("SUSPENDED", "AVAILABLE", "CONFLICT_AGENT_RECOVER"),
        "block": Rule("AVAILABLE SUSPENDED", "BLOCKED", "CONFLICT_AGENT_ALREADY_BLOCKED"),
        "unblock": Rule("BLOCKED", "AVAILABLE", "CONFLICT_AGENT_NOT_BLOCKED"),
    },
    "raw": {
        "process": Rule("PENDING FAILED", "PROCESSED", "CONFLICT_RAW_PROCESS"),
        "fail": Rule("PENDING FAILED", "FAILED", "CONFLICT_RAW_FAIL"),
        "retry": Rule("FAILED", "PENDING", "CONFLICT_RAW_RETRY"),
        "replay": Rule("PROCESSED FAILED", "PENDING", "CONFLICT_RAW_REPLAY"),
    },
    "product_outbox": _OUTBOX,
    "scheduler_outbox": _OUTBOX,
}

STATES: dict[str, list[Any]] = {name: list(machine.states.__members__.values()) for name, machine in MACHINES.items()}
MATRIX = [(name, move, state) for name, rules in RULES.items() for move in rules for state in STATES[name]]
