"""The list of what is held back, deletions or changes: open holds first, by state and seller."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from fastapi import Response

from mustit_pipeline.console import live
from mustit_pipeline.console.pages.frame import SIZE, by_number, chosen, framed, seller_or_none
from mustit_pipeline.console.visits import Visit
from mustit_pipeline.foundation.paging import Page
from mustit_pipeline.monitoring.sql.activity import Moving

S = TypeVar("S", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class HoldList(Generic[S]):
    """One of the two lists: its address and template, the state in which a hold waits, and how holds are read."""

    address: str
    template: str
    waits: S
    newest: Callable[..., Page[Any]]
    count: Callable[..., int]
    actions: Mapping[str, str]

    def page(self, visit: Visit, status: str, seller: str, page: int) -> Response:
        """A page of the list."""
        wanted, of = chosen(type(self.waits), status), seller_or_none(seller)
        with visit.database.reading() as connection:
            found = self.newest(connection, status=wanted, seller_id=of, first=page * SIZE, limit=SIZE)
            total = self.count(connection, status=wanted, seller_id=of)
            return framed(
                visit,
                connection,
                self.template,
                events=live.address(Moving.HOLDS),
                found=found.rows,
                status=wanted,
                statuses=list(type(self.waits)),
                seller=seller,
                open_holds=self.count(connection, status=self.waits, seller_id=of),
                actions=[(action, visit.say(text)) for action, text in self.actions.items()],
                pager=by_number(visit, self.address, page, total, status=wanted, seller=seller),
            )
