"""The pictures in docs/screens, taken from a running `mustit up` with fifty sellers.

    python -m mustit_pipeline_tests.e2e.screenshots

starts one in a home of its own, backfills all sellers and looks at it: a few minutes. With a home and a port it looks
at one that runs there and has had its backfill.
"""

import json
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx
from playwright.sync_api import Page

from mustit_pipeline.settings import read_simulated_world
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline_tests.conftest import free_port
from mustit_pipeline_tests.e2e.browser import find_chromium, open_lineage, opened_page
from mustit_pipeline_tests.e2e.conftest import WIDE_OPEN, Mustit

SCREENS = Path(__file__).parents[2] / "docs" / "screens"
SELLERS, PRODUCTS, BROKEN = 47, 3, 4
BACKFILLS = (
    "{ partitionBackfillsOrError(limit: 20) { ... on PartitionBackfills { results { id title numPartitions } } } }"
)
SETTLE_MILLISECONDS = 4000


def main() -> None:
    if len(sys.argv) == 3:
        take_all(f"http://127.0.0.1:{sys.argv[2]}")
        return
    with tempfile.TemporaryDirectory(prefix="mustit-screens-") as folder:
        port = free_port()
        mustit = Mustit(Path(folder) / "home", {**WIDE_OPEN, "MUSTIT_DAGSTER_PORT": str(port)})
        with mustit.start("up") as process:
            try:
                url = f"http://127.0.0.1:{port}"
                _until(lambda: httpx.get(f"{url}/server_info", trust_env=False).is_success)
                with MarketplaceControl(read_simulated_world(mustit.home)["base_url"]) as market:
                    fetch(mustit, market)
                    take_all(url)
                    replay(mustit, market)
            finally:
                process.terminate()
                process.communicate()


def fetch(mustit: Mustit, market: MarketplaceControl) -> None:
    """Fifty sellers, all of them backfilled; the marketplace refuses some."""
    names = [f"seller-{number:02}" for number in range(SELLERS)]
    for name in names:
        market.add_seller(name, PRODUCTS)
        assert mustit("seller", "add", name, "--name", name).code == 0
    for name in names[-BROKEN:]:
        market.fault("status", "listing", sellerId=name, status=400)
    _say("refetching fifty sellers")
    done = _backfill(mustit, "refetch")
    assert done["succeeded"] == SELLERS + 3 - BROKEN, done


def replay(mustit: Mustit, market: MarketplaceControl) -> None:
    """All of them once more, and the marketplace hears nothing of it."""
    market.reset_audit()
    _say("replaying fifty sellers")
    done = _backfill(mustit, "replay")
    assert (done["succeeded"], market.requested_urls()) == (SELLERS + 3, {}), done


def take_all(url: str) -> None:
    """Every picture, each of a page that has come to rest."""
    chromium = find_chromium()
    if chromium is None:
        sys.exit("no Chromium was found on this machine: apt-get install chromium fonts-nanum")
    SCREENS.mkdir(exist_ok=True)
    with opened_page(chromium, height=520) as page:
        open_lineage(page, url)
        _take(page, "lineage")
    with opened_page(chromium) as page:
        for name, look in PICTURES.items():
            look(page, url)
            _take(page, name)


def _asset(page: Page, url: str) -> None:
    page.goto(f"{url}/assets/product_change_sets")
    page.get_by_role("button", name="Plots").click()
    page.get_by_text("versions", exact=True).first.scroll_into_view_if_needed()
    page.mouse.move(600, 500)
    page.mouse.wheel(0, 300)


def _checks(page: Page, url: str) -> None:
    page.goto(f"{url}/assets/minishop_listings?view=checks")
    page.get_by_text("sweep_complete").first.click()


def _partitions(page: Page, url: str) -> None:
    page.goto(f"{url}/locations/mustit_pipeline/jobs/crawl_seller/partitions")
    page.get_by_text("Show per-asset status").click()


def _backfill_page(page: Page, url: str) -> None:
    """The one that fetched every seller."""
    answer = httpx.post(f"{url}/graphql", json={"query": BACKFILLS}, timeout=60, trust_env=False).json()
    found = answer["data"]["partitionBackfillsOrError"]["results"]
    largest = max((one for one in found if one["title"].startswith("refetch")), key=lambda one: one["numPartitions"])
    page.goto(f"{url}/runs/b/{largest['id']}")
    page.get_by_text("product_change_sets").first.wait_for()


def _ticks(page: Page, url: str) -> None:
    page.goto(f"{url}/locations/mustit_pipeline/sensors/due_crawls")
    page.get_by_text(re.compile("^0 runs requested$")).nth(2).click()


PICTURES: dict[str, Callable[[Page, str], None]] = {
    "asset": _asset,
    "checks": _checks,
    "partitions": _partitions,
    "backfill": _backfill_page,
    "ticks": _ticks,
}


def _take(page: Page, name: str) -> None:
    page.wait_for_timeout(SETTLE_MILLISECONDS)
    page.screenshot(path=SCREENS / f"{name}.png")
    _say(f"took {name}")


def _backfill(mustit: Mustit, mode: str) -> dict[str, int]:
    with mustit.start("backfill", "--all", "--mode", mode, "--watch", "--json") as process:
        out, _ = process.communicate()
    return json.loads(out)


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        try:
            if true():
                return
        except httpx.HTTPError:
            time.sleep(1)
    sys.exit("mustit up did not start in time")


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr)


if __name__ == "__main__":
    main()
