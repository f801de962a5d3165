"""What an audited change is about: the room of a thing names and reads it, the doors write down who changed it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

State = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Target:
    """A thing by its name in the audit log, and how it is read before and after; changes of one name wait in line."""

    name: str
    look: Callable[[Connection], State | None] | None = None
