"""A marketplace over real HTTP whose bodies a test changes, for crawls that meet drift."""

import asyncio
import re
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import orjson

from mustit_pipeline_tests.integration.marketplace.server import Exchange, marketplace, response
from mustit_pipeline_tests.unit.marketplace.bodies import detail, info, listing, listing_item, option

SELLER = "dmont"
ITEMS = (118005032, 118005033)
STOCK = "detail.ProductInfoModule.stock"

Change = Callable[[str, int | None, Any], Any]


def unchanged(source: str, item_no: int | None, body: Any) -> Any:
    return body


def without_stock(source: str, item_no: int | None, body: Any) -> Any:
    if source == "detail":
        del body["moduleList"][1]["data"]["stock"]
    return body


class DriftingMarketplace:
    """Two products of one seller; `change` gets each body before it is sent, and may give bytes for it."""

    def __init__(self) -> None:
        self.change: Change = unchanged
        self.url = ""
        self.asked: list[str] = []

    async def answer(self, exchange: Exchange) -> None:
        target = exchange.request.target
        if target == "/":
            await exchange.send(response(b"", "Set-Cookie: token=abc; Max-Age=3600"))
            return
        self.asked.append(target)
        found = re.search(r"/(\d+)/(detail|options)", target)
        if found is None:
            body = self.change("listing", None, _page(target))
        else:
            item_no = int(found[1])
            plain = _detail(item_no) if found[2] == "detail" else [option(itemNo=item_no)]
            body = self.change(found[2], item_no, plain)
        encoded = body if isinstance(body, bytes) else orjson.dumps(body)
        await exchange.send(response(encoded, "Content-Type: application/json"))


@contextmanager
def drifting_marketplace() -> Generator[DriftingMarketplace]:
    """Served from a thread of its own, because a crawl has the loop of this one."""
    market, ready = DriftingMarketplace(), threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with marketplace(market.answer) as running:
            market.url = f"http://127.0.0.1:{running.port}"
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(10)
    try:
        yield market
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


def _page(target: str) -> dict[str, Any]:
    items = [listing_item(itemNo=item_no) for item_no in ITEMS]
    return listing(*items[: 1 if "pageSize=1&" in target else None], count=len(ITEMS))


def _detail(item_no: int) -> dict[str, Any]:
    return detail(ProductInfoModule=info(itemNo=item_no, sellerId=SELLER))
