"""Which transport carries crawl tasks, by the settings."""

from collections.abc import Sequence

from mustit_pipeline.crawling.queue import ExecutionQueue, SharedQueue, TaskQueue
from mustit_pipeline.crawling.sql.executions import StoredExecution
from mustit_pipeline.domain.states import TaskType
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.settings import Settings


def shared_queue(database: Database, settings: Settings) -> TaskQueue:
    """The tasks of every running execution."""
    if settings.task_transport == "sqs":
        from mustit_pipeline.crawling.sqs_queue import SqsQueue

        return SqsQueue(database, settings)
    return SharedQueue(database, settings)


def execution_queue(
    database: Database, settings: Settings, stored: StoredExecution, types: Sequence[TaskType]
) -> TaskQueue:
    """The tasks of one execution, until those of these types have ended."""
    if settings.task_transport == "sqs":
        from mustit_pipeline.crawling.sqs_queue import SqsExecutionQueue

        return SqsExecutionQueue(database, settings, stored, types)
    return ExecutionQueue(database, settings, stored, types)
