"""Filters of list commands: a time, an id by its first digits, a type of change."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self
from uuid import UUID
from zoneinfo import ZoneInfo

from mustit_pipeline.domain.errors import ValidationFailed
from mustit_pipeline.domain.states import ChangeType, LifeCycle

SEOUL = ZoneInfo("Asia/Seoul")
SHORTEST_ID = 4

_AGO = re.compile(r"([0-9]{1,6})([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_LIFE_CYCLES = (LifeCycle.CREATED, LifeCycle.DELETED, LifeCycle.RESTORED)


def read_since(text: str, now: datetime) -> datetime:
    """Read `2h` or `3d` ago, a date, or an ISO time; without a zone it is Seoul time."""
    given = text.strip()
    try:
        if ago := _AGO.fullmatch(given):
            return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        moment = datetime.fromisoformat(given)
        return (moment if moment.tzinfo else moment.replace(tzinfo=SEOUL)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValidationFailed(
            "VALIDATION_TIME",
            korean=f"시각은 2h, 3d, 2026-11-16 또는 2026-11-16T09:30 형식이어야 합니다: {text!r}",
            english=f"{text!r} is no time: write 2h, 3d, 2026-11-16 or 2026-11-16T09:30 (Seoul unless it has a zone)",
        ) from None


def read_duration(text: str) -> timedelta:
    """Read `15m`, `24h`, `90d` or `4w`."""
    match = _AGO.fullmatch(text.strip())
    if match is None or int(match[1]) == 0:
        raise ValidationFailed(
            "VALIDATION_DURATION",
            korean=f"기간은 15m, 24h, 90d 또는 4w 형식이어야 합니다: {text!r}",
            english=f"{text!r} is no duration: write 15m, 24h, 90d or 4w",
        )
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


@dataclass(frozen=True, slots=True)
class IdPrefix:
    """The first digits of an id, as tables show it; a whole id is one too."""

    text: str

    def __post_init__(self) -> None:
        digits = self._digits
        if not SHORTEST_ID <= len(digits) <= 32 or re.fullmatch(r"[0-9a-f]+", digits) is None:
            raise ValidationFailed(
                "VALIDATION_ID",
                korean=f"ID는 UUID 또는 그 앞자리({SHORTEST_ID}자 이상)여야 합니다: {self.text!r}",
                english=f"{self.text!r} is no id: give the UUID, or at least its first {SHORTEST_ID} digits",
            )

    @property
    def _digits(self) -> str:
        return self.text.strip().lower().replace("-", "")

    @property
    def first(self) -> UUID:
        """The lowest id with this prefix."""
        return UUID(self._digits.ljust(32, "0"))

    @property
    def last(self) -> UUID:
        """The highest id with this prefix."""
        return UUID(self._digits.ljust(32, "f"))

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class ChangeKind:
    """A type of field change, or a step in a product's life cycle."""

    change_type: ChangeType | None = None
    life_cycle: LifeCycle | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read PRICE, STOCK, … or CREATED, DELETED, RESTORED, in any case."""
        name = text.strip().upper()
        if name in ChangeType.__members__:
            return cls(change_type=ChangeType[name])
        if name in {step.value for step in _LIFE_CYCLES}:
            return cls(life_cycle=LifeCycle[name])
        known = ", ".join([*ChangeType, *_LIFE_CYCLES])
        raise ValidationFailed(
            "VALIDATION_CHANGE_TYPE",
            korean=f"알 수 없는 변경 유형입니다: {text!r} ({known})",
            english=f"{text!r} is no type of change; there are {known}",
        )
