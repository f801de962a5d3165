"""Executions: their state, live progress, pause, resume and cancel."""

from collections.abc import AsyncIterator, Collection
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import Field
from sqlalchemy import Connection

from mustit_pipeline.access.tokens import Identity
from mustit_pipeline.api.answers.executions import ExecutionAnswer, ExecutionDetail
from mustit_pipeline.api.context import Asking
from mustit_pipeline.api.filters import SellerInQuery, require_known
from mustit_pipeline.api.live import EndReason, OnHub, Source, Topic
from mustit_pipeline.api.models import Answer, CursorPage
from mustit_pipeline.api.paging import Cursor, Size, cursor_id, make_cursor
from mustit_pipeline.api.paths import IdInPath
from mustit_pipeline.api.problems import MEDIA_TYPE, Problem
from mustit_pipeline.crawling import forecast, steering
from mustit_pipeline.crawling.sql import executions
from mustit_pipeline.crawling.sql.executions import StoredExecution
from mustit_pipeline.domain.execution import OPEN_STATES
from mustit_pipeline.domain.filters import IdPrefix
from mustit_pipeline.domain.states import ExecutionStatus
from mustit_pipeline.domain.values import ExecutionId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database

router = APIRouter(prefix="/executions", tags=["executions"])


class StreamEnd(Answer):
    """The last event of a stream."""

    execution_id: str
    reason: EndReason
    status: ExecutionStatus = Field(description="The last status that was seen")


@router.get("")
def list_executions(
    caller: Asking,
    seller_id: SellerInQuery,
    status: ExecutionStatus | None = None,
    cursor: Cursor = None,
    size: Size = 20,
) -> CursorPage[ExecutionAnswer]:
    """Executions, newest first."""
    before = None if cursor is None else cursor_id(cursor)
    with caller.database.reading() as connection:
        require_known(connection, seller_id)
        found = executions.newest(connection, seller_id, size, status=status, before=before)
    following = make_cursor(str(found.rows[-1].id)) if found.more else None
    content = [ExecutionAnswer.of(row) for row in found.rows]
    return CursorPage(content=content, size=size, next_cursor=following, total_elements=None)


@router.get("/{id}")
def show_execution(wanted: IdInPath, caller: Asking) -> ExecutionDetail:
    """What one execution is doing, when it should end, and why its tasks failed."""
    with caller.database.reading() as connection:
        stored = executions.find(connection, wanted)
        changes = executions.changes_by_type(connection, stored.id.value)
        failures = executions.failures_by_reason(connection, stored)
        ahead = forecast.look(connection, caller.settings, stored, utc_now())
    return ExecutionDetail.whole(stored, ahead, changes, failures)


@router.post("/{id}/pause")
def pause_execution(wanted: IdInPath, caller: Asking) -> ExecutionAnswer:
    """Lease no further task of a running execution; requests in flight end normally."""
    found = _find(caller.database, wanted)
    return ExecutionAnswer.of(steering.pause(caller.audited("execution.pause", steering.target(found)), found))


@router.post("/{id}/resume")
def resume_execution(wanted: IdInPath, caller: Asking) -> ExecutionAnswer:
    """Continue a paused or failed execution with its stored tasks."""
    found = _find(caller.database, wanted)
    return ExecutionAnswer.of(steering.resume(caller.audited("execution.resume", steering.target(found)), found))


@router.post("/{id}/cancel")
def cancel_execution(wanted: IdInPath, caller: Asking) -> ExecutionAnswer:
    """End an execution and its open tasks for good."""
    found = _find(caller.database, wanted)
    return ExecutionAnswer.of(
        steering.cancel(caller.audited("execution.cancel", steering.target(found)), found, utc_now())
    )


def _watched(wanted: IdInPath, caller: Asking, hub: OnHub) -> StoredExecution:
    hub.refuse_when_full()
    with caller.database.reading() as connection:
        return executions.find(connection, wanted)


_STREAM_EXAMPLE = (
    'event: progress\ndata: {"executionId":"0b6f13c2-…","status":"RUNNING","completedTasks":871,…}\n\n'
    'event: end\ndata: {"executionId":"0b6f13c2-…","reason":"FINISHED","status":"COMPLETED"}\n\n'
)

_TOO_MANY = {"model": Problem, "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}


@router.get(
    "/{id}/events",
    response_class=EventSourceResponse,
    responses={200: {"content": {"text/event-stream": {"example": _STREAM_EXAMPLE}}}, 429: _TOO_MANY},
)
async def watch_execution(
    stored: Annotated[StoredExecution, Depends(_watched)], caller: Asking, hub: OnHub
) -> AsyncIterator[ServerSentEvent]:
    """Server-sent events: `progress` with the execution whenever it has changed, and `end` as the last one.

    `end` says why: the execution has ended (`FINISHED`), the access token has (`TOKEN_ENDED`), or the server stops
    (`SERVER_STOPS`): after that, connect again.
    """
    assert isinstance(caller.identity, Identity)
    state = ExecutionAnswer.of(stored)
    topic = Topic(EXECUTIONS, stored.id.value)
    with hub.subscribe(topic, caller.identity, state) as subscription:
        async for state in subscription:
            yield ServerSentEvent(event="progress", raw_data=state.model_dump_json(by_alias=True))
        assert subscription.end_reason is not None
        end = StreamEnd(execution_id=state.execution_id, reason=subscription.end_reason, status=state.status)
        yield ServerSentEvent(event="end", raw_data=end.model_dump_json(by_alias=True))


def _read(connection: Connection, ids: Collection[UUID]) -> dict[UUID, ExecutionAnswer]:
    return {stored.id.value: ExecutionAnswer.of(stored) for stored in executions.find_all(connection, ids)}


def _has_ended(state: ExecutionAnswer) -> bool:
    return state.status not in OPEN_STATES


EXECUTIONS = Source(_read, _has_ended)


def _find(database: Database, wanted: IdPrefix) -> ExecutionId:
    with database.reading() as connection:
        return executions.find(connection, wanted).id
