"""The admin's day in a real browser: in both languages, on a desk and on a phone, with nothing from elsewhere."""

import re
from collections.abc import Generator
from dataclasses import dataclass, field

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from mustit_pipeline_tests.conftest import NO_CHROMIUM
from mustit_pipeline_tests.e2e.browser import find_chromium, opened_page
from mustit_pipeline_tests.e2e.console_screens import log_in, pages, prefer
from mustit_pipeline_tests.e2e.console_world import VIEWER, ConsoleWorld, console_world

PATIENCE_MILLISECONDS = 30_000
SHIFT = """() => new Promise((done) => {
  let sum = 0;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) if (!entry.hadRecentInput) sum += entry.value;
  }).observe({ type: "layout-shift", buffered: true });
  setTimeout(() => done(sum), 300);
})"""


@dataclass
class Watched:
    """What a page did and should not have done."""

    errors: list[str] = field(default_factory=list[str])
    elsewhere: list[str] = field(default_factory=list[str])


@pytest.fixture(scope="module")
def world() -> Generator[ConsoleWorld]:
    if find_chromium() is None:
        pytest.skip(NO_CHROMIUM)
    with console_world(rounds=3, idle_sellers=5) as made:
        yield made


def watched(page: Page, url: str) -> Watched:
    seen = Watched()
    page.set_default_timeout(PATIENCE_MILLISECONDS)
    page.on("console", lambda message: seen.errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: seen.errors.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith(url) else seen.elsewhere.append(request.url))
    return seen


def said(page: Page, text: str) -> None:
    """The notice of the last action."""
    expect(page.get_by_role("status")).to_contain_text(text)


def confirmed(page: Page, button: str, yes: str) -> None:
    """Press a button and say yes to the question."""
    page.get_by_role("button", name=button).first.click()
    page.get_by_role("dialog").get_by_role("button", name=yes, exact=True).click()


def test_the_day_of_an_admin_in_english_at_a_desk(world: ConsoleWorld) -> None:
    chromium = find_chromium()
    assert chromium is not None
    with opened_page(chromium, width=1280, height=900) as page:
        seen = watched(page, world.url)
        prefer(page, world.url, "en", "light")
        log_in(page, world.url)

        page.get_by_role("link", name="Sellers", exact=True).click()
        page.get_by_label("Seller id on the marketplace").fill("new & shop/1")
        page.get_by_role("button", name="Register", exact=True).click()
        said(page, "new & shop/1 is registered")
        page.get_by_role("button", name="Crawl now").click()
        said(page, "The crawl begins")
        expect(page.get_by_role("heading", name="Crawl under way")).to_be_visible()

        page.goto(f"{world.url}/sellers/dmont")
        page.get_by_role("button", name="Pause the crawl of dmont").first.click()
        said(page, "is paused")
        page.get_by_role("button", name="Resume the crawl of dmont").first.click()
        said(page, "goes on")

        page.goto(f"{world.url}/products/{world.item_no}")
        expect(page.get_by_role("img", name="Price over time")).to_be_visible()
        expect(page.get_by_role("table", name=re.compile("Differences between"))).to_be_visible()

        page.goto(f"{world.url}/deletions")
        confirmed(page, "Approve the deletions of luxury-house", "Delete them")
        said(page, "are deleted")

        page.goto(f"{world.url}/outbox?status=FAILED")
        page.get_by_role("link", name="Details").first.click()
        page.get_by_role("button", name="Send again").click()
        said(page, "1 wait to be sent again")
        page.goto(f"{world.url}/outbox?status=FAILED")
        page.get_by_role("button", name=re.compile("Send all . failed again")).click()
        page.get_by_role("dialog").get_by_role("button", name="Send again").click()
        said(page, "wait to be sent again")

        page.goto(f"{world.url}/holds")
        confirmed(page, "Release the changes of bag & shoes/50%", "Release")
        said(page, "published")

        page.goto(f"{world.url}/agents?status=AVAILABLE")
        page.get_by_role("button", name=re.compile("^Block agent")).first.click()
        said(page, "is blocked")

        page.goto(f"{world.url}/users")
        page.get_by_label("User name").fill("park")
        page.get_by_role("button", name="Add and make a login link").click()
        link = page.get_by_label("A login link for park").input_value()
        page.get_by_role("button", name="Log out").click()

        page.goto(link)
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("link", name="Later").click()
        expect(page.get_by_role("link", name="Users and keys")).to_have_count(0)
        answer = page.goto(f"{world.url}/users")
        assert answer is not None
        assert answer.status == 403
        expect(page.get_by_role("heading", name="This needs the role admin")).to_be_visible()
        assert [text for text in seen.errors if "403" not in text] == []
        assert seen.elsewhere == []


@pytest.mark.parametrize(("language", "theme", "width"), [("ko", "dark", 390), ("en", "light", 1280)])
def test_no_page_has_a_serious_barrier_nor_scrolls_sideways(
    world: ConsoleWorld, language: str, theme: str, width: int
) -> None:
    chromium = find_chromium()
    assert chromium is not None
    with opened_page(chromium, width=width, height=844) as page:
        seen = watched(page, world.url)
        prefer(page, world.url, language, theme)
        log_in(page, world.url)
        for name, address in pages(world).items():
            page.goto(world.url + address)
            found = Axe().run(page).response["violations"]
            serious = [
                (one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")
            ]
            assert serious == [], name
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, name
        assert (seen.errors, seen.elsewhere) == ([], [])


def test_a_page_follows_the_crawl_without_moving_and_a_viewer_finds_no_button(world: ConsoleWorld) -> None:
    chromium = find_chromium()
    assert chromium is not None
    with opened_page(chromium, width=1280, height=900) as page:
        seen = watched(page, world.url)
        prefer(page, world.url, "en", "light")
        log_in(page, world.url, VIEWER)
        page.goto(f"{world.url}/sellers/dmont")
        before = page.locator("#progress progress").get_attribute("value")
        world.advance("dmont")
        expect(page.locator("#progress progress")).not_to_have_attribute("value", before or "")
        assert page.evaluate(SHIFT) < 0.01
        assert page.locator("main button").count() == 0
        assert (seen.errors, seen.elsewhere) == ([], [])
