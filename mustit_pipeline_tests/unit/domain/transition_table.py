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
    korean: str
    english: str

    @property
    def error(self) -> type[DomainError]:
        return Conflict if self.code.startswith("CONFLICT_") else InvariantViolated


NAMES = ("seller", "schedule", "execution", "task", "agent", "raw", "product_outbox", "scheduler_outbox")
MACHINES: dict[str, StateMachine[Any]] = {name: getattr(states, name.upper()) for name in NAMES}

_OUTBOX = {
    "send": Rule(
        "WAITING",
        "SENDING",
        "CONFLICT_OUTBOX_SEND",
        "WAITING 상태에서만 전송할 수 있습니다",
        "A message can only be sent while WAITING",
    ),
    "complete": Rule(
        "SENDING",
        "COMPLETED",
        "CONFLICT_OUTBOX_COMPLETE",
        "SENDING 상태에서만 완료할 수 있습니다",
        "A message can only be completed while SENDING",
    ),
    "fail": Rule(
        "SENDING",
        "FAILED",
        "CONFLICT_OUTBOX_FAIL",
        "SENDING 상태에서만 실패 처리할 수 있습니다",
        "A message can only be failed while SENDING",
    ),
    "retry": Rule(
        "FAILED",
        "WAITING",
        "CONFLICT_OUTBOX_RETRY",
        "FAILED 상태에서만 재시도할 수 있습니다",
        "A message can only be retried while FAILED",
    ),
    "release": Rule(
        "SENDING",
        "WAITING",
        "CONFLICT_OUTBOX_RELEASE",
        "SENDING 상태에서만 반납할 수 있습니다",
        "A message can only be released while SENDING",
    ),
    "supersede": Rule(
        "WAITING FAILED",
        "COMPLETED",
        "CONFLICT_OUTBOX_SUPERSEDE",
        "WAITING 또는 FAILED 상태에서만 대체할 수 있습니다",
        "A message can only be replaced while WAITING or FAILED",
    ),
}

RULES: dict[str, dict[str, Rule]] = {
    "seller": {
        "activate": Rule(
            "INACTIVE",
            "ACTIVE",
            "CONFLICT_SELLER_ALREADY_ACTIVE",
            "이미 ACTIVE 상태입니다",
            "The seller is already ACTIVE",
        ),
        "deactivate": Rule(
            "ACTIVE",
            "INACTIVE",
            "CONFLICT_SELLER_ALREADY_INACTIVE",
            "이미 INACTIVE 상태입니다",
            "The seller is already INACTIVE",
        ),
    },
    "schedule": {
        "activate": Rule(
            "INACTIVE FAILED",
            "ACTIVE",
            "CONFLICT_SCHEDULE_ALREADY_ACTIVE",
            "이미 ACTIVE 상태입니다",
            "The schedule is already ACTIVE",
        ),
        "deactivate": Rule(
            "ACTIVE FAILED",
            "INACTIVE",
            "CONFLICT_SCHEDULE_ALREADY_INACTIVE",
            "이미 INACTIVE 상태입니다",
            "The schedule is already INACTIVE",
        ),
        "change_interval": Rule(
            "ACTIVE",
            "ACTIVE",
            "CONFLICT_SCHEDULE_INTERVAL",
            "ACTIVE 상태에서만 주기를 변경할 수 있습니다",
            "The interval can only be changed while ACTIVE",
        ),
        "fail": Rule(
            "ACTIVE INACTIVE",
            "FAILED",
            "CONFLICT_SCHEDULE_ALREADY_FAILED",
            "이미 FAILED 상태입니다",
            "The schedule is already FAILED",
        ),
    },
    "execution": {
        "start": Rule(
            "PENDING",
            "RUNNING",
            "CONFLICT_EXECUTION_START",
            "PENDING 상태에서만 시작할 수 있습니다",
            "A crawl can only be started while PENDING",
        ),
        "pause": Rule(
            "RUNNING",
            "PAUSED",
            "CONFLICT_EXECUTION_PAUSE",
            "RUNNING 상태에서만 일시정지할 수 있습니다",
            "A crawl can only be paused while RUNNING",
        ),
        "resume": Rule(
            "PAUSED FAILED",
            "RUNNING",
            "CONFLICT_EXECUTION_RESUME",
            "PAUSED 또는 FAILED 상태에서만 재개할 수 있습니다",
            "A crawl can only be resumed while PAUSED or FAILED",
        ),
        "complete": Rule(
            "RUNNING",
            "COMPLETED",
            "CONFLICT_EXECUTION_COMPLETE",
            "RUNNING 상태에서만 완료할 수 있습니다",
            "A crawl can only be completed while RUNNING",
        ),
        "fail": Rule(
            "PENDING RUNNING PAUSED",
            "FAILED",
            "CONFLICT_EXECUTION_FAIL",
            "PENDING, RUNNING 또는 PAUSED 상태에서만 실패 처리할 수 있습니다",
            "A crawl can only be failed while PENDING, RUNNING or PAUSED",
        ),
        "cancel": Rule(
            "PENDING RUNNING PAUSED",
            "CANCELLED",
            "CONFLICT_EXECUTION_CANCEL",
            "PENDING, RUNNING 또는 PAUSED 상태에서만 취소할 수 있습니다",
            "A crawl can only be cancelled while PENDING, RUNNING or PAUSED",
        ),
    },
    "task": {
        "publish": Rule(
            "WAITING",
            "PUBLISHED",
            "CONFLICT_TASK_PUBLISH",
            "WAITING 상태에서만 발행할 수 있습니다",
            "A task can only be published while WAITING",
        ),
        "republish": Rule(
            "RETRY",
            "PUBLISHED",
            "CONFLICT_TASK_REPUBLISH",
            "RETRY 상태에서만 다시 발행할 수 있습니다",
            "A task can only be republished while RETRY",
        ),
        "withdraw": Rule(
            "PUBLISHED",
            "WAITING",
            "CONFLICT_TASK_WITHDRAW",
            "PUBLISHED 상태에서만 회수할 수 있습니다",
            "A task can only be withdrawn while PUBLISHED",
        ),
        "start": Rule(
            "PUBLISHED RETRY",
            "IN_PROGRESS",
            "CONFLICT_TASK_START",
            "PUBLISHED 또는 RETRY 상태에서만 시작할 수 있습니다",
            "A task can only be started while PUBLISHED or RETRY",
        ),
        "complete": Rule(
            "IN_PROGRESS",
            "COMPLETED",
            "CONFLICT_TASK_COMPLETE",
            "IN_PROGRESS 상태에서만 완료할 수 있습니다",
            "A task can only be completed while IN_PROGRESS",
        ),
        "fail": Rule(
            "IN_PROGRESS",
            "FAILED",
            "CONFLICT_TASK_FAIL",
            "IN_PROGRESS 상태에서만 실패 처리할 수 있습니다",
            "A task can only be failed while IN_PROGRESS",
        ),
        "retry": Rule(
            "FAILED",
            "RETRY",
            "CONFLICT_TASK_RETRY",
            "FAILED 상태에서만 재시도할 수 있습니다",
            "A task can only be retried while FAILED",
        ),
        "release": Rule(
            "IN_PROGRESS",
            "PUBLISHED",
            "CONFLICT_TASK_RELEASE",
            "IN_PROGRESS 상태에서만 반납할 수 있습니다",
            "A task can only be released while IN_PROGRESS",
        ),
        "exhaust": Rule(
            "PUBLISHED IN_PROGRESS",
            "FAILED",
            "CONFLICT_TASK_EXHAUST",
            "PUBLISHED 또는 IN_PROGRESS 상태에서만 포기할 수 있습니다",
            "A task can only be given up while PUBLISHED or IN_PROGRESS",
        ),
        "cancel": Rule(
            "WAITING PUBLISHED IN_PROGRESS RETRY",
            "FAILED",
            "CONFLICT_TASK_CANCEL",
            "WAITING, PUBLISHED, IN_PROGRESS 또는 RETRY 상태에서만 취소할 수 있습니다",
            "A task can only be cancelled while WAITING, PUBLISHED, IN_PROGRESS or RETRY",
        ),
    },
    "agent": {
        "suspend": Rule(
            "AVAILABLE SUSPENDED",
            "SUSPENDED",
            "CONFLICT_AGENT_SUSPEND",
            "AVAILABLE 또는 SUSPENDED 상태에서만 정지할 수 있습니다",
            "An agent can only be suspended while AVAILABLE or SUSPENDED",
        ),
        "recover": Rule(
            "SUSPENDED",
            "AVAILABLE",
            "CONFLICT_AGENT_RECOVER",
            "SUSPENDED 상태에서만 복구할 수 있습니다",
            "An agent can only be recovered while SUSPENDED",
        ),
        "block": Rule(
            "AVAILABLE SUSPENDED",
            "BLOCKED",
            "CONFLICT_AGENT_ALREADY_BLOCKED",
            "이미 BLOCKED 상태입니다",
            "The agent is already BLOCKED",
        ),
        "unblock": Rule(
            "BLOCKED",
            "AVAILABLE",
            "CONFLICT_AGENT_NOT_BLOCKED",
            "BLOCKED 상태에서만 차단을 해제할 수 있습니다",
            "An agent can only be unblocked while BLOCKED",
        ),
    },
    "raw": {
        "process": Rule(
            "PENDING FAILED",
            "PROCESSED",
            "CONFLICT_RAW_PROCESS",
            "PENDING 또는 FAILED 상태에서만 처리할 수 있습니다",
            "A raw body can only be processed while PENDING or FAILED",
        ),
        "fail": Rule(
            "PENDING FAILED",
            "FAILED",
            "CONFLICT_RAW_FAIL",
            "PENDING 또는 FAILED 상태에서만 실패 처리할 수 있습니다",
            "A raw body can only be failed while PENDING or FAILED",
        ),
        "retry": Rule(
            "FAILED",
            "PENDING",
            "CONFLICT_RAW_RETRY",
            "FAILED 상태에서만 재시도할 수 있습니다",
            "A raw body can only be retried while FAILED",
        ),
        "replay": Rule(
            "PROCESSED FAILED",
            "PENDING",
            "CONFLICT_RAW_REPLAY",
            "PROCESSED 또는 FAILED 상태에서만 재처리할 수 있습니다",
            "A raw body can only be replayed while PROCESSED or FAILED",
        ),
    },
    "product_outbox": _OUTBOX,
    "scheduler_outbox": _OUTBOX,
}

STATES: dict[str, list[Any]] = {name: list(machine.states.__members__.values()) for name, machine in MACHINES.items()}
MATRIX = [(name, move, state) for name, rules in RULES.items() for move in rules for state in STATES[name]]
