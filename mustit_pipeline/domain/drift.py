"""Schema drift: how the marketplace's bodies differ from what they were, field by field."""

from dataclasses import dataclass
from enum import StrEnum


class DriftKind(StrEnum):
    """What happened to a field."""

    NEW = "NEW"
    MISSING = "MISSING"
    RETYPED = "RETYPED"


@dataclass(frozen=True, slots=True)
class Deviation:
    """One field of one body that is not as it was; `sample` is short and safe to show."""

    path: str
    kind: DriftKind
    expected: str
    observed: str
    sample: str
