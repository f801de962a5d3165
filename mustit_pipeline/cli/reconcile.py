"""`mustit reconcile`: compare the product server with the delivered versions."""

from typing import Annotated, Any

import typer

from mustit_pipeline.cli.output import Json, out, print_json, print_table
from mustit_pipeline.cli.progress import Step, watched
from mustit_pipeline.cli.runtime import runtime
from mustit_pipeline.delivery.reconcile import Difference, Kind, Reconciliation
from mustit_pipeline.delivery.reconcile import reconcile as compare_all
from mustit_pipeline.delivery.sql import reconciliation
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.sellers.sql import sellers

MOST_FIELDS = 6
MOST_SILENT = 5
WORDS = {
    Kind.MISSING: "missing there",
    Kind.STALE: "older version there",
    Kind.NEWER: "newer version there",
    Kind.DIFFERENT: "different fields",
    Kind.SHOULD_BE_GONE: "should be gone",
}


def reconcile(
    seller: Annotated[str | None, typer.Option("--seller", help="Only this seller's products.")] = None,
    resend: Annotated[bool, typer.Option("--resend", help="Send products that differ again.")] = False,
    as_json: Json = False,
) -> None:
    """Compare what was delivered with what the product server reports; exit 1 if they differ.

    Products with unsent events are left out. With --resend the state of each product that differs becomes a new
    version, which the next relay sends.

    Example: `mustit reconcile --seller dmont --resend`
    """
    done = [0]

    def advance(products: int) -> None:
        done[0] = products

    with runtime() as ground:
        seller_id = None if seller is None else SellerId(seller)
        with ground.database.reading() as connection:
            if seller_id is not None:
                sellers.get(connection, seller_id)
            total = reconciliation.count(connection, seller_id)
        with watched("comparing", lambda: Step(done[0], total, "products")):
            found = compare_all(
                ground.database, ground.settings, seller_id=seller_id, resend=resend, now=utc_now, progress=advance
            )
    if as_json:
        print_json(_document(found))
    else:
        _print(found, resend=resend)
    raise typer.Exit(0 if found.in_order else 1)


def _print(found: Reconciliation, *, resend: bool) -> None:
    if found.examples:
        shown = len(found.examples)
        title = f"{found.differences} differences" + (f", the first {shown}" if shown < found.differences else "")
        columns = ["seller", "item", "difference", "ours", "theirs", "fields"]
        print_table(title, columns, [_row(one) for one in found.examples])
    told = f"compared {found.compared}, differences {found.differences}, on their way {found.under_way}"
    told += f", no answer {found.unanswered}" if found.unanswered else ""
    out.print(told, highlight=False)
    if found.silent:
        shown = [f"{one.belief.seller_id} {one.belief.item_no} ({one.reason})" for one in found.silent[:MOST_SILENT]]
        more = found.unanswered - len(shown)
        out.print(
            f"no answer: {', '.join(shown)}" + (f" and {more} more" if more else ""), highlight=False, markup=False
        )
    if found.resent:
        out.print(f"{found.resent} wait to be sent again: `mustit relay`, or the next run of it, does so.")
    elif found.differences and not resend:
        out.print("`mustit reconcile --resend` sends them again.")


def _row(one: Difference) -> tuple[object, ...]:
    fields = ", ".join(one.fields[:MOST_FIELDS])
    more = len(one.fields) - MOST_FIELDS
    return (
        one.belief.seller_id,
        one.belief.item_no,
        WORDS[one.kind],
        one.belief.delivered_version,
        one.reported_version or "",
        f"{fields} and {more} more" if more > 0 else fields,
    )


def _document(found: Reconciliation) -> dict[str, Any]:
    return {
        "compared": found.compared,
        "differences": found.differences,
        "byKind": {kind.value: found.kinds[kind] for kind in Kind},
        "resent": found.resent,
        "onTheirWay": found.under_way,
        "unanswered": found.unanswered,
        "examples": [
            {
                "sellerId": one.belief.seller_id,
                "itemNo": one.belief.item_no,
                "kind": one.kind.value,
                "ourVersion": one.belief.delivered_version,
                "serverVersion": one.reported_version or None,
                "fields": list(one.fields),
            }
            for one in found.examples
        ],
        "unansweredExamples": [
            {"sellerId": one.belief.seller_id, "itemNo": one.belief.item_no, "reason": one.reason}
            for one in found.silent
        ],
    }
