"""`mustit changes`: what changed on the marketplace."""

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from mustit_pipeline.api.answers.changes import ChangeSetAnswer
from mustit_pipeline.catalog.sql import history
from mustit_pipeline.catalog.sql.history import ChangeFilter, ChangeSet
from mustit_pipeline.cli.list_options import (
    STATUS_STYLES,
    Limit,
    Seller,
    Since,
    cut,
    known_seller,
    make_table,
    minute,
    show_page,
    since_when,
)
from mustit_pipeline.cli.output import Json, local
from mustit_pipeline.cli.runtime import runtime
from mustit_pipeline.cli.values import change_set_cell
from mustit_pipeline.domain.filters import ChangeKind
from mustit_pipeline.domain.states import LifeCycle
from mustit_pipeline.foundation.clock import utc_now

Type = Annotated[
    str | None,
    typer.Option(
        "--type",
        metavar="TYPE",
        help="PRICE, STOCK, OPTION, IMAGE, DESCRIPTION, PRODUCT_INFO, CREATED, DELETED or RESTORED.",
    ),
]


def changes(
    seller: Seller = None, since: Since = None, kind: Type = None, limit: Limit = 50, as_json: Json = False
) -> None:
    """List what changed, newest first: one line per version of a product.

    Example: `mustit changes --seller dmont --since 3d --type PRICE`
    """
    after = since_when(since, utc_now())
    parsed = None if kind is None else ChangeKind.parse(kind)
    with runtime() as ground, ground.database.reading() as connection:
        wanted = ChangeFilter(known_seller(connection, seller), since=after, kind=parsed)
        found = history.changes(connection, wanted, limit)
    what = "Nothing changed" if kind is None else f"No change of type {kind.upper()}"
    whose = "" if seller is None else f" at {seller}"
    when = " yet: changes are noticed by `mustit crawl`." if after is None else f" since {local(after)}."
    show_page(found, as_json=as_json, document=ChangeSetAnswer.document_of, table=_table, empty=what + whose + when)


def types_text(found: ChangeSet) -> Text:
    """The types of a change set, or the step of the product's life that it is."""
    if found.life_cycle is LifeCycle.UPDATED:
        return Text("\n".join(found.change_types))
    return Text(found.life_cycle, style=STATUS_STYLES[found.life_cycle])


def _table(found: list[ChangeSet]) -> Table:
    return make_table(
        ["detected", "item", "v", "type"],
        ["seller", "what"],
        [
            (
                minute(one.detected_at),
                one.item_no,
                one.version,
                types_text(one),
                cut(one.seller_id),
                change_set_cell(one),
            )
            for one in found
        ],
    )
