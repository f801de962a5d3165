"""Pages by number for short lists, by cursor for long ones."""

import base64
import binascii
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, TypeVar, cast
from uuid import UUID

import orjson
from fastapi import Query

from mustit_pipeline.api.models import Pages
from mustit_pipeline.api.problems import FieldProblem, RequestRefused

T = TypeVar("T")
LONGEST_CURSOR = 1024
LARGEST_NUMBER = 2**63 - 1

PageNumber = Annotated[int, Query(ge=0, le=1_000_000, description="Number of the page, from 0")]
Size = Annotated[int, Query(ge=1, le=100, description="Entries on a page, at most 100")]
Cursor = Annotated[
    str | None, Query(max_length=LONGEST_CURSOR, description="`nextCursor` of the page before; not for reading")
]


def pages(content: list[T], total: int, number: int, size: int) -> Pages[T]:
    """A page by number."""
    return Pages(content=content, page=number, size=size, total_elements=total, total_pages=-(-total // size))


def make_cursor(*values: int | str) -> str:
    """Where the next page begins, for a client to send back as it is."""
    return base64.urlsafe_b64encode(orjson.dumps(values)).decode().rstrip("=")


def read_cursor(text: str, kinds: Sequence[type[int] | type[str]]) -> list[int | str]:
    """The values of a cursor, which must be of these kinds: clients can make up any text."""
    try:
        values: Any = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError):
        raise _unreadable() from None
    found = cast("list[int | str]", values) if isinstance(values, list) else []
    if [type(value) for value in found] != list(kinds) or not all(map(_storable, found)):
        raise _unreadable()
    return found


def cursor_id(text: str) -> UUID:
    """The id of the last entry of the page before, where that alone is the cursor."""
    [value] = read_cursor(text, [str])
    try:
        return UUID(str(value))
    except ValueError:
        raise _unreadable() from None


def make_time_cursor(at: datetime, key: UUID) -> str:
    """The same for a list in order of time, where the id decides between equal times."""
    return make_cursor(at.isoformat(), str(key))


def read_time_cursor(text: str) -> tuple[datetime, UUID]:
    """The time and the id of such a cursor."""
    at, key = map(str, read_cursor(text, (str, str)))
    try:
        moment, found = datetime.fromisoformat(at), UUID(key)
    except ValueError:
        raise _unreadable() from None
    if moment.tzinfo is None:
        raise _unreadable()
    return moment, found


def _storable(value: int | str) -> bool:
    return "\0" not in value if isinstance(value, str) else abs(value) <= LARGEST_NUMBER


def _unreadable() -> RequestRefused:
    return RequestRefused(
        "VALIDATION_CURSOR",
        korean="cursor가 올바르지 않습니다",
        english="The cursor is none that this list has given out",
        errors=[FieldProblem(field="cursor", message="nextCursor of the page before")],
    )
