"""The first rows of a long list, and whether there are more."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

T = TypeVar("T")
K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list; the query asks for one row more, to know whether there are more."""

    rows: list[T]
    more: bool


def page(rows: Iterable[T], limit: int) -> Page[T]:
    """The first `limit` rows of a query."""
    found = list(islice(rows, limit + 1))
    return Page(found[:limit], len(found) > limit)


@dataclass(frozen=True, slots=True)
class Stretch(Generic[T, K]):
    """The next rows of a list that is searched a limited way at a time, and the key behind which the search goes on."""

    rows: list[T]
    behind: K | None
