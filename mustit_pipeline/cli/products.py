"""`mustit product`: any version of a product, and what changed in between."""

from typing import Annotated, Any

import typer
from rich.table import Table

from mustit_pipeline.api.answers.changes import ChangeSetAnswer
from mustit_pipeline.api.answers.products import DeliveryAnswer, ProductAnswer, VersionHead
from mustit_pipeline.catalog.history import compare, find_product, find_version
from mustit_pipeline.catalog.sql import history
from mustit_pipeline.catalog.sql.history import Delivery, Version
from mustit_pipeline.cli.budget import Boost
from mustit_pipeline.cli.changes import types_text
from mustit_pipeline.cli.comparison import print_comparison
from mustit_pipeline.cli.list_options import LARGEST_NUMBER, Limit, make_table, minute, show_page
from mustit_pipeline.cli.output import Json, out, print_json, print_outcome
from mustit_pipeline.cli.product_page import print_product
from mustit_pipeline.cli.runtime import runtime
from mustit_pipeline.cli.values import change_set_cell
from mustit_pipeline.crawling.sql import recrawl_terms
from mustit_pipeline.domain.states import OutboxStatus
from mustit_pipeline.domain.values import ItemNo, SellerId

app = typer.Typer(help="Products: any version of them, and what changed in between.", no_args_is_help=True)

Item = Annotated[int, typer.Argument(metavar="ITEM_NO", help="The marketplace's number of the product.")]
Whose = Annotated[
    str | None,
    typer.Option("--seller", metavar="ID", help="The product's seller; needed if several sellers have the number."),
]


@app.command("show", epilog="Example: `mustit product show 118005032 --version 2`")
def show(
    item_no: Item,
    number: Annotated[
        int | None,
        typer.Option("--version", metavar="N", min=0, max=LARGEST_NUMBER, help="The newest unless given."),
    ] = None,
    seller: Whose = None,
    as_json: Json = False,
) -> None:
    """Show a product in its newest version, or in another one."""
    with runtime() as ground, ground.database.reading() as connection:
        product = find_product(connection, ItemNo(item_no), _seller(seller))
        wanted = number if number is not None or not product.version else product.version
        version = None if wanted is None else find_version(connection, product, wanted)
    if as_json:
        print_json(ProductAnswer.whole(product, version).document())
    else:
        print_product(product, version)


@app.command("history", epilog="Example: `mustit product history 118005032`")
def show_history(item_no: Item, seller: Whose = None, limit: Limit = 50, as_json: Json = False) -> None:
    """List a product's versions, newest first, with what changed and whether the product server has it."""
    with runtime() as ground, ground.database.reading() as connection:
        product = find_product(connection, ItemNo(item_no), _seller(seller))
        found = history.versions(connection, product.seller_id, product.item_no, limit=limit)
    show_page(
        found,
        as_json=as_json,
        document=_version_document,
        table=_table,
        empty=f"{item_no} of {product.seller_id} has no version yet: it is not complete. See `mustit product show`.",
    )


@app.command("diff", epilog="Example: `mustit product diff 118005032 1 3`")
def show_diff(
    item_no: Item,
    old: Annotated[int, typer.Argument(metavar="A", min=0, max=LARGEST_NUMBER, help="The version to start from.")],
    new: Annotated[int, typer.Argument(metavar="B", min=0, max=LARGEST_NUMBER, help="The version to compare it with.")],
    seller: Whose = None,
    *,
    full: Annotated[bool, typer.Option("--full", help="Long texts in full.")] = False,
    as_json: Json = False,
) -> None:
    """Compare two versions of a product, field by field."""
    with runtime() as ground, ground.database.reading() as connection:
        product = find_product(connection, ItemNo(item_no), _seller(seller))
        comparison = compare(connection, product, old, new)
    if not as_json:
        print_comparison(out, comparison, full=full)
        return
    print_json(
        {
            "sellerId": product.seller_id,
            "itemNo": product.item_no,
            "from": VersionHead.document_of(comparison.old.change_set),
            "to": VersionHead.document_of(comparison.new.change_set),
            "changes": [change.as_json() for change in comparison.changes],
        }
    )


@app.command("boost", epilog="Example: `mustit product boost 118005032 10`")
def boost(item_no: Item, factor: Boost, seller: Whose = None, as_json: Json = False) -> None:
    """Let the recrawl policy count a product so many times as much; 1 is usual."""
    with runtime() as ground, ground.database.transaction() as connection:
        product = find_product(connection, ItemNo(item_no), _seller(seller))
        recrawl_terms.boost_product(connection, product.seller_id, product.item_no, factor)
    print_outcome(
        {"sellerId": product.seller_id, "itemNo": product.item_no, "boost": factor},
        f"{product.item_no} of {product.seller_id} counts {factor:g} times as much.",
        as_json=as_json,
    )


def _seller(given: str | None) -> SellerId | None:
    return None if given is None else SellerId(given)


def _table(found: list[Version]) -> Table:
    return make_table(
        ["v", "detected", "type", "sent"],
        ["what"],
        [
            (
                one.change_set.version,
                minute(one.change_set.detected_at),
                types_text(one.change_set),
                _delivery_text(one.delivery),
                change_set_cell(one.change_set),
            )
            for one in found
        ],
    )


def _delivery_text(delivery: Delivery) -> str:
    if delivery.superseded:
        return "by a newer one"
    if delivery.status is OutboxStatus.COMPLETED:
        return minute(delivery.completed_at)
    return delivery.status or ""


def _version_document(version: Version) -> dict[str, Any]:
    delivery = DeliveryAnswer.document_of(version.delivery)
    return ChangeSetAnswer.document_of(version.change_set) | {"outboxStatus": delivery.pop("status")} | delivery
