"""Live events: one poller of the process reads, once a second, whatever its streams watch.

A stream costs no thread and no connection: it waits on the event loop for the poller, which asks for all of them with
one statement for each kind of thing. A stream that is slower than the changes gets the newest state and misses those
between; it is never waited for. Nothing is read while nothing is watched.
"""

import asyncio
import signal
import threading
from collections.abc import Callable, Collection, Generator, Hashable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import FrameType
from typing import Annotated, Any, Generic, Self, TypeVar
from uuid import UUID

import structlog
from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import Depends, Request
from sqlalchemy import Connection

from mustit_pipeline.access import tokens
from mustit_pipeline.access.tokens import Identity
from mustit_pipeline.domain.errors import TooMany
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database, is_outage

INTERVAL_SECONDS = 1.0
# Fewer than the requests that a server takes at once: streams never leave no room for the others.
MOST_STREAMS = 4_000
RETRY_SECONDS = 5
STOPPED_BY = (signal.SIGINT, signal.SIGTERM)

K = TypeVar("K", bound=Hashable)
S = TypeVar("S")

log = structlog.get_logger(__name__)


class EndReason(StrEnum):
    """Why a stream ends."""

    FINISHED = "FINISHED"
    TOKEN_ENDED = "TOKEN_ENDED"
    SERVER_STOPS = "SERVER_STOPS"


def _never(_: object) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Source(Generic[K, S]):
    """A kind of thing that can be watched: how many of them are read at once, and whether a state is the last one.

    States are compared with `==`. A thing that `read` leaves out keeps the state that it had.
    """

    read: Callable[[Connection, Collection[K]], Mapping[K, S]]
    is_final: Callable[[S], bool] = _never


@dataclass(frozen=True, slots=True)
class Topic(Generic[K, S]):
    """One thing that is watched, such as an execution, or the counters of all sellers under a key of your choice."""

    source: Source[K, S]
    key: K


class Subscription(Generic[S]):
    """The states of one topic as they change, for one stream; entered while it is watched."""

    def __init__(self, hub: "Hub", topic: Topic[Any, S], identity: Identity, first: S | None) -> None:
        self._hub = hub
        self.topic = topic
        self.identity = identity
        self.end_reason: EndReason | None = None
        self._state: S | None = None
        self._unseen = False
        self._changed = asyncio.Event()
        if first is not None:
            self.offer(first)

    def __enter__(self) -> Self:
        self._hub.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._hub.remove(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> S:
        while not self._unseen and self.end_reason is None:
            self._changed.clear()
            await self._changed.wait()
        if not self._unseen:
            raise StopAsyncIteration
        self._unseen = False
        assert self._state is not None
        return self._state

    def offer(self, state: S) -> None:
        """A state that has been read; it replaces one that the stream has not taken yet."""
        if self.end_reason is not None or state is self._state or state == self._state:
            return
        self._state, self._unseen = state, True
        self._changed.set()
        if self.topic.source.is_final(state):
            self.end(EndReason.FINISHED)

    def end(self, reason: EndReason) -> None:
        """End the stream, after the state that it has not taken yet."""
        if self.end_reason is None:
            self.end_reason = reason
            self._changed.set()


@dataclass(slots=True)
class Hub:
    """All streams of one server process. Its methods belong to the event loop."""

    database: Database
    _watched: dict[Topic[Any, Any], set[Subscription[Any]]] = field(
        default_factory=dict[Topic[Any, Any], set[Subscription[Any]]]
    )
    _streams: int = 0
    _poller: asyncio.Task[None] | None = None
    _closed: bool = False

    def subscribe(self, topic: Topic[K, S], identity: Identity, first: S | None = None) -> Subscription[S]:
        """Watch a topic for as long as a token is valid, from the state `first` on where the caller knows it."""
        return Subscription(self, topic, identity, first)

    @property
    def streams(self) -> int:
        """How many streams are open."""
        return self._streams

    def refuse_when_full(self) -> None:
        """For a route to ask before it begins its answer."""
        if self._streams >= MOST_STREAMS:
            raise TooMany(
                "TOO_MANY_STREAMS",
                korean="열린 이벤트 스트림이 너무 많습니다. 잠시 후 다시 시도하세요",
                english="Too many event streams are open: try again soon",
                retry_after=RETRY_SECONDS,
            )

    def add(self, subscription: Subscription[Any]) -> None:
        """Begin to watch."""
        if self._closed:
            subscription.end(EndReason.SERVER_STOPS)
        self._watched.setdefault(subscription.topic, set()).add(subscription)
        self._streams += 1
        if self._poller is None:
            self._poller = asyncio.get_running_loop().create_task(self._poll())

    def remove(self, subscription: Subscription[Any]) -> None:
        """Watch no longer."""
        watching = self._watched[subscription.topic]
        watching.remove(subscription)
        self._streams -= 1
        if not watching:
            del self._watched[subscription.topic]

    def close(self) -> None:
        """End all streams, and those that are still to come."""
        self._closed = True
        for subscription in self._subscriptions():
            subscription.end(EndReason.SERVER_STOPS)

    @contextmanager
    def closed_by_signals(self) -> Generator[None]:
        """Close when the server is asked to stop: it waits for all streams before it tells the application."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop, before = asyncio.get_running_loop(), {number: signal.getsignal(number) for number in STOPPED_BY}

        def stop(number: int, frame: FrameType | None) -> None:
            loop.call_soon_threadsafe(self.close)
            following = before[signal.Signals(number)]
            if callable(following):
                following(number, frame)

        # Where no server has set a handler, the signal keeps its usual effect.
        ours = [number for number, handler in before.items() if callable(handler)]
        for number in ours:
            signal.signal(number, stop)
        try:
            yield
        finally:
            for number in ours:
                signal.signal(number, before[number])

    def _subscriptions(self) -> list[Subscription[Any]]:
        return [subscription for watching in self._watched.values() for subscription in watching]

    async def _poll(self) -> None:
        # A thread of its own: requests that wait for PostgreSQL may have taken all the others.
        limiter = CapacityLimiter(1)
        try:
            while self._watched:
                await asyncio.sleep(INTERVAL_SECONDS)
                self._end_expired(utc_now())
                topics, identities = list(self._watched), {one.identity for one in self._subscriptions()}
                if topics:
                    try:
                        seen = await run_sync(self._read, topics, identities, limiter=limiter, abandon_on_cancel=True)
                    except Exception as error:
                        # Streams stay open, and go on when the database is back.
                        log.warning("live events not read", error=type(error).__name__, streams=self.streams)
                    else:
                        self._publish(seen)
        finally:
            self._poller = None

    def _end_expired(self, now: datetime) -> None:
        for subscription in self._subscriptions():
            if subscription.identity.expires_at + tokens.LEEWAY <= now:
                subscription.end(EndReason.TOKEN_ENDED)

    def _read(self, topics: Collection[Topic[Any, Any]], identities: Collection[Identity]) -> "_Seen":
        """Runs in a thread: one statement for each source, and one for the tokens."""
        keys: dict[Source[Any, Any], list[Any]] = {}
        for topic in topics:
            keys.setdefault(topic.source, []).append(topic.key)
        found = {source: self._states(source, wanted) for source, wanted in keys.items()}
        # Last: a state that was read after a token had ended is never shown to it.
        with self.database.reading() as connection:
            return _Seen(found, tokens.ended(connection, identities))

    def _states(self, source: Source[Any, Any], keys: Collection[Any]) -> Mapping[Any, Any]:
        """The states of one source; where it fails, its streams wait and the others go on."""
        try:
            with self.database.reading() as connection:
                return source.read(connection, keys)
        except Exception as error:
            if is_outage(error):
                raise
            log.exception("live events not read")
            return {}

    def _publish(self, seen: "_Seen") -> None:
        for subscription in self._subscriptions():
            topic = subscription.topic
            if subscription.identity.jti in seen.ended:
                subscription.end(EndReason.TOKEN_ENDED)
            elif (state := seen.found.get(topic.source, {}).get(topic.key)) is not None:
                subscription.offer(state)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What one look at the database came to: the states by source and key, and the ended tokens."""

    found: Mapping[Source[Any, Any], Mapping[Any, Any]]
    ended: set[UUID]


def hub_of(request: Request) -> Hub:
    """The hub of the application."""
    return request.app.state.hub


OnHub = Annotated[Hub, Depends(hub_of)]
