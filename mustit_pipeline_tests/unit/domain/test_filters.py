"""Times, ids and kinds of change, as people write them."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from mustit_pipeline.domain.errors import ValidationFailed
from mustit_pipeline.domain.filters import ChangeKind, IdPrefix, read_since
from mustit_pipeline.domain.states import ChangeType, LifeCycle

NOW = datetime(2026, 11, 16, 3, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("90m", datetime(2026, 11, 16, 1, 30, tzinfo=UTC)),
        ("2h", datetime(2026, 11, 16, 1, 0, tzinfo=UTC)),
        ("3d", datetime(2026, 11, 13, 3, 0, tzinfo=UTC)),
        ("1w", datetime(2026, 11, 9, 3, 0, tzinfo=UTC)),
        # A day begins in Seoul, nine hours before it does in UTC.
        ("2026-11-16", datetime(2026, 11, 15, 15, 0, tzinfo=UTC)),
        ("2026-11-16T09:30", datetime(2026, 11, 16, 0, 30, tzinfo=UTC)),
        (" 2026-11-16 09:30:15 ", datetime(2026, 11, 16, 0, 30, 15, tzinfo=UTC)),
        ("2026-11-16T09:30Z", datetime(2026, 11, 16, 9, 30, tzinfo=UTC)),
        ("2026-11-16T09:30+01:00", datetime(2026, 11, 16, 8, 30, tzinfo=UTC)),
    ],
)
def test_a_time_is_relative_or_iso_and_means_seoul_unless_it_has_a_zone(text: str, moment: datetime) -> None:
    assert read_since(text, NOW) == moment


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2x", "-2h", "2.5h", "16.11.2026", "2026-13-01", "999999w", "0001-01-01"]
)
def test_what_is_no_time_is_refused_with_the_forms_that_are(text: str) -> None:
    with pytest.raises(ValidationFailed) as refused:
        read_since(text, NOW)

    assert refused.value.code == "VALIDATION_TIME"
    assert "2h" in refused.value.english
    assert "2h" in refused.value.korean


def test_an_id_is_found_by_its_first_digits_in_any_case_and_with_or_without_hyphens() -> None:
    whole = UUID("0b6f13c2-5d1e-4a7b-9c3d-0123456789ab")

    for text in ("0b6f", "0B6F13C2", "0b6f13c2-5d1e", str(whole)):
        assert IdPrefix(text).first <= whole <= IdPrefix(text).last
    assert IdPrefix(str(whole)).first == IdPrefix(str(whole)).last == whole
    assert not IdPrefix("0b7f").first <= whole <= IdPrefix("0b7f").last


@pytest.mark.parametrize("text", ["", "0b6", "latest", "0b6g13c2", "0" * 33, "한글한글"])
def test_what_cannot_begin_an_id_is_refused(text: str) -> None:
    with pytest.raises(ValidationFailed) as refused:
        IdPrefix(text)

    assert refused.value.code == "VALIDATION_ID"


def test_a_kind_of_change_is_a_type_or_a_step_of_a_life_in_any_case() -> None:
    assert ChangeKind.parse("price") == ChangeKind(change_type=ChangeType.PRICE)
    assert ChangeKind.parse(" PRODUCT_INFO ") == ChangeKind(change_type=ChangeType.PRODUCT_INFO)
    assert ChangeKind.parse("Restored") == ChangeKind(life_cycle=LifeCycle.RESTORED)


@pytest.mark.parametrize("text", ["", "colour", "UPDATED"])
def test_an_unknown_kind_is_refused_with_those_that_there_are(text: str) -> None:
    with pytest.raises(ValidationFailed) as refused:
        ChangeKind.parse(text)

    assert refused.value.code == "VALIDATION_CHANGE_TYPE"
    assert "PRICE, STOCK" in refused.value.english
