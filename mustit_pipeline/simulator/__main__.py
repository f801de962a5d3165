"""`python -m mustit_pipeline.simulator marketplace|product-server`: one simulated server in this process."""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from mustit_pipeline.simulator.control_input import Fields
from mustit_pipeline.simulator.effects import Effects
from mustit_pipeline.simulator.journal import JournalError
from mustit_pipeline.simulator.limits import Limits
from mustit_pipeline.simulator.marketplace import Marketplace
from mustit_pipeline.simulator.marketplace_control import control_marketplace
from mustit_pipeline.simulator.marketplace_settings import LISTING_PATH, TOKEN_COOKIES, MarketplaceSettings
from mustit_pipeline.simulator.product_server import ProductServer
from mustit_pipeline.simulator.serving import serve
from mustit_pipeline.simulator.world import World

TOKEN_VARIABLE = "MUSTIT_PRODUCT_SERVER_TOKEN"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; 1 with a sentence on stderr if it cannot start."""
    options = _parser().parse_args(arguments)
    try:
        state = _state_folder(options.state)
        run = _run_marketplace if options.server == "marketplace" else _run_product_server
        run(options, state)
    except (JournalError, OSError, ValueError) as error:
        print(f"cannot run the simulated {options.server}: {error}", file=sys.stderr)
        return 1
    return 0


def _run_marketplace(options: argparse.Namespace, state: Path) -> None:
    given = Fields(
        {
            "requestsPerWindow": options.requests_per_window,
            "windowSeconds": options.window_seconds,
            "minGapSeconds": options.min_gap_seconds,
            "gapToleranceSeconds": options.gap_tolerance_seconds,
            "latencyMs": options.latency_ms,
            "firstPageNo": options.first_page_no,
            "noise": options.noise,
            "tokenSeconds": options.token_seconds,
            "tokenCookie": options.token_cookie,
        }
    )
    settings = MarketplaceSettings(listing_path=options.listing_path).patched(given)
    world = World(state / "marketplace.jsonl", options.seed)
    for seller_id, products in options.sellers:
        if seller_id not in world.sellers:
            world.add_seller(seller_id, products)
    marketplace = Marketplace(world, settings)
    control = partial(control_marketplace, marketplace)
    try:
        asyncio.run(serve(marketplace.handle, control, options.host, options.port, watch_stdin=options.watch_stdin))
    finally:
        world.close()


def _run_product_server(options: argparse.Namespace, state: Path) -> None:
    effects = Effects(state / "product-server.jsonl")
    server = ProductServer(effects, options.seed or 1, os.environ.get(TOKEN_VARIABLE) or None)
    try:
        asyncio.run(serve(server.handle, server.control, options.host, options.port, watch_stdin=options.watch_stdin))
    finally:
        effects.close()


def _state_folder(given: Path | None) -> Path:
    if given is not None:
        return given
    from mustit_pipeline.settings import SettingsError, load_settings

    try:
        return load_settings().home / "simulator"
    except SettingsError as error:
        raise ValueError(str(error)) from error


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: 0 to 65535")
    return int(text)


def _sellers(text: str) -> list[tuple[str, int]]:
    """`id:count,id2:count`; the last colon counts, so an id may have one, but no comma."""
    sellers: list[tuple[str, int]] = []
    for part in filter(None, text.split(",")):
        seller_id, _, count = part.rpartition(":")
        if not seller_id.strip() or not count.isdecimal():
            raise argparse.ArgumentTypeError(f"{part!r} is not id:count")
        sellers.append((seller_id, int(count)))
    return sellers


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m mustit_pipeline.simulator", description=__doc__)
    servers = parser.add_subparsers(dest="server", required=True)
    marketplace = servers.add_parser("marketplace", help="the marketplace that is crawled")
    product_server = servers.add_parser(
        "product-server", help=f"the receiver of events; asks for ${TOKEN_VARIABLE} if set"
    )
    for server in (marketplace, product_server):
        server.add_argument("--host", default="127.0.0.1")
        server.add_argument("--port", type=_port, default=0, help="0 takes a free one")
        server.add_argument("--state", type=Path, help="folder of the journal; MUSTIT_HOME/simulator without it")
        server.add_argument("--seed", type=int, help="which world; a stored one keeps its own")
        server.add_argument("--watch-stdin", action="store_true", help="end when stdin ends")
    limits = Limits()
    add = marketplace.add_argument
    add("--sellers", type=_sellers, default=[], metavar="ID:COUNT,…", help="sellers to make unless they exist")
    add("--requests-per-window", type=int, default=limits.requests_per_window)
    add("--window-seconds", type=float, default=limits.window_seconds)
    add("--min-gap-seconds", type=float, default=limits.min_gap_seconds, help="0 = none")
    add("--gap-tolerance-seconds", type=float, default=limits.gap_tolerance_seconds)
    add("--latency-ms", type=float, default=0.0)
    add("--first-page-no", type=int, choices=(0, 1), default=0)
    add("--listing-path", default=LISTING_PATH)
    add("--token-seconds", type=float, default=7200.0)
    add("--token-cookie", choices=TOKEN_COOKIES, default="max-age", help="how the cookie says its lifetime")
    add("--no-noise", dest="noise", action="store_false", help="the same bytes every time")
    return parser


if __name__ == "__main__":
    sys.exit(main())
