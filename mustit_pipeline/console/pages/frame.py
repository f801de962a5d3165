"""What the pages share: the frame with what waits for a person, pages of lists, and filters as they were typed."""

from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Any, TypeVar

from fastapi import Response
from sqlalchemy import Connection

from mustit_pipeline.console.languages import marked
from mustit_pipeline.console.rendering import query
from mustit_pipeline.console.visits import Visit
from mustit_pipeline.domain.errors import ValidationFailed
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.monitoring import attention

SIZE = 25
# Things that one form changes, each in a transaction of its own.
MOST_AT_ONCE = 500

S = TypeVar("S", bound=StrEnum)
PREVIOUS = marked("Previous page")
FIRST = marked("First page")


@dataclass(frozen=True, slots=True)
class Pager:
    """The ways to the pages beside this one."""

    previous: str | None = None
    next: str | None = None
    text: str = ""
    previous_text: str = ""


def framed(
    visit: Visit, connection: Connection, template: str, http_status: int = HTTPStatus.OK, **values: Any
) -> Response:
    """A page inside the frame."""
    return visit.page(template, http_status, attention=attention.look(connection), **values)


def by_number(visit: Visit, path: str, page: int, total: int, **filters: object) -> Pager:
    """Pages of a list that is counted."""
    last = max(0, -(-total // SIZE) - 1)
    return Pager(
        previous=path + query(**filters, page=page - 1 or None) if page > 0 else None,
        next=path + query(**filters, page=page + 1) if page < last else None,
        text=visit.say("%(page)s of %(pages)s", page=f"{page + 1:,}", pages=f"{last + 1:,}"),
        previous_text=visit.say(PREVIOUS),
    )


def by_cursor(visit: Visit, path: str, cursor: str | None, following: str | None, **filters: object) -> Pager:
    """Pages of a list that may be very long: on, or to its begin."""
    return Pager(
        previous=path + query(**filters) if cursor else None,
        next=path + query(**filters, cursor=following) if following else None,
        previous_text=visit.say(FIRST),
    )


def chosen(kind: type[S], value: str) -> S | None:
    """A state that was chosen in a filter; nothing where it is none."""
    return kind(value) if value in set(kind) else None


def unreadable_choice() -> ValidationFailed:
    """The refusal of a value that a list of choices does not have."""
    return ValidationFailed(
        "VALIDATION_CHOICE", korean="목록에 있는 값을 선택하세요", english="Choose one of the values of the list"
    )


def seller_or_none(value: str) -> SellerId | None:
    """A seller that was typed into a filter."""
    try:
        return SellerId(value) if value.strip() else None
    except ValidationFailed:
        return None
