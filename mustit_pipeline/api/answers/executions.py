"""Executions."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import AliasPath, Field

from mustit_pipeline.api.models import Answer, Id, Rounded, Time
from mustit_pipeline.crawling.forecast import Forecast
from mustit_pipeline.crawling.sql.executions import StoredExecution
from mustit_pipeline.domain.states import ExecutionStatus, SweepStatus, TaskType


def _of_execution(name: str) -> AliasPath:
    return AliasPath("execution", name)


class ExecutionAnswer(Answer):
    """One crawl of one seller, with its counters."""

    execution_id: Id = Field(validation_alias="id", examples=["0b6f13c2-8d5e-4a3c-9b1f-2e7d6c5b4a39"])
    seller_id: Id = Field(examples=["dmont"])
    status: ExecutionStatus
    triggered_by: str = Field(examples=["person kim"])
    full_refetch: bool
    product_limit: int | None
    total_tasks: int = Field(validation_alias="planned_tasks", examples=[1204])
    completed_tasks: int = Field(validation_alias=_of_execution("completed_tasks"), examples=[871])
    failed_tasks: int = Field(examples=[2])
    progress_rate: Rounded = Field(
        validation_alias=_of_execution("progress_rate"),
        description="Ended tasks of all tasks, in percent",
        examples=[72.51],
    )
    success_rate: Rounded = Field(
        validation_alias=_of_execution("success_rate"),
        description="Succeeded tasks of the ended ones, in percent",
        examples=[99.77],
    )
    requests: int = Field(examples=[873])
    throttled: int = Field(description="Requests that were answered with 429", examples=[0])
    listed_count: int | None = Field(description="Products that the listing names", examples=[600])
    skipped_items: int
    foreign_items: int
    sweep: SweepStatus = Field(validation_alias="sweep_status")
    drift: list[str] = Field(description="Paths of fields that changed shape")
    created_at: Time
    started_at: Time | None = Field(validation_alias=_of_execution("started_at"))
    ended_at: Time | None = Field(validation_alias=_of_execution("ended_at"))
    error: str | None = Field(validation_alias=_of_execution("error_text"))


class TaskCounts(Answer):
    """The tasks of one type."""

    task_type: TaskType
    total: int
    waiting: int
    in_progress: int
    completed: int
    failed: int


class FailedTasks(Answer):
    """Failed tasks that failed for the same reason."""

    tasks: int
    code: str | None
    example: str | None


class ExecutionDetail(ExecutionAnswer):
    """An execution with its activity, its expected end and its results."""

    doing: str = Field(examples=["fetching"])
    expected_tasks: int
    expected_tasks_is_estimate: bool = Field(
        description="true while the listing is read: the tasks of its products are not planned yet"
    )
    tasks_in_progress: int
    tasks_per_second: Rounded
    expected_end_at: Time | None = Field(description="null where no progress is expected, and when it has ended")
    tasks: list[TaskCounts]
    changes: dict[str, int] = Field(examples=[{"CREATED": 12, "PRICE": 40}])
    failures: list[FailedTasks]

    @classmethod
    def whole(
        cls, stored: StoredExecution, ahead: Forecast, changes: dict[str, int], failures: Sequence[Mapping[str, Any]]
    ) -> "ExecutionDetail":
        """An execution with everything that is known of it."""
        return cls(
            **dict(ExecutionAnswer.of(stored)),
            doing=ahead.doing,
            expected_tasks=ahead.expected_tasks,
            expected_tasks_is_estimate=ahead.is_estimate,
            tasks_in_progress=ahead.in_progress,
            tasks_per_second=ahead.per_second,
            expected_end_at=ahead.done_at,
            tasks=[TaskCounts.of(standing) for standing in ahead.standings],
            changes=changes,
            failures=[FailedTasks.of(failure) for failure in failures],
        )
