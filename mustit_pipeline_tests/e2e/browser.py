"""A headless Chromium for looking at the Dagster UI."""

import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager

from playwright.sync_api import Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_MILLISECONDS = 120_000


def find_chromium() -> str | None:
    """The browser of this machine, if it has one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def opened_page(chromium: str, *, width: int = 1400, height: int = 900, javascript: bool = True) -> Generator[Page]:
    """An empty page of a browser that knows nothing from before."""
    with (
        sync_playwright() as playwright,
        tempfile.TemporaryDirectory(prefix="mustit-browser-") as profile,
        playwright.chromium.launch_persistent_context(
            profile,
            executable_path=chromium,
            headless=True,
            args=FLAGS,
            viewport={"width": width, "height": height},
            java_script_enabled=javascript,
        ) as browser,
    ):
        page = browser.pages[0]
        page.set_default_timeout(PATIENCE_MILLISECONDS)
        yield page


def open_lineage(page: Page, url: str) -> None:
    """The whole lineage, asset by asset."""
    page.goto(f"{url}/asset-groups")
    page.get_by_text("Hide navigation").click()
    page.get_by_text("marketplace", exact=True).first.wait_for()
    # Expands every group of the graph.
    page.keyboard.press("Alt+e")
    page.get_by_text("minishop_listings", exact=True).first.wait_for()
