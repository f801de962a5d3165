"""Bookings of this process that are not written to PostgreSQL yet."""

import time
from collections import Counter
from dataclasses import dataclass
from uuid import UUID

from mustit_pipeline.agents.limiter import Slot
from mustit_pipeline.agents.sql.agent_bookings import BookingRecord


@dataclass(slots=True)
class _Entry:
    slot: Slot
    written: bool
    counted: bool = False
    answered: float | None = None
    throttled: bool = False


class Journal:
    """Bookings and answers to be written to PostgreSQL; an entry is kept until it is written."""

    def __init__(self) -> None:
        self._open: dict[UUID, _Entry] = {}
        self._due: dict[UUID, _Entry] = {}
        self._gone: set[UUID] = set()
        self._unwritten: Counter[UUID] = Counter()

    def note_booking(self, slot: Slot, *, written: bool) -> None:
        """An agent was booked; `written` if PostgreSQL itself did it."""
        entry = _Entry(slot, written)
        self._open[slot.booking_id] = entry
        self._due[slot.booking_id] = entry
        if not written:
            self._unwritten[slot.agent_id] += 1

    def note_answer(self, slot: Slot, *, throttled: bool) -> None:
        """The answer to a booking has arrived."""
        entry = self._open.pop(slot.booking_id, None) or _Entry(slot, written=True, counted=True)
        entry.answered, entry.throttled = time.monotonic(), throttled
        self._due[slot.booking_id] = entry

    def note_loss(self, slot: Slot) -> None:
        """No answer to a booking will be known; the booking itself is still written."""
        self._open.pop(slot.booking_id, None)

    def withdraw(self, slot: Slot) -> None:
        """Nothing was sent: forget the booking, and remove it from PostgreSQL if it is written."""
        entry = self._open.get(slot.booking_id)
        if entry is None:
            return
        if entry.written:
            self._gone.add(slot.booking_id)
        self.forget(slot)

    def forget(self, slot: Slot) -> None:
        """A booking that PostgreSQL has removed itself."""
        entry = self._open.pop(slot.booking_id, None)
        self._due.pop(slot.booking_id, None)
        if entry is not None and not entry.written:
            entry.written = True
            self._unwritten[slot.agent_id] -= 1

    def unwritten(self, agent_id: UUID) -> int:
        """The bookings of an agent that would be lost if this process died now."""
        return self._unwritten[agent_id]

    def take(self) -> list[_Entry]:
        """All entries to write; the caller reports with `note_written` or `keep`."""
        due, self._due = list(self._due.values()), {}
        return due

    def gone(self) -> list[UUID]:
        """Bookings that are written and must be removed."""
        return list(self._gone)

    def note_written(self, entries: list[_Entry], counted: list[UUID], removed: list[UUID]) -> None:
        """These entries are written, and these bookings removed."""
        self._gone.difference_update(removed)
        done = set(counted)
        for entry in entries:
            if not entry.written:
                entry.written = True
                self._unwritten[entry.slot.agent_id] -= 1
            if entry.slot.booking_id in done:
                entry.counted = True

    def keep(self, entries: list[_Entry]) -> None:
        """These entries could not be written: keep them for the next try."""
        self._due = {entry.slot.booking_id: entry for entry in entries} | self._due

    @staticmethod
    def records(entries: list[_Entry]) -> list[BookingRecord]:
        """The entries as records with ages instead of times."""
        now = time.monotonic()
        return [
            BookingRecord(
                entry.slot.booking_id,
                entry.slot.agent_id,
                booked_ago=now - entry.slot.booked,
                expires_in=entry.slot.expires - now,
                answered_ago=None if entry.answered is None else now - entry.answered,
                throttled=entry.throttled,
                fresh=not entry.counted,
            )
            for entry in entries
        ]
