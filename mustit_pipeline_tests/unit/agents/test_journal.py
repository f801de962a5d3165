"""What is booked and not written yet is counted exactly, however a booking ends."""

from uuid import uuid4

from mustit_pipeline.agents.journal import Journal
from mustit_pipeline.agents.limiter import Slot

SLOT = Slot(uuid4(), uuid4(), 1, booked=0.0, expires=35.0)


def test_a_booking_without_an_answer_is_written_once_and_then_forgotten() -> None:
    journal = Journal()
    journal.note_booking(SLOT, written=False)
    journal.note_loss(SLOT)
    taken = journal.take()
    assert [(record.answered_ago, record.fresh) for record in journal.records(taken)] == [(None, True)]
    journal.note_written(taken, [SLOT.booking_id], [])
    # Were it still known, this would be its answer.
    journal.withdraw(SLOT)
    assert (journal.take(), journal.unwritten(SLOT.agent_id)) == ([], 0)


def test_a_booking_that_was_removed_is_no_longer_unwritten() -> None:
    journal = Journal()
    journal.note_booking(SLOT, written=False)
    journal.forget(SLOT)
    assert (journal.take(), journal.unwritten(SLOT.agent_id)) == ([], 0)
