"""Every state and every allowed change of state; aggregates and SQL both take them from here."""

from enum import StrEnum

from mustit_pipeline.domain.machine import Move, StateMachine, only, unless_already


class SellerStatus(StrEnum):
    ACTIVE = "ACTIVE"
    INACTIVE = "INACTIVE"


class ScheduleStatus(StrEnum):
    ACTIVE = "ACTIVE"
    INACTIVE = "INACTIVE"
    FAILED = "FAILED"


class ExecutionStatus(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class ExecutionKind(StrEnum):
    """Why a crawl was opened."""

    # Its seller is due, or it was asked for.
    DUE = "DUE"
    # Requests were to spare: it gives way to every other crawl.
    LIGHT = "LIGHT"


class _Text(StrEnum):
    """Hashed as the text that it equals: an Enum's own hash is written in Python, and tasks are counted by these."""

    __hash__ = str.__hash__


class TaskStatus(_Text):
    WAITING = "WAITING"
    PUBLISHED = "PUBLISHED"
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    RETRY = "RETRY"


class AgentStatus(StrEnum):
    AVAILABLE = "AVAILABLE"
    SUSPENDED = "SUSPENDED"
    BLOCKED = "BLOCKED"


class ChangeHoldStatus(StrEnum):
    OPEN = "OPEN"
    RELEASED = "RELEASED"
    CLOSED = "CLOSED"


class SliceOutcome(StrEnum):
    """What a slice of a crawl came to."""

    # Its change sets are written, even if failed tasks then turn its run red.
    WORKED_THROUGH = "WORKED_THROUGH"
    # An operator has paused or cancelled the crawl under it.
    HALTED = "HALTED"
    # An operator has stopped its run.
    STOPPED = "STOPPED"
    # No process took its run: that says nothing about the crawl.
    NEVER_STARTED = "NEVER_STARTED"
    CRASHED = "CRASHED"
    # For a reason that is still there when the next one starts.
    FAILED_FOR_GOOD = "FAILED_FOR_GOOD"


class TruthVerdict(StrEnum):
    EQUAL = "EQUAL"
    OPEN = "OPEN"
    EXPLAINED = "EXPLAINED"
    WRONG = "WRONG"


class RawStatus(StrEnum):
    PENDING = "PENDING"
    PROCESSED = "PROCESSED"
    FAILED = "FAILED"


class OutboxStatus(StrEnum):
    WAITING = "WAITING"
    SENDING = "SENDING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class SweepStatus(StrEnum):
    PENDING = "PENDING"
    COMPLETE = "COMPLETE"
    INCOMPLETE = "INCOMPLETE"


class TaskType(_Text):
    MINISHOP = "MINISHOP"
    PRODUCT_DETAIL = "PRODUCT_DETAIL"
    PRODUCT_OPTION = "PRODUCT_OPTION"


class ProductEventType(StrEnum):
    PRODUCT_CREATED = "PRODUCT_CREATED"
    PRODUCT_UPDATED = "PRODUCT_UPDATED"
    PRODUCT_DELETED = "PRODUCT_DELETED"


class ScheduleEventType(StrEnum):
    SCHEDULE_REGISTERED = "SCHEDULE_REGISTERED"
    SCHEDULE_UPDATED = "SCHEDULE_UPDATED"
    SCHEDULE_DEACTIVATED = "SCHEDULE_DEACTIVATED"


class ChangeType(StrEnum):
    PRICE = "PRICE"
    STOCK = "STOCK"
    OPTION = "OPTION"
    IMAGE = "IMAGE"
    DESCRIPTION = "DESCRIPTION"
    PRODUCT_INFO = "PRODUCT_INFO"


class LifeCycle(StrEnum):
    CREATED = "CREATED"
    UPDATED = "UPDATED"
    DELETED = "DELETED"
    RESTORED = "RESTORED"


_S = SellerStatus
SELLER = StateMachine(
    SellerStatus,
    {
        "activate": unless_already((_S.INACTIVE,), _S.ACTIVE, "CONFLICT_SELLER_ALREADY_ACTIVE", "seller"),
        "deactivate": unless_already((_S.ACTIVE,), _S.INACTIVE, "CONFLICT_SELLER_ALREADY_INACTIVE", "seller"),
    },
)

_C = ScheduleStatus
SCHEDULE = StateMachine(
    ScheduleStatus,
    {
        "activate": unless_already((_C.INACTIVE, _C.FAILED), _C.ACTIVE, "CONFLICT_SCHEDULE_ALREADY_ACTIVE", "schedule"),
        "deactivate": unless_already(
            (_C.ACTIVE, _C.FAILED), _C.INACTIVE, "CONFLICT_SCHEDULE_ALREADY_INACTIVE", "schedule"
        ),
        "change_interval": only(
            (_C.ACTIVE,), _C.ACTIVE, "CONFLICT_SCHEDULE_INTERVAL", "주기를 변경할", "The interval can only be changed"
        ),
        # From INACTIVE too: its rule could not be removed.
        "fail": unless_already((_C.ACTIVE, _C.INACTIVE), _C.FAILED, "CONFLICT_SCHEDULE_ALREADY_FAILED", "schedule"),
    },
)

_E = ExecutionStatus
_OPEN = (_E.PENDING, _E.RUNNING, _E.PAUSED)
EXECUTION = StateMachine(
    ExecutionStatus,
    {
        "start": only((_E.PENDING,), _E.RUNNING, "CONFLICT_EXECUTION_START", "시작할", "A crawl can only be started"),
        "pause": only(
            (_E.RUNNING,),
            _E.PAUSED,
            "CONFLICT_EXECUTION_PAUSE",
            "일시정지할",
            "A crawl can only be paused",
        ),
        "resume": only(
            (_E.PAUSED, _E.FAILED),
            _E.RUNNING,
            "CONFLICT_EXECUTION_RESUME",
            "재개할",
            "A crawl can only be resumed",
        ),
        "complete": only(
            (_E.RUNNING,), _E.COMPLETED, "CONFLICT_EXECUTION_COMPLETE", "완료할", "A crawl can only be completed"
        ),
        "fail": only(_OPEN, _E.FAILED, "CONFLICT_EXECUTION_FAIL", "실패 처리할", "A crawl can only be failed"),
        "cancel": only(_OPEN, _E.CANCELLED, "CONFLICT_EXECUTION_CANCEL", "취소할", "A crawl can only be cancelled"),
    },
)

_T = TaskStatus
TASK = StateMachine(
    TaskStatus,
    {
        "publish": only((_T.WAITING,), _T.PUBLISHED, "CONFLICT_TASK_PUBLISH", "발행할", "A task can only be published"),
        "republish": only(
            (_T.RETRY,), _T.PUBLISHED, "CONFLICT_TASK_REPUBLISH", "다시 발행할", "A task can only be republished"
        ),
        # Its message is lost, or was taken out of the queue.
        "withdraw": only(
            (_T.PUBLISHED,), _T.WAITING, "CONFLICT_TASK_WITHDRAW", "회수할", "A task can only be withdrawn"
        ),
        "start": only(
            (_T.PUBLISHED, _T.RETRY), _T.IN_PROGRESS, "CONFLICT_TASK_START", "시작할", "A task can only be started"
        ),
        "complete": only(
            (_T.IN_PROGRESS,), _T.COMPLETED, "CONFLICT_TASK_COMPLETE", "완료할", "A task can only be completed"
        ),
        "fail": only((_T.IN_PROGRESS,), _T.FAILED, "CONFLICT_TASK_FAIL", "실패 처리할", "A task can only be failed"),
        "retry": only((_T.FAILED,), _T.RETRY, "CONFLICT_TASK_RETRY", "재시도할", "A task can only be retried"),
        "release": only(
            (_T.IN_PROGRESS,), _T.PUBLISHED, "CONFLICT_TASK_RELEASE", "반납할", "A task can only be released"
        ),
        "exhaust": only(
            (_T.PUBLISHED, _T.IN_PROGRESS), _T.FAILED, "CONFLICT_TASK_EXHAUST", "포기할", "A task can only be given up"
        ),
        "cancel": only(
            (_T.WAITING, _T.PUBLISHED, _T.IN_PROGRESS, _T.RETRY),
            _T.FAILED,
            "CONFLICT_TASK_CANCEL",
            "취소할",
            "A task can only be cancelled",
        ),
    },
)

_A = AgentStatus
AGENT = StateMachine(
    AgentStatus,
    {
        # A SUSPENDED agent that is throttled again is suspended for longer.
        "suspend": only(
            (_A.AVAILABLE, _A.SUSPENDED),
            _A.SUSPENDED,
            "CONFLICT_AGENT_SUSPEND",
            "정지할",
            "An agent can only be suspended",
        ),
        "recover": only(
            (_A.SUSPENDED,), _A.AVAILABLE, "CONFLICT_AGENT_RECOVER", "복구할", "An agent can only be recovered"
        ),
        "block": unless_already((_A.AVAILABLE, _A.SUSPENDED), _A.BLOCKED, "CONFLICT_AGENT_ALREADY_BLOCKED", "agent"),
        "unblock": only(
            (_A.BLOCKED,),
            _A.AVAILABLE,
            "CONFLICT_AGENT_NOT_BLOCKED",
            "차단을 해제할",
            "An agent can only be unblocked",
        ),
    },
)

_R = RawStatus
RAW = StateMachine(
    RawStatus,
    {
        "process": only(
            (_R.PENDING, _R.FAILED), _R.PROCESSED, "CONFLICT_RAW_PROCESS", "처리할", "A raw body can only be processed"
        ),
        "fail": only(
            (_R.PENDING, _R.FAILED), _R.FAILED, "CONFLICT_RAW_FAIL", "실패 처리할", "A raw body can only be failed"
        ),
        "retry": only((_R.FAILED,), _R.PENDING, "CONFLICT_RAW_RETRY", "재시도할", "A raw body can only be retried"),
        "replay": only(
            (_R.PROCESSED, _R.FAILED), _R.PENDING, "CONFLICT_RAW_REPLAY", "재처리할", "A raw body can only be replayed"
        ),
    },
)

_O = OutboxStatus
PRODUCT_OUTBOX = StateMachine(
    OutboxStatus,
    {
        "send": only((_O.WAITING,), _O.SENDING, "CONFLICT_OUTBOX_SEND", "전송할", "A message can only be sent"),
        "complete": only(
            (_O.SENDING,), _O.COMPLETED, "CONFLICT_OUTBOX_COMPLETE", "완료할", "A message can only be completed"
        ),
        "fail": only((_O.SENDING,), _O.FAILED, "CONFLICT_OUTBOX_FAIL", "실패 처리할", "A message can only be failed"),
        "retry": only((_O.FAILED,), _O.WAITING, "CONFLICT_OUTBOX_RETRY", "재시도할", "A message can only be retried"),
        "release": only(
            (_O.SENDING,), _O.WAITING, "CONFLICT_OUTBOX_RELEASE", "반납할", "A message can only be released"
        ),
        "supersede": only(
            (_O.WAITING, _O.FAILED),
            _O.COMPLETED,
            "CONFLICT_OUTBOX_SUPERSEDE",
            "대체할",
            "A message can only be replaced",
        ),
    },
)
SCHEDULER_OUTBOX = PRODUCT_OUTBOX


class HoldStatus(StrEnum):
    OPEN = "OPEN"
    APPROVED = "APPROVED"
    REJECTED = "REJECTED"
    CLOSED = "CLOSED"


def _decide(target: HoldStatus) -> Move[HoldStatus]:
    """An end of an open hold; a second decision is refused with a Conflict."""
    return Move(
        frozenset({HoldStatus.OPEN}),
        target,
        "CONFLICT_DELETION_HOLD_DECIDED",
        "이미 처리된 삭제 보류입니다",
        "This hold has been decided already; `mustit deletions show` tells how",
    )


DELETION_HOLD = StateMachine(
    HoldStatus,
    {
        "approve": _decide(HoldStatus.APPROVED),
        "reject": _decide(HoldStatus.REJECTED),
        # A later sweep under the share: what is absent goes the normal way.
        "close": _decide(HoldStatus.CLOSED),
    },
)


def _end_hold(target: ChangeHoldStatus) -> Move[ChangeHoldStatus]:
    return Move(
        frozenset({ChangeHoldStatus.OPEN}),
        target,
        "CONFLICT_CHANGE_HOLD_ENDED",
        "이미 처리된 변경 보류입니다",
        "These changes are held back no longer; `mustit holds list` tells how that ended",
    )


CHANGE_HOLD = StateMachine(
    ChangeHoldStatus,
    {
        "release": _end_hold(ChangeHoldStatus.RELEASED),
        # A later check found few enough suspicious products.
        "close": _end_hold(ChangeHoldStatus.CLOSED),
    },
)
