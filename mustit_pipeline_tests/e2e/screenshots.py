"""The pictures in docs/screens, taken from a running `mustit up` with fifty sellers.

    python -m mustit_pipeline_tests.e2e.screenshots

starts one in a home of its own and lets it crawl all sellers, some of which the marketplace refuses; then it refuses
none any more, products change, and a backfill crawls all anew: about ten minutes. With the port of one that has done
all this, it takes those pictures that show the end of it.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Page

from mustit_pipeline.settings import read_simulated_world
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline_tests.conftest import free_port
from mustit_pipeline_tests.e2e.browser import find_chromium, open_lineage, opened_page
from mustit_pipeline_tests.e2e.conftest import WIDE_OPEN, Mustit

SCREENS = Path(__file__).parents[2] / "docs" / "screens"
# Beside the three that `mustit up` registers by itself.
NAMES = [f"seller-{number:02}" for number in range(47)]
BROKEN = 4
ALL = len(NAMES) + 3
SETTLE_MILLISECONDS = 4000
PATIENCE_SECONDS = 1800.0

REPOSITORY = 'repositoryLocationName: "mustit_pipeline", repositoryName: "__repository__"'
CRAWLED = """{ runsOrError(filter: {pipelineName: "crawl_seller", statuses: [SUCCESS, FAILURE]}) {
  ... on Runs { results { tags { key value } } }
} }"""
TICKS = """{ sensorOrError(sensorSelector: {%s, sensorName: "due_crawls"}) {
  ... on Sensor { sensorState { ticks(limit: 10) { timestamp skipReason runIds } } }
} }"""
LAUNCH = """mutation { launchRun(executionParams: {selector: {%s, jobName: "check_criteria"}}) {
  __typename ... on LaunchRunSuccess { run { runId } }
} }"""
RUN = """{ runOrError(runId: "%s") { ... on Run { status } } }"""
DELIVERED = """{ assetOrError(assetKey: {path: ["product_server"]}) {
  ... on Asset { assetMaterializations(limit: 1) { timestamp } }
} }"""
BACKFILLS = """{ partitionBackfillsOrError(limit: 20) {
  ... on PartitionBackfills { results { id title numPartitions } }
} }"""


def main() -> None:
    chromium = find_chromium()
    if chromium is None:
        sys.exit("no Chromium was found on this machine: apt-get install chromium fonts-nanum")
    SCREENS.mkdir(exist_ok=True)
    if len(sys.argv) == 2:
        look(chromium, f"http://127.0.0.1:{sys.argv[1]}", HEALTHY)
        return
    with running() as (mustit, url, market):
        register(mustit, market)
        look(chromium, url, CRAWLING)
        _until("all sellers are crawled", lambda: _crawled(url) == ALL)
        check(url)
        look(chromium, url, TROUBLED)
        change(market)
        refetch(mustit, url)
        check(url)
        look(chromium, url, HEALTHY)


@contextmanager
def running() -> Iterator[tuple[Mustit, str, MarketplaceControl]]:
    """A `mustit up` in a home of its own, its address and its marketplace."""
    with tempfile.TemporaryDirectory(prefix="mustit-screens-") as folder:
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        ports = {"MUSTIT_DAGSTER_PORT": str(port), "MUSTIT_API_PORT": str(free_port())}
        mustit = Mustit(Path(folder) / "home", {**WIDE_OPEN, **ports, "MUSTIT_DEMO": "calm"})
        with mustit.start("up") as process:
            try:
                _until("the UI answers", lambda: httpx.get(f"{url}/server_info", trust_env=False).is_success)
                with MarketplaceControl(read_simulated_world(mustit.home)["base_url"]) as market:
                    yield mustit, url, market
            finally:
                process.terminate()
                process.communicate()


def register(mustit: Mustit, market: MarketplaceControl) -> None:
    """Fifty sellers, all of them due at once; the marketplace refuses some."""
    for number, name in enumerate(NAMES):
        market.add_seller(name, 2 + number * 5 % 9)
    for name in NAMES[-BROKEN:]:
        market.fault("status", "listing", sellerId=name, status=400)
    file = mustit.home / "sellers.csv"
    file.write_text("".join(f"{name},{name},12h\n" for name in NAMES))
    loaded = mustit("seller", "load", str(file))
    assert loaded.code == 0, loaded.err


def check(url: str) -> None:
    """The checks that run every hour, now."""
    [launched] = _ask(url, LAUNCH % REPOSITORY).values()
    run = RUN % launched["run"]["runId"]
    _until("the checks have run", lambda: _ask(url, run)["runOrError"]["status"] in ("SUCCESS", "FAILURE"))


def change(market: MarketplaceControl) -> None:
    """The marketplace refuses no seller any more, and a good part of what it sells is not as it was."""
    market.clear_faults()
    for name, products in market.sellers().items():
        market.random_changes(name, max(1, products // 2))


def refetch(mustit: Mustit, url: str) -> None:
    """A backfill of all sellers, and the delivery of what has changed."""
    _say("a backfill of fifty sellers")
    began = time.time()
    with mustit.start("backfill", "--all", "--watch", "--json") as process:
        out, _ = process.communicate()
    done = json.loads(out)
    assert done["succeeded"] == ALL, done
    _until("the changes are delivered", lambda: _delivered_at(url) > began)


def look(chromium: str, url: str, pictures: "dict[str, Picture]") -> None:
    """Take pictures, each of a page that has come to rest, in a window that it fills."""
    for name, (width, height, show) in pictures.items():
        with opened_page(chromium, width=width, height=height) as page:
            show(page, url)
            page.mouse.move(width - 1, height - 1)
            page.wait_for_timeout(SETTLE_MILLISECONDS)
            page.screenshot(path=SCREENS / f"{name}.png")
        _say(f"took {name}")


def _lineage(page: Page, url: str) -> None:
    open_lineage(page, url)


def _asset(page: Page, url: str) -> None:
    """What is always there is folded away, so that the checks' results and the plots are in view."""
    page.goto(f"{url}/assets/product_change_sets")
    page.get_by_role("button", name="Plots").click()
    page.get_by_text("Latest check results").wait_for()
    for part in ("Description", "Columns"):
        page.get_by_text(part, exact=True).first.click()
    page.locator("canvas").first.wait_for()


def _checks(page: Page, url: str) -> None:
    page.goto(f"{url}/assets/mustit_marketplace?view=checks")
    page.get_by_text("sellers_succeeding").first.click()
    page.get_by_text("Latest execution").wait_for()


def _partitions(page: Page, url: str) -> None:
    page.goto(f"{url}/locations/mustit_pipeline/jobs/crawl_seller/partitions")
    page.get_by_text("Show per-asset status").click()
    page.get_by_text(NAMES[-1]).first.wait_for()


def _backfill(page: Page, url: str) -> None:
    found = _ask(url, BACKFILLS)["partitionBackfillsOrError"]["results"]
    largest = max(found, key=lambda one: one["numPartitions"])
    page.goto(f"{url}/runs/b/{largest['id']}")
    page.get_by_text("product_change_sets").first.wait_for()
    page.get_by_text("100% completed").first.wait_for()


def _ticks(page: Page, url: str) -> None:
    """The newest ticks, some of which have started runs."""

    def telling() -> bool:
        ticks = _newest_ticks(url)
        return len(ticks) >= 8 and sum(bool(tick["runIds"]) for tick in ticks) >= 2

    _until("several ticks have started runs", telling)
    page.goto(f"{url}/locations/mustit_pipeline/sensors/due_crawls")
    page.get_by_text("Timestamp").first.wait_for()


def _tick(page: Page, url: str) -> None:
    """One that started nothing, and says why."""

    def busy() -> list[Any]:
        return [tick for tick in _newest_ticks(url) if "slots are busy" in (tick["skipReason"] or "")]

    _until("a tick found all slots busy", lambda: bool(busy()))
    at = datetime.fromtimestamp(busy()[0]["timestamp"]).astimezone()
    page.goto(f"{url}/locations/mustit_pipeline/sensors/due_crawls")
    # The newest tick stands above the list too, where it cannot be opened.
    listed = page.locator("tr").filter(has_text="View logs")
    listed.filter(has_text=f":{at:%M:%S}").first.get_by_text("0 runs requested").last.click()
    page.get_by_text("Skip reason").wait_for()


Picture = tuple[int, int, Callable[[Page, str], None]]
CRAWLING: dict[str, Picture] = {"ticks": (1400, 965, _ticks), "tick": (1400, 760, _tick)}
TROUBLED: dict[str, Picture] = {"checks": (1400, 620, _checks), "partitions": (1400, 560, _partitions)}
HEALTHY: dict[str, Picture] = {
    "lineage": (1700, 520, _lineage),
    "asset": (1400, 945, _asset),
    "backfill": (1400, 640, _backfill),
}


def _newest_ticks(url: str) -> list[Any]:
    return _ask(url, TICKS % REPOSITORY)["sensorOrError"]["sensorState"]["ticks"]


def _crawled(url: str) -> int:
    """How many sellers' crawls have ended, well or not."""
    runs = _ask(url, CRAWLED)["runsOrError"]["results"]
    return len({tag["value"] for run in runs for tag in run["tags"] if tag["key"] == "dagster/partition"})


def _delivered_at(url: str) -> float:
    """When events were last sent."""
    sent = _ask(url, DELIVERED)["assetOrError"].get("assetMaterializations") or [{"timestamp": "0"}]
    return float(sent[0]["timestamp"]) / 1000


def _ask(url: str, query: str) -> Any:
    return httpx.post(f"{url}/graphql", json={"query": query}, timeout=60, trust_env=False).json()["data"]


def _until(wish: str, true: Callable[[], bool]) -> None:
    _say(f"waiting until {wish}")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            if true():
                return
        except httpx.HTTPError:
            pass
        time.sleep(1)
    sys.exit(f"in vain: {wish}")


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr)


if __name__ == "__main__":
    main()
