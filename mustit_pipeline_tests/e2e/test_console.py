"""The admin's day in a real browser: in both languages, on a desk and on a phone, with nothing from elsewhere."""

import re
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect

from mustit_pipeline.api.languages import Language
from mustit_pipeline.console.languages import say, say_number
from mustit_pipeline_tests.conftest import NO_CHROMIUM
from mustit_pipeline_tests.e2e.browser import find_chromium, opened_page
from mustit_pipeline_tests.e2e.console_screens import log_in, pages, prefer
from mustit_pipeline_tests.e2e.console_world import ADMIN, PASSWORD, VIEWER, ConsoleWorld, Trouble, console_world

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
    expect.set_options(timeout=PATIENCE_MILLISECONDS)
    page.set_default_timeout(PATIENCE_MILLISECONDS)
    page.on("console", lambda message: seen.errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: seen.errors.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith(url) else seen.elsewhere.append(request.url))
    return seen


class Mouse:
    """A person with a mouse, or a finger."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def press(self, control: Locator) -> None:
        control.click()

    def write(self, field: Locator, text: str) -> None:
        field.fill(text)

    def choose(self, field: Locator, value: str) -> None:
        field.select_option(value)


class Keyboard:
    """A person with a keyboard alone: Tab to whatever is wanted, Enter or Space, and letters."""

    MOST_TABS = 300

    def __init__(self, page: Page) -> None:
        self.page = page

    def press(self, control: Locator) -> None:
        self._reach(control)
        has_space = control.evaluate("one => one.matches('button, [type=checkbox]')")
        self.page.keyboard.press("Space" if has_space else "Enter")

    def write(self, field: Locator, text: str) -> None:
        self._reach(field)
        self.page.keyboard.press("Control+a")
        self.page.keyboard.type(text)

    def choose(self, field: Locator, value: str) -> None:
        self._reach(field)
        for _ in range(field.locator("option").count()):
            if field.input_value() != value:
                self.page.keyboard.press("ArrowDown")

    def _reach(self, control: Locator) -> None:
        control.wait_for()
        if control.evaluate(IS_BEYOND_THE_MENU):
            self.page.keyboard.press("Tab")
            assert self.page.evaluate("document.activeElement.className") == "skip"
            self.page.keyboard.press("Enter")
        for _ in range(self.MOST_TABS):
            if control.evaluate("one => one === document.activeElement"):
                break
            self.page.keyboard.press("Tab")
        assert control.evaluate(HAS_VISIBLE_FOCUS), "the focus does not come here, or is not seen"


IS_BEYOND_THE_MENU = "one => document.activeElement === document.body && !!one.closest('main')"
HAS_VISIBLE_FOCUS = """one => one === document.activeElement && one.matches(':focus-visible')
  && parseFloat(getComputedStyle(one).outlineWidth) >= 2"""


class Admin:
    """An admin at a screen, who reads one language."""

    def __init__(self, hands: Mouse | Keyboard, language: Language, *, javascript: bool = True) -> None:
        self.hands, self.page, self.language = hands, hands.page, language
        # Where a question is asked: without JavaScript on a page of its own.
        self.questions = hands.page.get_by_role("dialog" if javascript else "main")

    def text(self, english: str, **values: object) -> str:
        return say(self.language, english, **values)

    def button(self, english: str, **values: object) -> None:
        self.hands.press(self.page.get_by_role("button", name=self.text(english, **values), exact=True).first)

    def link(self, english: str, **values: object) -> None:
        self.hands.press(self.page.get_by_role("link", name=self.text(english, **values), exact=True).first)

    def write(self, label: str, text: str) -> None:
        self.hands.write(self.page.get_by_label(self.text(label), exact=True).first, text)

    def menu(self, english: str) -> None:
        """Go to a page by the menu, which a phone shows behind a link; an entry may say how many wait."""
        self.open_menu()
        entries = self.page.get_by_role("navigation", name=self.text("Pages"), exact=True).get_by_role("link")
        self.hands.press(entries.filter(has_text=re.compile(rf"^\s*{re.escape(self.text(english))}")).first)
        self.page.wait_for_load_state()

    def log_out(self) -> None:
        self.open_menu()
        self.button("Log out")
        self.page.wait_for_url(re.compile("/login$"))

    def open_menu(self) -> None:
        narrow = self.page.locator("a.menu-link")
        if narrow.is_visible():
            self.hands.press(narrow)

    def agree(self, english: str) -> None:
        """Say yes to the question."""
        self.hands.press(self.questions.get_by_role("button", name=self.text(english), exact=True))

    def is_told(self, english: str, **values: object) -> None:
        """The notice of the last action, without its number."""
        words = re.escape(self.text(english, **values)).split("NUMBER")
        expect(self.page.get_by_role("status").first).to_contain_text(re.compile(".*".join(words)))


@pytest.mark.parametrize(("language", "width", "hands"), [("en", 1280, Keyboard), ("ko", 390, Mouse)])
def test_the_day_of_an_admin(
    world: ConsoleWorld, language: str, width: int, hands: type[Mouse] | type[Keyboard]
) -> None:
    chromium = find_chromium()
    assert chromium is not None
    name = f"{language}-{width}"
    trouble = world.make_trouble(name)
    with opened_page(chromium, width=width, height=844) as page:
        seen = watched(page, world.url)
        prefer(page, world.url, language, "light")
        admin = Admin(hands(page), Language(language))
        page.goto(world.url)
        admin.write("User name", ADMIN)
        admin.write("Password", PASSWORD)
        admin.button("Log in")
        expect(page.get_by_role("heading", name=admin.text("Overview"), exact=True)).to_be_visible()

        register_and_watch(admin, world, f"new & shop/{name}")
        look_at_a_product(admin, world)
        pause_and_resume(admin)
        # Deletions make newer versions, which supersede failed events: these come first.
        send_again(admin, world, trouble)
        decide(admin, trouble)

        admin.menu("User agents")
        hands(page).press(page.get_by_role("button", name=re.compile(_form(admin, "Block agent %(agent)s"))).first)
        admin.is_told("The agent is blocked. Written to the audit log.")
        admin.button("Undo")
        admin.is_told("The agent is in use again. Written to the audit log.")

        be_refused_as_a_viewer(admin, world, f"park-{name}")
        assert [text for text in seen.errors if "403" not in text] == []
        assert seen.elsewhere == []


def _form(admin: Admin, english: str) -> str:
    """A pattern for a name that holds a value."""
    before, _, after = admin.text(english).partition("%(agent)s")
    return f"^{re.escape(before)}[0-9a-f]+{re.escape(after)}$"


def register_and_watch(admin: Admin, world: ConsoleWorld, seller: str) -> None:
    """A crawl from its begin to its end, on a page that keeps up with it and does not move."""
    page = admin.page
    register(admin, world, seller)
    page.evaluate(COUNT_SHIFTS)
    with ThreadPoolExecutor(1) as worker:
        ended = worker.submit(world.crawl, seller)
        expect(page.get_by_role("heading", name=admin.text("Last crawl"), exact=True)).to_be_visible()
        ended.result()
    expect(page.locator("#progress .chip")).to_have_text(admin.text("Completed"))
    expect(page.get_by_role("table", name=admin.text("Newest changes")).get_by_role("row")).to_have_count(9)
    assert page.evaluate("shifts") == []


def register(admin: Admin, world: ConsoleWorld, seller: str) -> None:
    """A new seller, whose first crawl is open."""
    world.sell(seller, 25)
    admin.menu("Sellers")
    admin.write("Seller id on the marketplace", seller)
    admin.button("Register")
    admin.is_told("%(seller)s is registered. Its first crawl is due now.", seller=seller)
    admin.button("Crawl now")
    admin.is_told("The crawl begins within half a minute.")
    expect(admin.page.get_by_role("heading", name=admin.text("Crawl under way"), exact=True)).to_be_visible()


COUNT_SHIFTS = """() => {
  window.shifts = [];
  new PerformanceObserver((list) => {
    for (const one of list.getEntries()) if (!one.hadRecentInput)
      window.shifts.push([one.value, ...one.sources.map((source) => source.node?.outerHTML?.slice(0, 80))]);
  }).observe({ type: "layout-shift" });
}"""


def look_at_a_product(admin: Admin, world: ConsoleWorld) -> None:
    admin.menu("Products")
    admin.write("Number, or name within a seller", str(world.item_no))
    admin.button("Filter")
    admin.hands.press(admin.page.get_by_role("link", name=str(world.item_no), exact=True))
    expect(admin.page.get_by_role("img", name=admin.text("Price over time"))).to_be_visible()
    heading = admin.text("Versions side by side")
    expect(admin.page.get_by_role("region", name=heading).get_by_role("table").first).to_be_visible()


def pause_and_resume(admin: Admin) -> None:
    admin.menu("Crawls")
    admin.write("Seller", "dmont")
    admin.button("Filter")
    admin.button("Pause the crawl of %(seller)s", seller="dmont")
    admin.is_told("The crawl is paused; requests in flight end normally. Written to the audit log.")
    admin.button("Resume the crawl of %(seller)s", seller="dmont")
    admin.is_told("The crawl goes on. Written to the audit log.")


def decide(admin: Admin, trouble: Trouble) -> None:
    admin.menu("Held deletions")
    admin.button("Approve the deletions of %(seller)s", seller=trouble.gone)
    admin.agree("Delete them")
    expect(admin.page.get_by_role("status").first).to_contain_text("12")
    admin.menu("Held changes")
    admin.button("Release the changes of %(seller)s", seller=trouble.jumpy)
    admin.agree("Release")
    expect(admin.page.get_by_role("status").first).to_contain_text("25")


def send_again(admin: Admin, world: ConsoleWorld, trouble: Trouble) -> None:
    """One failed event by its page, one by its box, then all that match."""
    list_failed(admin, trouble)
    expect(admin.page.locator("tbody").get_by_role("checkbox")).to_have_count(trouble.failed)
    failed = admin.page.get_by_role("row").filter(has=admin.page.get_by_role("checkbox", checked=False))
    admin.hands.press(failed.nth(1).get_by_role("link", name=admin.text("Details"), exact=True))
    admin.button("Send again")
    waiting = "%(waiting)s wait to be sent again, %(superseded)s are superseded by newer versions."
    admin.is_told(waiting, waiting="NUMBER", superseded="NUMBER")
    list_failed(admin, trouble)
    admin.hands.press(failed.nth(1).get_by_role("checkbox"))
    admin.button("Send the chosen ones again")
    admin.is_told(waiting, waiting="NUMBER", superseded="NUMBER")
    one = "Send all %(number)s failed again"
    admin.hands.press(
        admin.page.get_by_role("button", name=say_number(admin.language, one, one, trouble.failed - 2), exact=True)
    )
    admin.agree("Send again")
    admin.is_told(waiting, waiting="NUMBER", superseded="NUMBER")
    left = f"SELECT count(*) FROM product_outbox WHERE status = 'FAILED' AND seller_id = '{trouble.gone}'"
    assert world.first(left) == 0


def list_failed(admin: Admin, trouble: Trouble) -> None:
    admin.menu("Events")
    admin.hands.choose(admin.page.get_by_label(admin.text("Status"), exact=True), "FAILED")
    admin.write("Seller", trouble.gone)
    admin.button("Filter")


def be_refused_as_a_viewer(admin: Admin, world: ConsoleWorld, name: str) -> None:
    page = admin.page
    admin.menu("Users and keys")
    admin.write("User name", name)
    admin.button("Add and make a login link")
    link = page.get_by_label(admin.text("A login link for %(name)s", name=name)).input_value()
    admin.log_out()
    page.goto(link)
    admin.button("Log in")
    admin.link("Later")
    expect(page.get_by_role("heading", name=admin.text("Overview"), exact=True)).to_be_visible()
    assert page.locator('a[href="/users"]').count() == 0
    answer = page.goto(f"{world.url}/users")
    assert answer is not None
    assert answer.status == 403
    assert page.request.post(f"{world.url}/sellers/dmont/crawl").status == 403
    admin.log_out()


def test_without_javascript_everything_works_but_liveness(world: ConsoleWorld) -> None:
    chromium = find_chromium()
    assert chromium is not None
    trouble = world.make_trouble("plain")
    with opened_page(chromium, width=390, height=844, javascript=False) as page:
        seen = watched(page, world.url)
        prefer(page, world.url, "ko", "light")
        admin = Admin(Mouse(page), Language.KOREAN, javascript=False)
        log_in(page, world.url)
        register(admin, world, "new & shop/plain")
        with ThreadPoolExecutor(1) as worker:
            worker.submit(world.crawl, "new & shop/plain").result()
        page.reload()
        expect(page.locator("#progress .chip")).to_have_text(admin.text("Completed"))
        look_at_a_product(admin, world)
        pause_and_resume(admin)
        send_again(admin, world, trouble)
        decide(admin, trouble)
        admin.menu("User agents")
        page.locator("tbody").get_by_role("checkbox").first.check()
        admin.button("For the chosen ones")
        admin.agree("Block the agents")
        admin.button("Undo")
        admin.is_told("Done: %(number)s.", number="1")
        admin.open_menu()
        page.get_by_role("button", name="English", exact=True).click()
        expect(page.get_by_role("heading", name="User agents", exact=True)).to_be_visible()
        be_refused_as_a_viewer(Admin(Mouse(page), Language.ENGLISH, javascript=False), world, "park-plain")
        assert seen.elsewhere == []


@pytest.mark.parametrize(("language", "width", "theme"), [("ko", 390, "dark"), ("en", 1280, "light")])
def test_no_page_has_a_serious_barrier_in_either_theme_nor_scrolls_sideways(
    world: ConsoleWorld, language: str, width: int, theme: str
) -> None:
    chromium = find_chromium()
    assert chromium is not None
    with opened_page(chromium, width=width, height=844) as page:
        seen = watched(page, world.url)
        prefer(page, world.url, language, theme)
        page.goto(f"{world.url}/login")
        assert page.locator("html").get_attribute("data-theme") == theme
        assert barriers(page) == []
        log_in(page, world.url)
        for name, address in pages(world).items():
            page.goto(world.url + address)
            assert barriers(page) == [], name
            for each in (1280, 390):
                page.set_viewport_size({"width": each, "height": 844})
                assert page.evaluate(TOO_WIDE) == [], (name, each)
            page.set_viewport_size({"width": width, "height": 844})
            if name == "product":
                page.emulate_media(media="print")
                assert page.evaluate(COLOUR_OF_A_CARD) == "rgb(255, 255, 255)", "dark paper"
                page.emulate_media(media="screen")
        assert ([text for text in seen.errors if "404" not in text], seen.elsewhere) == ([], [])


COLOUR_OF_A_CARD = "getComputedStyle(document.querySelector('.card')).backgroundColor"
# The page itself, figures, and tables in their frames; those that are made to scroll take the focus for it.
TOO_WIDE = """() => [document.documentElement,
    ...document.querySelectorAll("main :is(.scroll:not([tabindex]), .figure)")]
  .filter((one) => one.scrollWidth > one.clientWidth + 1)
  .map((one) => [(one.querySelector("h1, caption") || one).textContent, one.scrollWidth - one.clientWidth])"""


def barriers(page: Page) -> list[tuple[str, str]]:
    """What axe finds serious."""
    found = Axe().run(page).response["violations"]
    return [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")]


def test_pages_follow_the_crawl_without_moving_and_a_viewer_finds_no_button(world: ConsoleWorld) -> None:
    chromium = find_chromium()
    assert chromium is not None
    with opened_page(chromium, width=1280, height=900) as page:
        seen = watched(page, world.url)
        prefer(page, world.url, "en", "light")
        log_in(page, world.url, VIEWER)
        addresses = pages(world)
        for name in ("overview", "seller", "crawl"):
            page.goto(world.url + addresses[name])
            bar = page.locator("main progress[aria-label^=Progress]").first
            before = bar.get_attribute("value")
            world.advance("dmont")
            expect(bar).not_to_have_attribute("value", before or "")
            assert page.evaluate(SHIFT) < 0.01, name
        for name, address in addresses.items():
            page.goto(world.url + address)
            assert page.locator("main form[method=post] button").count() == 0 or name == "password", name
        refused = [text for text in seen.errors if "403" not in text and "404" not in text]
        assert (refused, seen.elsewhere) == ([], [])
