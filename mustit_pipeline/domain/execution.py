"""One crawl of one seller, from its plan to its end."""

from dataclasses import dataclass
from datetime import datetime

from mustit_pipeline.domain.aggregate import Aggregate
from mustit_pipeline.domain.errors import InvariantViolated, ValidationFailed
from mustit_pipeline.domain.states import EXECUTION, ExecutionStatus
from mustit_pipeline.domain.values import ExecutionId, SellerId

OPEN_STATES = EXECUTION.sources("cancel")
GIVEN_UP = "GIVEN_UP"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CrawlingScheduleExecution(Aggregate):
    """How many tasks a crawl has and how they ended."""

    id: ExecutionId
    seller_id: SellerId
    created_at: datetime
    status: ExecutionStatus = ExecutionStatus.PENDING
    total_tasks: int = 0
    completed_tasks: int = 0
    failed_tasks: int = 0
    started_at: datetime | None = None
    ended_at: datetime | None = None
    error_code: str | None = None
    error_text: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether it has not ended; a seller has at most one open execution."""
        return self.status in OPEN_STATES

    @property
    def remaining(self) -> int:
        """Tasks that have not ended."""
        return self.total_tasks - self.completed_tasks - self.failed_tasks

    @property
    def progress_rate(self) -> float:
        """Percent of the tasks that have ended."""
        return _percent(self.completed_tasks + self.failed_tasks, self.total_tasks)

    @property
    def success_rate(self) -> float:
        """Percent of the ended tasks that succeeded."""
        return _percent(self.completed_tasks, self.completed_tasks + self.failed_tasks)

    def start(self, total: int, at: datetime) -> None:
        """Start with the tasks planned so far."""
        status = EXECUTION.move(self.status, "start")
        _refuse_negative(total)
        self._set(status=status, total_tasks=total, started_at=at)

    def pause(self) -> None:
        """Lease no further tasks until it is resumed."""
        self._set(status=EXECUTION.move(self.status, "pause"))

    def resume(self) -> None:
        """Continue with the stored tasks."""
        status = EXECUTION.move(self.status, "resume")
        self._set(status=status, ended_at=None, error_code=None, error_text=None)

    def complete(self, at: datetime) -> None:
        """Every task has ended, failed ones included."""
        status = EXECUTION.move(self.status, "complete")
        if self.remaining:
            raise InvariantViolated(
                "INVARIANT_EXECUTION_UNFINISHED",
                korean="모든 작업이 종료된 후에만 완료할 수 있습니다",
                english="A crawl can only be completed after all of its tasks have ended",
            )
        self._set(status=status, ended_at=at)

    def fail(self, reason: str, at: datetime, *, code: str = GIVEN_UP) -> None:
        """No plan could be made, or the crawl was given up."""
        self._set(status=EXECUTION.move(self.status, "fail"), ended_at=at, error_code=code, error_text=reason)

    def cancel(self, at: datetime) -> None:
        """End it for good; the caller also cancels its open tasks."""
        self._set(status=EXECUTION.move(self.status, "cancel"), ended_at=at)


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 0.0


def _refuse_negative(count: int) -> None:
    if count < 0:
        raise ValidationFailed(
            "VALIDATION_EXECUTION_COUNT",
            korean="작업 수는 음수일 수 없습니다",
            english="A number of tasks cannot be negative",
        )
