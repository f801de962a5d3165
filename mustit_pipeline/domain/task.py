"""One call to the marketplace that has to be made."""

from dataclasses import dataclass
from datetime import datetime

from mustit_pipeline.domain.aggregate import Aggregate
from mustit_pipeline.domain.errors import InvariantViolated
from mustit_pipeline.domain.limits import TASK_MAX_RELEASES, TASK_MAX_RETRIES
from mustit_pipeline.domain.states import TASK, TaskStatus, TaskType
from mustit_pipeline.domain.values import ExecutionId, ItemNo, SellerId, TaskId

CANCELLED = "CANCELLED"
FETCH_FAILED = "FETCH_FAILED"
RELEASED_TOO_OFTEN = "RELEASED_TOO_OFTEN"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CrawlerTask(Aggregate):
    """A task knows whether it may be retried or released once more."""

    id: TaskId
    execution_id: ExecutionId
    seller_id: SellerId
    task_type: TaskType
    # Text, not a RequestUrl: a stored task stays readable after the listing path's setting has changed.
    request_url: str
    created_at: datetime
    item_no: ItemNo | None = None
    status: TaskStatus = TaskStatus.WAITING
    retry_count: int = 0
    release_count: int = 0
    max_retries: int = TASK_MAX_RETRIES
    max_releases: int = TASK_MAX_RELEASES
    permanent: bool = False
    error_code: str | None = None
    error_text: str | None = None
    published_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None

    def can_retry(self) -> bool:
        """Whether this failure is followed by another attempt."""
        retryable = self.status in TASK.sources("retry") and not self.permanent
        return retryable and self.retry_count < self.max_retries

    def can_release(self) -> bool:
        """Whether it may go back to the queue; the last release in a row that is allowed fails it instead."""
        return self.status in TASK.sources("release") and self.release_count + 1 < self.max_releases

    @property
    def is_exhausted(self) -> bool:
        """Whether it has failed after all of its attempts."""
        return used_up_attempts(self.status, self.error_code, self.retry_count, self.max_retries)

    def complete(self, at: datetime) -> None:
        """Its result is stored."""
        self._set(status=TASK.move(self.status, "complete"), completed_at=at, release_count=0)

    def fail(self, reason: str, at: datetime, *, code: str = FETCH_FAILED, permanent: bool = False) -> None:
        """This attempt failed; a permanent failure would fail again and is never retried."""
        status = TASK.move(self.status, "fail")
        self._end(status, code, reason, at, permanent=permanent)

    def retry(self) -> None:
        """Spend a retry and forget the error."""
        status = TASK.move(self.status, "retry")
        if self.permanent:
            raise InvariantViolated(
                "INVARIANT_TASK_PERMANENT",
                korean="영구 실패한 작업은 재시도할 수 없습니다",
                english="A task that failed permanently cannot be retried",
            )
        if not self.can_retry():
            raise InvariantViolated(
                "INVARIANT_TASK_RETRIES_EXCEEDED",
                korean=f"재시도 횟수를 초과했습니다 (최대 {self.max_retries}회)",
                english=f"No retries are left (at most {self.max_retries})",
            )
        self._set(
            status=status,
            retry_count=self.retry_count + 1,
            error_code=None,
            error_text=None,
            started_at=None,
            completed_at=None,
        )

    def release(self, at: datetime) -> None:
        """Its worker died or gave it back: no retry is spent, but too many releases in a row fail it."""
        status = TASK.move(self.status, "release")
        if self.can_release():
            self._set(status=status, release_count=self.release_count + 1, published_at=at, started_at=None)
        else:
            self.exhaust(f"released {self.max_releases} times in a row", at)

    def exhaust(self, reason: str, at: datetime) -> None:
        """It was leased too often without a result: a failed attempt."""
        self._end(TASK.move(self.status, "exhaust"), RELEASED_TOO_OFTEN, reason, at)

    def _end(self, status: TaskStatus, code: str, reason: str, at: datetime, *, permanent: bool = False) -> None:
        self._set(
            status=status, error_code=code, error_text=reason, completed_at=at, release_count=0, permanent=permanent
        )


def used_up_attempts(status: TaskStatus, error_code: str | None, retry_count: int, max_retries: int) -> bool:
    """Whether a task has FAILED and no attempt or worker is left for it.

    One that would have failed again all the same (a 404, a body of another shape) has not: a further attempt would be
    of no use. Nor has a cancelled one.
    """
    if status not in TASK.sources("retry") or error_code == CANCELLED:
        return False
    return retry_count >= max_retries or error_code == RELEASED_TOO_OFTEN
