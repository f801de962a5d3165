"""Live pages: one stream says that something on the page has moved, and the page fetches itself anew."""

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Iterable
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.sse import EventSourceResponse, ServerSentEvent
from sqlalchemy import Connection

from mustit_pipeline.access.console_sessions import IDLE
from mustit_pipeline.api.live import OnHub, Source, Topic
from mustit_pipeline.console.rendering import query
from mustit_pipeline.console.visits import Visiting
from mustit_pipeline.monitoring.sql import activity
from mustit_pipeline.monitoring.sql.activity import Moving

# A stream that begins anew brings the cookie of a renewed session.
STREAM_SECONDS = 0.6 * IDLE.total_seconds()
MOST_PARTS = 10

router = APIRouter()

Parts = tuple[Moving, ...]


def address(*parts: Moving, seller: str | None = None) -> str:
    """The stream of a page that shows these parts, or this seller."""
    return f"/live{query(parts=','.join(parts), seller=seller)}"


def _read_parts(connection: Connection, keys: Collection[Parts]) -> dict[Parts, tuple[object, ...]]:
    found = activity.marks(connection, {part for key in keys for part in key})
    return {key: tuple(found[part] for part in key) for key in keys}


PARTS = Source(_read_parts)
SELLERS = Source(activity.marks_of_sellers)


@router.get("/live", response_class=EventSourceResponse)
async def live(
    visit: Visiting,
    hub: OnHub,
    parts: Annotated[str, Query(max_length=200)] = "",
    seller: Annotated[str | None, Query(max_length=200)] = None,
) -> AsyncIterator[ServerSentEvent]:
    """An event `changed` whenever one of these parts, or this seller, has changed; the first one at once."""
    topic: Topic[Any, tuple[object, ...]] = (
        Topic(PARTS, _known(parts.split(","))) if seller is None else Topic(SELLERS, seller)
    )
    with hub.subscribe(topic, visit.who) as subscription:
        ends_at = time.monotonic() + STREAM_SECONDS
        try:
            while True:
                await asyncio.wait_for(anext(subscription), ends_at - time.monotonic())
                yield ServerSentEvent(event="changed", raw_data="")
        except (StopAsyncIteration, TimeoutError):
            return


def _known(names: Iterable[str]) -> Parts:
    return tuple(sorted({Moving(name) for name in names if name in set(Moving)}))[:MOST_PARTS]
