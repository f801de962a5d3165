"""The commands that an operator looks with: product, changes and raw, and every list's manners."""

import re

import pytest
from rich.cells import cell_len
from sqlalchemy import text

from mustit_pipeline.domain.errors import Conflict, DomainError
from mustit_pipeline.domain.states import TaskType
from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.e2e.asking import ask, explained, on_screens, settings_of
from mustit_pipeline_tests.e2e.conftest import World
from mustit_pipeline_tests.integration.catalog.shelf import Shelf
from mustit_pipeline_tests.integration.crawls import crawl

KOREAN = "보는 셀러 & 50%"


@pytest.fixture(scope="module")
def shelf(world: World) -> Shelf:
    """A seller with a long name, two versions of a product, a deletion and a body that cannot be read."""
    shelf = Shelf(world.database, KOREAN)
    shelf.crawl(901, 902, stock=1, itemName="이탈리아 정품 미니 숄더백 블랙 레더 체인 스트랩")
    shelf.crawl(901, stock=2, sellingPrice=600000, discountPrice=540000)
    shelf.delete(902)
    shelf.open()
    shelf.put(TaskType.PRODUCT_DETAIL, 901, "<html>점검 중</html>".encode())
    shelf.swept()
    for _ in range(3):
        shelf.process()
    shelf.end()
    Shelf(world.database, "another seller").crawl(901)
    return shelf


@pytest.fixture(scope="module")
def settings(world: World) -> Settings:
    return settings_of(world)


def test_a_product_is_shown_in_any_version_and_compared_field_by_field(world: World, shelf: Shelf) -> None:
    mine = ("--seller", KOREAN)

    newest = ask(world, "product", "show", "901", *mine, "--json").document
    first = ask(world, "product", "show", "901", *mine, "--version", "1", "--json").document
    versions = ask(world, "product", "history", "901", *mine, "--json").document
    compared = ask(world, "product", "diff", "901", "1", "2", *mine, "--json").document
    shown = ask(world, "product", "diff", "901", "1", "2", *mine)

    assert (newest["version"], newest["productData"]["stock"], newest["deliveredVersion"]) == (2, 2, 0)
    assert (first["version"], first["newestVersion"], first["productData"]["stock"]) == (1, 2, 1)
    assert [(one["version"], one["lifeCycle"]) for one in versions] == [(2, "UPDATED"), (1, "CREATED")]
    assert versions[0]["changes"] == compared["changes"]
    assert {"type": "STOCK", "field": "stock", "old": 1, "new": 2} in compared["changes"]
    assert re.search(r"PRICE +sellingPrice +[\d,]+ +→ +600,000", shown.out)
    assert "\x1b" not in shown.out
    gone = ask(world, "product", "show", "902", "--json").document
    assert (gone["lifeCycle"], gone["productData"]) == ("DELETED", None)
    assert gone["deletedAt"]


def test_a_number_that_two_sellers_have_needs_one_of_them(world: World, shelf: Shelf) -> None:
    for arguments in (("show", "901"), ("history", "901"), ("diff", "901", "1", "1")):
        with pytest.raises(Conflict, match=f"another seller, {KOREAN}.*--seller"):
            ask(world, "product", *arguments)
    told = explained(world, "product", "show", "901", "--json")
    assert (told.code, told.document["errorCode"]) == (1, "CONFLICT_PRODUCT_AMBIGUOUS")
    assert told.document["message"] in told.err


def test_long_texts_are_compared_word_by_word_with_marks_where_there_is_no_colour(
    world: World, settings: Settings
) -> None:
    seller = "described"
    world.register(seller, 1)
    crawl(world.database, settings, seller)
    [item] = [product["itemNo"] for product in world.market.products(seller)]
    before = world.market.product(seller, item)["description"]
    world.market.set_fields(seller, item, description=f"{before} <p>새로운 안내</p>")
    crawl(world.database, settings, seller)

    shown = ask(world, "product", "diff", str(item), "1", "2").out
    changed = ask(world, "changes", "--seller", seller, "--type", "description").out

    assert "DESCRIPTION  description" in shown
    assert re.search(r"⋯ \d+ words ⋯", shown)
    assert re.search(r"\{\+\s*<p>새로운 안내</p>\+\}", shown)
    assert "[-" not in shown
    assert f"description {len(before):,} → {len(before) + 14:,} characters" in changed


def test_changes_are_listed_by_type_and_say_when_there_are_more(world: World, shelf: Shelf) -> None:
    prices = ask(world, "changes", "--seller", KOREAN, "--type", "price", "--since", "2h", "--json")
    newest = ask(world, "changes", "--seller", KOREAN, "--limit", "2", "--json")

    [price] = prices.document
    assert (price["itemNo"], price["version"], price["changeTypes"]) == (901, 2, ["PRICE", "PRODUCT_INFO", "STOCK"])
    assert "more" not in prices.err
    assert [one["lifeCycle"] for one in newest.document] == ["DELETED", "UPDATED"]
    assert "--limit" in newest.err


def test_executions_are_listed_with_what_their_sweeps_are_worth(world: World, settings: Settings) -> None:
    world.register("seen in part", 45)
    world.market.fault("status", "listing", sellerId="seen in part", pageNo=2, status=400)
    crawl(world.database, settings.model_copy(update={"page_size": 20}), "seen in part")
    world.market.clear_faults()

    listed = ask(world, "execution", "list", "--seller", "seen in part").out
    [execution] = ask(world, "execution", "list", "--seller", "seen in part", "--json").document

    assert re.search(rf"{execution['executionId'][:8]} +due +COMPLETED +INCOMPLETE +1 ", listed)
    assert (execution["sweep"], execution["failedTasks"]) == ("INCOMPLETE", 1)
    assert "1 of its pages failed" in ask(world, "execution", "show", execution["executionId"][:8]).out


def test_a_seller_is_shown_by_the_clock_in_seoul_and_to_machines_by_utc(world: World) -> None:
    world.register("timed", 1)
    with world.database.transaction() as connection:
        due = "UPDATE crawling_schedules SET next_due_at = '2026-11-16T20:30Z' WHERE seller_id = 'timed'"
        connection.execute(text(due))

    shown = ask(world, "seller", "show", "timed").out
    told = ask(world, "seller", "show", "timed", "--json").document

    assert re.search(r"next crawl +2026-11-17 05:30:00", shown)
    assert "T" not in "".join(re.findall(r"(?:registered|last changed) +(.*)", shown))
    assert told["nextDueAt"] == "2026-11-16T20:30:00+00:00"


def test_bodies_that_failed_are_listed_with_their_reason_and_replayed_without_a_request(
    world: World, shelf: Shelf
) -> None:
    mine = ("--seller", KOREAN)
    world.market.reset_audit()

    [failed] = ask(world, "raw", "list", "--status", "failed", *mine, "--json").document
    again = ask(world, "raw", "replay", *mine, "--json")

    assert (failed["source"], failed["itemNo"], failed["status"]) == ("PRODUCT_DETAIL", 901, "FAILED")
    assert failed["error"]
    assert again.code == 1
    assert (again.document["replayed"], again.document["failedBodies"], again.document["versions"]) == (1, 1, 0)
    shelf.detail(901, stock=7)
    shelf.change("""
        UPDATE product_raw_data SET body = (SELECT body FROM product_raw_data ORDER BY raw_id DESC LIMIT 1)
        WHERE status = 'FAILED' AND error_code IS NOT NULL
    """)
    shelf.change("DELETE FROM product_raw_data WHERE status = 'PENDING'")
    mended = ask(world, "raw", "replay", *mine, "--since", "1d")
    assert mended.code == 0, mended.err
    assert "Replayed 1 failed bodies; made 1 versions." in mended.out
    assert "STOCK 1" in mended.out
    assert ask(world, "raw", "replay", *mine).out == "There is no failed body to replay.\n"
    assert world.market.requested_urls() == {}


@pytest.fixture(scope="module")
def silent(world: World) -> str:
    """A seller that has never been crawled."""
    world.register("silent", 1)
    return "silent"


@pytest.mark.parametrize(
    "command",
    [
        ("changes",),
        ("changes", "--type", "PRICE", "--since", "3d"),
        ("raw", "list"),
        ("deletions", "list"),
        ("outbox", "list"),
        ("execution", "list"),
    ],
    ids=" ".join,
)
def test_a_list_with_nothing_in_it_says_so_in_a_sentence(world: World, silent: str, command: tuple[str, ...]) -> None:
    told = ask(world, *command, "--seller", silent)
    listed = ask(world, *command, "--seller", silent, "--json")

    assert (told.code, listed.code, listed.document) == (0, 0, [])
    assert re.fullmatch(r"[A-Z][^\n]*silent[^\n]*\.\n", told.out)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("product", "show", "0"), "VALIDATION_ITEM_NO_POSITIVE"),
        (("product", "history", "99999999999999999999"), "VALIDATION_ITEM_NO_LARGE"),
        (("product", "show", "4"), "NOT_FOUND_PRODUCT"),
        (("product", "show", "902", "--version", "9"), "NOT_FOUND_VERSION"),
        (("product", "diff", "902", "1", "0"), "NOT_FOUND_VERSION"),
        (("changes", "--since", "soon"), "VALIDATION_TIME"),
        (("changes", "--type", "COLOUR"), "VALIDATION_CHANGE_TYPE"),
        (("changes", "--seller", "stranger"), "NOT_FOUND_SELLER"),
        (("raw", "list", "--since", "99"), "VALIDATION_TIME"),
        (("raw", "replay", "--seller", "stranger"), "NOT_FOUND_SELLER"),
        (("execution", "list", "--seller", "stranger"), "NOT_FOUND_SELLER"),
        (("execution", "show", "latest"), "VALIDATION_ID"),
        (("execution", "cancel", "00000000"), "NOT_FOUND_EXECUTION"),
        (("agents", "block", "00000000"), "NOT_FOUND_USER_AGENT"),
        (("agents", "unblock", "mozilla"), "VALIDATION_ID"),
        (("deletions", "show", "latest"), "VALIDATION_ID"),
        (("deletions", "approve", "00000000"), "NOT_FOUND_DELETION_HOLD"),
        (("outbox", "show", "00000000"), "NOT_FOUND_OUTBOX"),
        (("outbox", "retry", "00000000"), "NOT_FOUND_OUTBOX"),
        (("outbox", "retry", "--status", "WAITING"), "CONFLICT_OUTBOX_RETRY"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_what_cannot_be_found_or_read_is_a_clear_error(
    world: World, shelf: Shelf, arguments: tuple[str, ...], code: str
) -> None:
    with pytest.raises(DomainError) as refused:
        ask(world, *arguments)

    assert refused.value.code == code


@pytest.mark.parametrize(
    "arguments",
    [
        ("product", "show", "abc"),
        ("product", "diff", "901", "1"),
        ("changes", "--limit", "0"),
        ("raw", "list", "--status", "ODD"),
        ("outbox", "retry"),
        ("outbox", "retry", "00000000", "--status", "FAILED"),
        ("outbox", "retry", "00000000", "--seller", "dmont"),
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_2(world: World, arguments: tuple[str, ...]) -> None:
    answer = ask(world, *arguments)

    assert (answer.code, answer.out) == (2, "")
    assert "Usage: mustit" in answer.err


@pytest.mark.parametrize("columns", [80, 120])
def test_tables_fit_the_screen_and_keep_what_matters_whole(world: World, shelf: Shelf, columns: int) -> None:
    mine = ("--seller", KOREAN)
    commands = {
        "changes": ("changes", *mine),
        "outbox": ("outbox", "list", *mine),
        "raw": ("raw", "list", *mine),
        "execution": ("execution", "list", *mine),
        "diff": ("product", "diff", "901", "1", "2", *mine),
    }
    screens = dict(zip(commands, on_screens(world, columns, *commands.values()), strict=True))

    for name, lines in screens.items():
        assert max(cell_len(line) for line in lines) <= columns, name
    for name in ("changes", "outbox", "raw"):
        assert sum("901" in line.split() for line in screens[name]) >= 2, "\n".join(screens[name])
    assert sum("COMPLETE" in line.split() for line in screens["execution"]) == 3, "\n".join(screens["execution"])
    whole = "\n".join(screens["changes"])
    assert re.search(r"\d\d-\d\d \d\d:\d\d +901 +2 +PRICE", whole)
    assert "STOCK" in whole
