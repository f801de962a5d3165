"""When changes are believed, and how a hold ends."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from mustit_pipeline.domain.change_hold import BeliefRules, ChangeHold, Suspicion
from mustit_pipeline.domain.errors import Conflict
from mustit_pipeline.domain.states import CHANGE_HOLD, ChangeHoldStatus
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline_tests.unit.domain.builders import LATER, T0

RULES = BeliefRules(jump_factor=3, share=0.2, least=20)


@pytest.mark.parametrize(
    ("suspicious", "looked_at", "believed"),
    [(0, 0, True), (19, 19, True), (20, 100, True), (20, 99, False), (21, 100, False), (200, 1000, True)],
)
def test_many_at_once_are_not_believed_and_few_always_are(suspicious: int, looked_at: int, believed: bool) -> None:
    found = Suspicion(jumped=suspicious, emptied=0, suspicious=suspicious, looked_at=looked_at)

    assert found.is_believable(RULES) is believed


def test_the_share_is_a_percentage_and_nothing_of_nothing_is_none() -> None:
    assert Suspicion(3, 1, 3, 12).share == 25.0
    assert Suspicion(0, 0, 0, 0).share == 0.0


@pytest.mark.parametrize("status", ChangeHoldStatus)
def test_only_an_open_hold_can_be_released(status: ChangeHoldStatus) -> None:
    hold = ChangeHold(
        id=UUID(int=1),
        seller_id=SellerId("dmont"),
        suspicion=Suspicion(30, 0, 30, 90),
        opened_at=T0,
        status=status,
    )
    if status in CHANGE_HOLD.sources("release"):
        hold.release(LATER)
        assert (hold.status, hold.closed_at) == (ChangeHoldStatus.RELEASED, LATER)
    else:
        with pytest.raises(Conflict, match="held back no longer"):
            hold.release(datetime.now(UTC))
        assert (hold.status, hold.closed_at) == (status, None)
