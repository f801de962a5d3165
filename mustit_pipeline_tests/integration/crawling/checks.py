"""What holds for every crawl, however it went."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import text

from mustit_pipeline.crawling.sql import executions
from mustit_pipeline.domain.values import ExecutionId
from mustit_pipeline.foundation.database import Database

# What a task fails with whose body is kept, because another parser may read it.
REFUSED = ("EXTERNAL_MALFORMED_BODY", "EXTERNAL_BLOCKED_DRIFT")


@dataclass(frozen=True)
class TaskRow:
    """A task as it is stored."""

    status: str
    retry_count: int
    release_count: int
    error_code: str | None
    error_text: str | None
    bodies: int


def task_rows(database: Database, execution_id: ExecutionId) -> dict[str, TaskRow]:
    """Every task of an execution by its key, with how many bodies are stored for it."""
    query = text("""
        SELECT task_key, status, retry_count, release_count, error_code, error_text,
               (SELECT count(*) FROM product_raw_data r WHERE r.task_id = t.task_id) AS bodies
        FROM crawler_tasks t WHERE execution_id = :id
    """)
    with database.reading() as connection:
        rows = connection.execute(query, {"id": execution_id.value})
        return {row[0]: TaskRow(*row[1:]) for row in rows}


def check_outcomes(database: Database, execution_id: ExecutionId, *, ended: bool = True) -> dict[str, TaskRow]:
    """Outcomes add up to planned tasks; a completed task has exactly its body, a refused one at most that."""
    rows = task_rows(database, execution_id)
    with database.reading() as connection:
        counted = executions.get(connection, execution_id).execution
    states = [row.status for row in rows.values()]
    assert counted.total_tasks == len(rows)
    assert counted.completed_tasks == states.count("COMPLETED")
    assert counted.failed_tasks == states.count("FAILED")
    if ended:
        assert counted.remaining == 0
    for key, row in rows.items():
        refused = row.status == "FAILED" and row.error_code in REFUSED and row.bodies == 1
        assert refused or row.bodies == (row.status == "COMPLETED"), key
        assert (row.error_code is not None) == (row.status == "FAILED"), key
    return rows


def number(database: Database, query: str, **values: Any) -> int:
    """One number from the database; 0 where there is none."""
    with database.reading() as connection:
        return connection.execute(text(query), values).scalar() or 0
