"""A hold is decided once."""

from typing import Any
from uuid import UUID

import pytest

from mustit_pipeline.domain.deletion import DeletionHold
from mustit_pipeline.domain.errors import Conflict
from mustit_pipeline.domain.states import DELETION_HOLD, HoldStatus
from mustit_pipeline.domain.values import ExecutionId, SellerId
from mustit_pipeline_tests.unit.domain.builders import LATER, OTHER_ID, T0

TARGETS = {"approve": HoldStatus.APPROVED, "reject": HoldStatus.REJECTED, "close": HoldStatus.CLOSED}


def hold(**changed: Any) -> DeletionHold:
    values: dict[str, Any] = {
        "id": UUID(int=1),
        "seller_id": SellerId("dmont"),
        "execution_id": ExecutionId(OTHER_ID),
        "live_count": 10,
        "item_nos": (1, 2, 3, 4),
        "opened_at": T0,
    }
    return DeletionHold(**(values | changed))


@pytest.mark.parametrize("move", ["approve", "reject"])
@pytest.mark.parametrize("status", HoldStatus)
def test_only_an_open_hold_is_decided_and_a_second_decision_is_a_conflict(move: str, status: HoldStatus) -> None:
    held = hold(status=status)
    decide = {"approve": held.approve, "reject": held.reject}[move]
    if status is HoldStatus.OPEN:
        decide(LATER)
        assert (held.status, held.closed_at) == (TARGETS[move], LATER)
        return

    with pytest.raises(Conflict) as refused:
        decide(LATER)

    assert refused.value.code == "CONFLICT_DELETION_HOLD_DECIDED"
    assert (held.status, held.closed_at) == (status, None)


def test_a_hold_ends_in_three_ways_and_only_from_open() -> None:
    assert {move: DELETION_HOLD.target(move) for move in DELETION_HOLD.table} == TARGETS
    assert all(DELETION_HOLD.sources(move) == {HoldStatus.OPEN} for move in TARGETS)


def test_the_share_is_of_what_was_live() -> None:
    assert hold().share == 40
    assert hold(live_count=0, item_nos=()).share == 0
