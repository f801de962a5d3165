"""`mustit seller`: which sellers are crawled, and how often."""

from pathlib import Path
from typing import Annotated, Any

import typer

from mustit_pipeline.cli.budget import Boost
from mustit_pipeline.cli.list_options import iso
from mustit_pipeline.cli.output import (
    Json,
    end_load,
    local,
    print_fields,
    print_json,
    print_outcome,
    print_table,
)
from mustit_pipeline.cli.runtime import announce_partitions, runtime
from mustit_pipeline.crawling.sql import recrawl_terms
from mustit_pipeline.crawling.steering import deactivate_seller
from mustit_pipeline.domain.seller import Seller
from mustit_pipeline.domain.states import SellerStatus
from mustit_pipeline.domain.values import CrawlingInterval, SellerId
from mustit_pipeline.foundation.audited import Target
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.sellers import registry
from mustit_pipeline.sellers.enrolment import enrol
from mustit_pipeline.sellers.sql import sellers
from mustit_pipeline.sellers.sql.sellers import SellerOverview

app = typer.Typer(help="Sellers: which are crawled, and how often.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(metavar="ID", help="The seller's id on the marketplace.")]


@app.command("add", epilog='Example: `mustit seller add dmont --name "D.MONT" --interval 6h`')
def add(
    seller_id: Id,
    name: Annotated[str, typer.Option("--name", help="The seller's name for people.")],
    interval: Annotated[str, typer.Option("--interval", help="1d to 30d, or 1h to 23h.")] = "1d",
    as_json: Json = False,
) -> None:
    """Register a seller; its first crawl is due at once."""
    seller_key, every = SellerId(seller_id), CrawlingInterval.parse(interval)
    with runtime() as ground:
        seller = registry.register(
            ground.audited("seller.register", registry.target(seller_key)), seller_key, name, every, utc_now()
        )
        announce_partitions(ground.settings, [seller.seller_id.value])
    _say(seller, f"Registered {seller.seller_id}, crawled every {seller.interval}.", as_json)


@app.command("load", epilog="Example: `mustit seller load sellers.csv`")
def load(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="`id,name[,6h]` a line.")],
    as_json: Json = False,
) -> None:
    """Register the sellers of a CSV file, one a line; blank lines and lines that start with # are left out.

    Known sellers are not changed. A line that cannot be read is named; the others are registered.
    """
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    with runtime() as ground:
        report = enrol(ground.audited("seller.load", Target(f"file {file.name}")), lines, utc_now())
        announce_partitions(ground.settings, report.added)
    end_load(len(report.added), report.known, report.rejected, word="registered", as_json=as_json)


@app.command("list", epilog="Example: `mustit seller list --status ACTIVE`")
def show_all(
    status: Annotated[SellerStatus | None, typer.Option("--status", help="Only these.")] = None, as_json: Json = False
) -> None:
    """List the sellers."""
    with runtime() as ground, ground.database.reading() as connection:
        found = sellers.overview(connection, status)
    if as_json:
        print_json([_overview(entry) for entry in found])
        return
    print_table(
        f"{len(found)} sellers",
        ["id", "name", "status", "interval", "products", "complete", "next crawl"],
        [_row(entry.seller, entry) for entry in found],
    )


def _row(seller: Seller, entry: SellerOverview) -> tuple[object, ...]:
    return (
        seller.seller_id,
        seller.name,
        seller.status,
        seller.interval,
        seller.total_product_count,
        entry.complete_products,
        local(entry.next_due_at),
    )


@app.command("show", epilog="Example: `mustit seller show dmont`")
def show(seller_id: Id, as_json: Json = False) -> None:
    """Show one seller."""
    with runtime() as ground, ground.database.reading() as connection:
        sellers.get(connection, SellerId(seller_id))
        [entry] = sellers.overview(connection, seller_id=SellerId(seller_id))
    if as_json:
        print_json(_overview(entry))
    else:
        _print_seller(entry)


def _print_seller(entry: SellerOverview) -> None:
    seller = entry.seller
    print_fields(
        {
            "id": seller.seller_id,
            "name": seller.name,
            "status": seller.status,
            "interval": seller.interval,
            "products": f"{seller.total_product_count:,}, {entry.complete_products:,} of them complete",
            "next crawl": local(entry.next_due_at),
            "last triggered": local(entry.last_triggered_at) or "never",
            "registered": local(seller.created_at),
            "last changed": local(seller.updated_at),
        }
    )


@app.command("set-interval", epilog="Example: `mustit seller set-interval dmont 7d`")
def set_interval(
    seller_id: Id,
    interval: Annotated[str, typer.Argument(metavar="INTERVAL", help="1d to 30d, or 1h to 23h.")],
    as_json: Json = False,
) -> None:
    """Crawl a seller at another interval."""
    seller_key, every = SellerId(seller_id), CrawlingInterval.parse(interval)
    with runtime() as ground:
        database = ground.audited("seller.interval", registry.target(seller_key))
        seller = registry.change_interval(database, seller_key, every, utc_now())
    _say(seller, f"{seller.seller_id} is crawled every {seller.interval} now.", as_json)


@app.command("boost", epilog="Example: `mustit seller boost dmont 3`")
def boost(seller_id: Id, factor: Boost, as_json: Json = False) -> None:
    """Let the recrawl policy count a seller's products so many times as much; 1 is usual."""
    key = SellerId(seller_id)
    with runtime() as ground, ground.database.transaction() as connection:
        seller, _ = sellers.get(connection, key)
        recrawl_terms.boost_seller(connection, key.value, factor)
    print_outcome(
        {"sellerId": seller.seller_id.value, "boost": factor},
        f"Products of {seller.seller_id} count {factor:g} times as much.",
        as_json=as_json,
    )


@app.command("activate", epilog="Example: `mustit seller activate dmont`")
def activate(seller_id: Id, as_json: Json = False) -> None:
    """Crawl a seller again."""
    seller_key = SellerId(seller_id)
    with runtime() as ground:
        seller = registry.activate(
            ground.audited("seller.activate", registry.target(seller_key)), seller_key, utc_now()
        )
    _say(seller, f"{seller.seller_id} is ACTIVE.", as_json)


@app.command("deactivate", epilog="Example: `mustit seller deactivate dmont`")
def deactivate(seller_id: Id, as_json: Json = False) -> None:
    """Stop crawling a seller; an open crawl is cancelled."""
    seller_key = SellerId(seller_id)
    with runtime() as ground:
        seller = deactivate_seller(
            ground.audited("seller.deactivate", registry.target(seller_key)), seller_key, utc_now()
        )
    _say(seller, f"{seller.seller_id} is INACTIVE.", as_json)


def _say(seller: Seller, text: str, as_json: bool) -> None:
    print_outcome(_document(seller), text, as_json=as_json)


def _document(seller: Seller) -> dict[str, Any]:
    return {
        "sellerId": seller.seller_id.value,
        "name": seller.name,
        "status": seller.status.value,
        "interval": str(seller.interval),
        "totalProductCount": seller.total_product_count,
        "createdAt": iso(seller.created_at),
        "updatedAt": iso(seller.updated_at),
    }


def _overview(entry: SellerOverview) -> dict[str, Any]:
    return _document(entry.seller) | {
        "completeProducts": entry.complete_products,
        "nextDueAt": iso(entry.next_due_at),
        "lastTriggeredAt": iso(entry.last_triggered_at),
    }
