"""The first rows of a long list, and whether there are more."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list; the query asks for one row more, to know whether there are more."""

    rows: list[T]
    more: bool


def page(rows: Iterable[T], limit: int) -> Page[T]:
    """The first `limit` rows of a query."""
    found = list(islice(rows, limit + 1))
    return Page(found[:limit], len(found) > limit)
