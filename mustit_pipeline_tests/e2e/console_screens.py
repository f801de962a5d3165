"""Pictures of every page of the console, in both languages and themes, for a desk and a phone.

    python -m mustit_pipeline_tests.e2e.console_screens [FOLDER [NAME …]]

With names, only pages whose name contains one of them. Without a folder, the pictures of README and guides in
docs/screens.
"""

import re
import sys
from pathlib import Path

from playwright.sync_api import Page

from mustit_pipeline_tests.e2e.browser import find_chromium, opened_page
from mustit_pipeline_tests.e2e.console_world import ADMIN, PASSWORD, ConsoleWorld, console_world

OPEN_CRAWL = "SELECT execution_id FROM crawling_schedule_executions WHERE status = 'RUNNING' LIMIT 1"
FAILED_EVENT = "SELECT outbox_id FROM product_outbox WHERE status = 'FAILED' LIMIT 1"
HOLD = "SELECT hold_id FROM deletion_holds WHERE status = 'OPEN' LIMIT 1"
BODY = "SELECT raw_id FROM product_raw_data WHERE item_no = {} LIMIT 1"
SIZES = {"desk": (1280, 900), "phone": (390, 844)}
# Each pair of language and theme once on each size, and no more: they are looked at one by one.
LOOKS = (("ko", "light", "desk"), ("en", "dark", "desk"), ("ko", "dark", "phone"), ("en", "light", "phone"))

SCREENS = Path(__file__).parents[2] / "docs" / "screens"
# Name, page, language, theme and size of each picture of the documents.
DOCUMENTS = (
    ("console-overview-ko", "overview", "ko", "light", "desk"),
    ("console-product-en", "product", "en", "dark", "desk"),
    ("console-phone-ko", "overview", "ko", "light", "phone"),
)


def pages(world: ConsoleWorld) -> dict[str, str]:
    """The address of each page by a name for its picture."""
    return {
        "overview": "/",
        "sellers": "/sellers",
        "seller": "/sellers/dmont",
        "seller-products": "/sellers/dmont?show=products",
        "seller-crawls": "/sellers/dmont?show=crawls",
        "crawls": "/executions",
        "crawl": f"/executions/{world.first(OPEN_CRAWL)}",
        "products": "/products?seller=dmont",
        "product": f"/products/{world.item_no}",
        "diff": f"/products/{world.item_no}?a=1&b=3#compare",
        "body": f"/products/{world.item_no}/raw/{world.first(BODY.format(world.item_no))}",
        "changes": "/changes",
        "events": "/outbox?status=FAILED",
        "event": f"/outbox/{world.first(FAILED_EVENT)}",
        "deletions": "/deletions",
        "deletion": f"/deletions/{world.first(HOLD)}",
        "holds": "/holds",
        "agents": "/agents",
        "budget": "/budget",
        "drift": "/drift",
        "alerts": "/alerts",
        "users": "/users",
        "audit": "/audit",
        "password": "/password",
        "missing": "/nothing",
    }


def log_in(page: Page, url: str, name: str = ADMIN) -> None:
    """Log in by the form."""
    page.goto(f"{url}/login")
    page.locator("#username").fill(name)
    page.locator("#password").fill(PASSWORD)
    page.locator("button.main").click()
    page.wait_for_url(re.compile(r"/$"))


def prefer(page: Page, url: str, language: str, theme: str) -> None:
    """Set the language and the colours as the switches do."""
    page.context.add_cookies(
        [
            {"name": "mustit_language", "value": language, "url": url},
            {"name": "mustit_theme", "value": theme, "url": url},
        ]
    )


def take(world: ConsoleWorld, chromium: str, folder: Path, wanted: list[str]) -> None:
    """All pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    for language, theme, size in LOOKS:
        width, height = SIZES[size]
        with opened_page(chromium, width=width, height=height) as page:
            page.set_default_timeout(20_000)
            prefer(page, world.url, language, theme)
            page.goto(f"{world.url}/login")
            if not wanted or "login" in wanted:
                page.screenshot(path=folder / f"login-{language}-{theme}-{size}.png")
            log_in(page, world.url)
            for name, address in pages(world).items():
                if not wanted or any(word in name for word in wanted):
                    page.goto(world.url + address, wait_until="load")
                    page.wait_for_timeout(300)
                    page.screenshot(path=folder / f"{name}-{language}-{theme}-{size}.png", full_page=True)


def take_for_documents(world: ConsoleWorld, chromium: str) -> None:
    """The pictures in README and guides."""
    for name, page_name, language, theme, size in DOCUMENTS:
        width, height = SIZES[size]
        with opened_page(chromium, width=width, height=height) as page:
            prefer(page, world.url, language, theme)
            log_in(page, world.url)
            page.goto(world.url + pages(world)[page_name], wait_until="load")
            page.screenshot(path=SCREENS / f"{name}.png", full_page=True)


def main() -> None:
    chromium = find_chromium()
    if chromium is None:
        sys.exit("no Chromium was found on this machine: apt-get install chromium fonts-nanum")
    with console_world() as world:
        if len(sys.argv) == 1:
            take_for_documents(world, chromium)
        else:
            take(world, chromium, Path(sys.argv[1]), sys.argv[2:])


if __name__ == "__main__":
    main()
