"""The first rows of a long list, and whether there are more."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """What a list shows; a query asks for one row more than that to know whether it is all."""

    rows: list[T]
    more: bool


def page(rows: Iterable[T], limit: int) -> Page[T]:
    """At most so many of the rows that a query found."""
    found = list(islice(rows, limit + 1))
    return Page(found[:limit], len(found) > limit)
