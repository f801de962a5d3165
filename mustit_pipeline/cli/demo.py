"""`mustit demo`: crawl, change the marketplace, crawl again, and compare the product server with it."""

import os
import time
from collections import Counter
from typing import Annotated, Any

import typer
from rich.table import Table

from mustit_pipeline.cli.crawl import run_crawl
from mustit_pipeline.cli.output import Json, err, out, print_json
from mustit_pipeline.cli.relay import run_relay
from mustit_pipeline.cli.runtime import RunFailed, Runtime, dagster_instance, runtime
from mustit_pipeline.cli.world import World, only_one, simulated_world
from mustit_pipeline.domain.errors import Conflict
from mustit_pipeline.domain.values import CrawlingInterval, SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.sellers import registry
from mustit_pipeline.settings import SettingsError, load_settings
from mustit_pipeline.simulator.control import MarketplaceControl, ProductServerControl

SELLERS = {"dmont": 60, "럭셔리하우스": 45, "bag & shoes/50%": 30}
CHANGES = 12
ADDED = 2
REMOVED = 2
# The demo must end in a minute or two, so its limits are per minute; simulator and crawler use the same ones.
PACE = {"MUSTIT_WINDOW_SECONDS": "60", "MUSTIT_MIN_REQUEST_GAP_SECONDS": "0.2"}


def demo(
    sellers: Annotated[int, typer.Option("--sellers", min=1, max=len(SELLERS), help="How many sellers.")] = len(
        SELLERS
    ),
    as_json: Json = False,
) -> None:
    """Show the whole pipeline at work on a simulated marketplace, and prove that nothing was missed.

    Registers sellers, crawls, relays, changes the marketplace, crawls and relays again, then compares the product
    server with the marketplace, field by field. Exit 0 only if they are equal.

    Example: `mustit demo --sellers 1`
    """
    for name in ("MUSTIT_BASE_URL", "MUSTIT_PRODUCT_SERVER_URL"):
        if os.environ.get(name):
            raise SettingsError(
                f"{name} is set: the demo changes the marketplace, so it runs on simulated servers only",
                korean=f"{name}이(가) 설정되어 있습니다. 데모는 마켓플레이스를 변경하므로 "
                "시뮬레이션 서버에서만 실행됩니다",
            )
    for name, value in PACE.items():
        os.environ.setdefault(name, value)
    wanted = dict(list(SELLERS.items())[:sellers])
    started = time.monotonic()
    with (
        only_one(load_settings().home),
        simulated_world(wanted, announce=False) as world,
        runtime() as ground,
    ):
        summary = _Demo(world, ground, list(wanted), quiet=as_json).run()
    summary["seconds"] = round(time.monotonic() - started, 1)
    if as_json:
        print_json(summary)
    else:
        _tell(summary)
    raise typer.Exit(0 if summary["differences"] == 0 and not summary["failedTasks"] else 1)


class _Demo:
    def __init__(self, world: World, ground: Runtime, sellers: list[str], *, quiet: bool) -> None:
        if world.marketplace is None or world.product_server is None:
            raise SettingsError("the demo needs simulated servers", korean="데모에는 시뮬레이션 서버가 필요합니다")
        self._ground = ground
        self._sellers = sellers
        self._quiet = quiet
        self._marketplace = MarketplaceControl(world.marketplace.url)
        self._product_server = ProductServerControl(world.product_server.url)
        self._requests = 0
        self._failed = 0
        self._sent = 0
        self._changes: Counter[str] = Counter()

    def run(self) -> dict[str, Any]:
        self._say("1/5  registering sellers")
        for seller_id in self._sellers:
            self._register(seller_id)
        with dagster_instance(self._ground.settings, runs_here=True) as self._instance:
            self._say("2/5  first crawl and relay")
            self._crawl_and_relay()
            self._say(f"3/5  changing the marketplace: {CHANGES} changes, {ADDED} new, {REMOVED} gone for each seller")
            for seller_id in self._sellers:
                self._change(seller_id)
            self._say("4/5  second crawl and relay: new products, and changes that the listing shows")
            self._crawl_and_relay()
            self._say("5/5  third crawl and relay: everything is fetched, and a second sweep proves what is gone")
            self._crawl_and_relay(full=True)
        rows = [self._compare(seller_id) for seller_id in self._sellers]
        return {
            "sellers": rows,
            "requests": self._requests,
            "failedTasks": self._failed,
            "changes": dict(sorted(self._changes.items())),
            "eventsSent": self._sent,
            "differences": sum(row["differences"] for row in rows),
        }

    def _register(self, seller_id: str) -> None:
        try:
            registry.register(
                self._ground.database, SellerId(seller_id), seller_id, CrawlingInterval.DEFAULT, utc_now()
            )
        except Conflict:
            self._say(f"     {seller_id} is registered already: going on with it")

    def _crawl_and_relay(self, *, full: bool = False) -> None:
        for seller_id in self._sellers:
            summary = run_crawl(self._ground, self._instance, SellerId(seller_id), full=full, quiet=self._quiet)
            if summary.stopped is not None:
                raise summary.stopped
            if summary.problem is not None:
                raise RunFailed(f"the crawl of {seller_id} did not end: {summary.problem}")
            self._requests += summary.stored.requests
            self._failed += summary.stored.failed_tasks
            self._changes.update(summary.changes)
        self._sent += run_relay(self._ground, self._instance, quiet=self._quiet)["sent"]

    def _change(self, seller_id: str) -> None:
        gone = self._marketplace.remove(seller_id, count=REMOVED)
        self._marketplace.random_changes(seller_id, CHANGES)
        self._marketplace.add_products(seller_id, ADDED)
        self._say(f"     {seller_id}: {', '.join(map(str, gone))} taken off sale")

    def _compare(self, seller_id: str) -> dict[str, Any]:
        """Count products that differ between marketplace and product server, field by field."""
        expected = {product["itemNo"]: product for product in self._marketplace.products(seller_id)}
        held = self._product_server.products(seller_id)
        differing = [item for item in expected.keys() | held.keys() if expected.get(item) != held.get(item)]
        for item in differing[:5]:
            self._say(f"     [red]{seller_id} {item} differs[/red]")
        return {"sellerId": seller_id, "products": len(expected), "differences": len(differing)}

    def _say(self, text: str) -> None:
        if not self._quiet:
            err.print(text, highlight=False)


def _tell(summary: dict[str, Any]) -> None:
    table = Table("", "", title="mustit demo", title_justify="left", show_header=False)
    table.add_row("sellers", str(len(summary["sellers"])))
    table.add_row("products", str(sum(row["products"] for row in summary["sellers"])))
    table.add_row("requests", str(summary["requests"]))
    for kind, number in summary["changes"].items():
        table.add_row(f"changes: {kind}", str(number))
    table.add_row("events sent", str(summary["eventsSent"]))
    table.add_row("failed tasks", str(summary["failedTasks"]))
    table.add_row("seconds", str(summary["seconds"]))
    equal = summary["differences"] == 0
    table.add_row("differences", f"[{'green' if equal else 'red'}]{summary['differences']}[/]")
    out.print(table)
    if equal:
        out.print("The product server equals the marketplace, field by field.")
    else:
        out.print("[red]The product server differs from the marketplace.[/red]")
