"""Fault attribution: whether a failed delivery is charged to its row, to the product server or to our credential."""

from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple
from uuid import UUID

from mustit_pipeline.delivery.product_server import Answer, Verdict
from mustit_pipeline.delivery.sql.breakers import Breaker
from mustit_pipeline.outbox.sql.outbox import ClaimedEvent

# Five tries span about seven minutes: 10 s, 30 s, 90 s, 270 s.
BACKOFF_FACTOR = 3.0
JITTER = 0.2


class Ended(NamedTuple):
    """A row that was under way, its answer, and whether another row was answered well meanwhile."""

    event: ClaimedEvent
    answer: Answer
    accompanied: bool = False

    @property
    def row_id(self) -> UUID:
        """The row's id."""
        return self.event.row_id


class Charge(Enum):
    """Who a failure is charged to."""

    ROW = auto()
    SERVER = auto()
    CREDENTIAL = auto()
    UNCHARGED = auto()


def charge(ended: Sequence[Ended], known: Breaker, trial: UUID | None) -> list[Charge]:
    """Charge each answer, in the order in which they came.

    An answer that may be about the server or our credential is the row's own where another row is answered well after
    it. At the end of the sequence it is so only where the row fails alone: others were answered well while it was under
    way, or since it began to fail, and no other row fails since. A trial of the breaker asks for all, and its row is
    not charged.
    """
    last_well = max((place for place, one in enumerate(ended) if one.answer.is_well), default=-1)
    failing = {one.row_id for one in ended[last_well + 1 :] if one.answer.is_doubtful}
    if last_well < 0:
        failing |= known.failed_rows
    return [
        Charge.ROW
        if one.answer.is_well
        else _charge(one, known, followed=place < last_well, failing=failing, is_trial=one.row_id == trial)
        for place, one in enumerate(ended)
    ]


def _charge(one: Ended, known: Breaker, *, followed: bool, failing: set[UUID], is_trial: bool) -> Charge:
    answer = one.answer
    if answer.verdict is Verdict.RETURNED:
        return Charge.UNCHARGED
    if not answer.is_doubtful:
        # A trial that hangs has not shown that the server is back.
        hangs = answer.sent and answer.verdict is Verdict.RETRY and answer.status is None
        return Charge.SERVER if is_trial and hangs else Charge.ROW
    other = Charge.CREDENTIAL if answer.verdict is Verdict.UNAUTHORIZED else Charge.SERVER
    # Nothing of the row has reached the server: it cannot be the reason.
    if is_trial or answer.verdict is Verdict.UNREACHABLE:
        return other
    alone = failing <= {one.row_id}
    return Charge.ROW if followed or (alone and _others_are_served(one, known)) else other


def _others_are_served(one: Ended, known: Breaker) -> bool:
    if one.accompanied:
        return True
    began = one.event.troubled_since
    return began is not None and known.answered_at is not None and known.answered_at > began


def pause_seconds(attempt: int, base: float, longest: float, jitter: float) -> float:
    """The pause after a row's failed try 1, 2, …; jitter in [0, 1) spreads it by a fifth either way."""
    # Beyond this power the longest pause has been reached, and a float would overflow.
    whole = min(longest, base * BACKOFF_FACTOR ** min(attempt - 1, 40))
    return whole * (1 - JITTER + 2 * JITTER * jitter)
