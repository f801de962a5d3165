"""Bodies whose content was read when they came: unchanged ones touch nothing, and their order still decides."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import orjson
import pytest
from sqlalchemy import event, text

from mustit_pipeline.catalog import canonical
from mustit_pipeline.catalog.absorbing import absorb, read_ahead
from mustit_pipeline.catalog.processing import BatchSize, process
from mustit_pipeline.catalog.reading import USUAL_READING
from mustit_pipeline.catalog.replay import replay_failed, replay_stored
from mustit_pipeline.catalog.sql import raw
from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.planning import PRODUCT_TYPES, plan_products
from mustit_pipeline.crawling.sql import leases, tasks
from mustit_pipeline.crawling.steering import open_or_join
from mustit_pipeline.domain.states import LifeCycle, TaskType
from mustit_pipeline.domain.values import ItemNo, SellerId
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.marketplace.endpoints import Endpoints
from mustit_pipeline.marketplace.parsing import parse_detail, parse_options
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.catalog.shelf import Shelf, assert_whole, utc_now
from mustit_pipeline_tests.integration.crawls import register
from mustit_pipeline_tests.unit.marketplace import bodies

WAITING = "SELECT count(*) AS n FROM product_raw_data WHERE status = 'PENDING'"


@pytest.fixture
def shelf(database: Database) -> Shelf:
    return Shelf(database)


def detail(shelf: Shelf, item: int, *, known: bool = True, lacking: str | None = None, **changes: Any) -> None:
    """A detail arrives; the worker has read it already where that is known, and it may lack a module."""
    info = bodies.info(**{"itemNo": item, "itemName": f"상품 {item}", "sellerId": shelf.seller_id} | changes)
    modules: dict[str, Any] = {"ProductInfoModule": info} | ({lacking: None} if lacking else {})
    body = bodies.encoded(bodies.detail(**modules))
    content = canonical.content_of(parse_detail(body, item_no=item)) if known else None
    shelf.put(TaskType.PRODUCT_DETAIL, item, body, content)


def options(shelf: Shelf, item: int, **changes: Any) -> None:
    """One option arrives, and the worker has read it already."""
    body = bodies.encoded([bodies.option(**{"itemNo": item} | changes)])
    shelf.put(TaskType.PRODUCT_OPTION, item, body, canonical.content_of(parse_options(body, item_no=item)))


def fetch(shelf: Shelf, *items: int, **changes: Any) -> None:
    """Everything of these products arrives in an execution whose sweep is over."""
    shelf.listing(*items)
    for item in items:
        detail(shelf, item, **changes)
        options(shelf, item)
    shelf.swept()


def stock(shelf: Shelf, item: int = 1) -> int:
    (row,) = shelf.rows("SELECT data FROM products WHERE item_no = :item", item=item)
    return orjson.loads(row["data"])["stock"]


def product_rows(shelf: Shelf) -> list[tuple[str, Any]]:
    """Every product with the transaction that wrote it last."""
    return [(row["x"], row) for row in shelf.rows("SELECT CAST(xmin AS text) AS x, * FROM products ORDER BY item_no")]


def test_a_second_crawl_with_the_same_content_processes_its_bodies_and_touches_no_product(shelf: Shelf) -> None:
    fetch(shelf, 1, 2, 3)
    assert shelf.process().versions == {LifeCycle.CREATED: 3}
    shelf.end()
    shelf.open()
    fetch(shelf, 1, 2, 3)
    before = product_rows(shelf)

    report = shelf.process()

    assert (report.bodies, report.failed_bodies, report.versions) == (1 + 2 * 3, 0, {})
    assert product_rows(shelf) == before
    assert shelf.rows("SELECT DISTINCT status, attempts, content FROM product_raw_data") == [
        {"status": "PROCESSED", "attempts": 1, "content": None}
    ]
    assert_whole(shelf.database)


def test_a_change_among_unchanged_bodies_is_the_only_thing_that_is_read(shelf: Shelf) -> None:
    fetch(shelf, 1, 2, 3)
    shelf.process()
    shelf.end()
    shelf.open()
    fetch(shelf, 1, 3)
    detail(shelf, 2, stock=9)

    report = shelf.process()

    assert (report.versions, report.changes) == ({LifeCycle.UPDATED: 1}, {"STOCK": 1})
    assert [stock(shelf, item) for item in (1, 2, 3)] == [3, 9, 3]


@pytest.mark.parametrize("batch", [BatchSize(), BatchSize(bodies=1)], ids=["one batch", "one each"])
def test_of_two_waiting_bodies_the_newer_one_has_the_last_word_although_it_says_what_was_known(
    shelf: Shelf, batch: BatchSize
) -> None:
    """Were the newer one put aside as unchanged, the older one would undo what it says."""
    fetch(shelf, 1)
    shelf.process()
    shelf.end()
    shelf.open()
    detail(shelf, 1, stock=50)
    detail(shelf, 1)
    options(shelf, 1, stock=70)
    options(shelf, 1)
    shelf.swept()

    shelf.process(batch)

    assert shelf.rows(WAITING) == [{"n": 0}]
    assert stock(shelf) == 3
    (row,) = shelf.rows("SELECT data FROM products")
    assert [option["stock"] for option in orjson.loads(row["data"])["options"]] == [1]
    assert shelf.versions(1) == [(1, "CREATED")]


def test_of_two_waiting_bodies_a_newer_one_that_differs_counts_too(shelf: Shelf) -> None:
    fetch(shelf, 1)
    shelf.process()
    shelf.end()
    shelf.open()
    detail(shelf, 1)
    detail(shelf, 1, stock=50)
    shelf.swept()

    assert shelf.process().versions == {LifeCycle.UPDATED: 1}
    assert stock(shelf) == 50


def meanwhile(shelf: Shelf, act: Callable[[], object], after: str) -> Callable[[], None]:
    """Do something once, right after a statement of that kind was sent; call the answer to stop watching."""
    done: list[str] = []

    def watch(_: object, __: object, statement: str, *___: object) -> None:
        if after in statement and not done:
            done.append(statement)
            act()

    event.listen(shelf.database.engine, "after_cursor_execute", watch)
    return lambda: event.remove(shelf.database.engine, "after_cursor_execute", watch)


def test_a_listing_that_arrives_after_details_were_read_ahead_is_processed_before_them(shelf: Shelf) -> None:
    fetch(shelf, 1)
    shelf.process()
    shelf.end()
    shelf.open()
    shelf.swept()
    # Both differ from what they said, on the same field: the one that is taken last stays.
    detail(shelf, 1, discountPrice=300)
    stop = meanwhile(shelf, lambda: shelf.listing(1, price="400"), after="WITH listings AS")
    try:
        shelf.process()
    finally:
        stop()

    assert shelf.rows(WAITING) == [{"n": 0}]
    (newest,) = shelf.rows("SELECT changes FROM product_change_sets WHERE version = 2")
    assert newest["changes"] == [{"type": "PRICE", "field": "discountPrice", "old": 565100, "new": 300}]
    assert_whole(shelf.database)


def test_an_older_body_that_is_opened_again_after_a_newer_one_was_read_ahead_does_not_undo_it(shelf: Shelf) -> None:
    """Its replay looks whether a newer one is in the catalog, and that one was on its way there."""
    fetch(shelf, 1)
    shelf.process()
    shelf.end()
    shelf.open()
    detail(shelf, 1, stock=5)
    shelf.change("UPDATE product_raw_data SET status = 'FAILED', attempts = 3 WHERE status = 'PENDING'")
    shelf.end()
    shelf.open()
    shelf.swept()
    detail(shelf, 1, stock=6)

    def open_again() -> None:
        with shelf.database.transaction() as connection:
            assert raw.replay_failed(connection, shelf.seller_id, None, None) == 1

    stop = meanwhile(shelf, open_again, after="WITH listings AS")
    try:
        shelf.process()
    finally:
        stop()

    assert shelf.rows(WAITING) == [{"n": 0}]
    assert shelf.rows("SELECT CAST(data AS json) ->> 'stock' AS stock FROM products") == [{"stock": "6"}]


def test_a_body_that_another_processor_took_after_it_was_read_ahead_is_not_processed_again(shelf: Shelf) -> None:
    fetch(shelf, 1)
    taken = "UPDATE product_raw_data SET status = 'PROCESSED' WHERE source = 'PRODUCT_OPTION'"
    stop = meanwhile(shelf, lambda: shelf.change(taken), after="WITH listings AS")
    try:
        report = shelf.process()
    finally:
        stop()

    assert (report.bodies, report.versions) == (2, {})
    assert shelf.rows("SELECT complete FROM products") == [{"complete": False}]


def test_what_was_merged_ahead_from_a_state_that_has_passed_is_merged_anew(shelf: Shelf) -> None:
    fetch(shelf, 1)
    shelf.process()
    shelf.end()
    shelf.open()
    detail(shelf, 1, stock=50)
    options(shelf, 1, stock=70)
    following = partial(read_ahead, shelf.database, SellerId(shelf.seller_id), USUAL_READING, pages=1, bodies=1)
    first = following()
    for ahead in (first, following(beside=first.attempts)):
        with shelf.database.transaction() as connection:
            assert absorb(connection, shelf.seller_id, ahead) == (1, 0)

    (row,) = shelf.rows("SELECT data FROM products")
    data = orjson.loads(row["data"])
    assert (data["stock"], [option["stock"] for option in data["options"]]) == (50, [70])


def test_what_a_leased_call_said_last_is_known_and_the_same_again_is_not_kept_beside_its_body(
    shelf: Shelf, make_settings: MakeSettings
) -> None:
    fetch(shelf, 1)
    shelf.process()
    shelf.swept()
    planned = plan_products(Endpoints.from_settings(make_settings()), {1: 1, 2: 1})
    with shelf.database.transaction() as connection:
        tasks.add(connection, shelf.stored.home, planned)
        leased = leases.claim(
            connection, shelf.stored.home, PRODUCT_TYPES, owner="x", limit=10, lease_seconds=30, max_retries=2
        )
    (row,) = shelf.rows("SELECT detail_data_hash AS detail, option_data_hash AS options FROM products")
    assert {(lease.task.item_no, lease.task.task_type): lease.known_hash for lease in leased} == {
        (ItemNo(1), TaskType.PRODUCT_DETAIL): row["detail"],
        (ItemNo(1), TaskType.PRODUCT_OPTION): row["options"],
        (ItemNo(2), TaskType.PRODUCT_DETAIL): None,
        (ItemNo(2), TaskType.PRODUCT_OPTION): None,
    }

    same = canonical.content_of(parse_options(bodies.encoded([bodies.option(itemNo=1)]), item_no=1), row["options"])
    other = canonical.content_of(parse_options(b"[]", item_no=1), row["options"])
    assert (same.text, same.hash) == (None, row["options"])
    assert other.text == '{"options":[]}'


def test_an_unchanged_body_without_its_content_is_read_where_another_one_waits_too(shelf: Shelf) -> None:
    fetch(shelf, 1)
    shelf.process()
    shelf.end()
    shelf.open()
    (row,) = shelf.rows("SELECT detail_data_hash AS known FROM products")
    detail(shelf, 1, stock=50)
    info = bodies.info(itemNo=1, itemName="상품 1", sellerId=shelf.seller_id)
    body = bodies.encoded(bodies.detail(ProductInfoModule=info))
    shelf.put(TaskType.PRODUCT_DETAIL, 1, body, canonical.Content(None, row["known"]))
    shelf.swept()

    shelf.process()

    assert shelf.rows(WAITING) == [{"n": 0}]
    assert stock(shelf) == 3
    assert_whole(shelf.database)


def test_processors_at_once_of_a_second_crawl_take_every_body_and_make_every_version_once(shelf: Shelf) -> None:
    items = range(1, 31)
    fetch(shelf, *items)
    shelf.process()
    shelf.end()
    shelf.open()
    shelf.listing(*items)
    for item in items:
        # A third of them has changed, and is fetched twice.
        detail(shelf, item, stock=3 if item % 3 else 40)
        options(shelf, item)
        if item % 3 == 0:
            detail(shelf, item, stock=41)
    shelf.swept()

    with ThreadPoolExecutor(3) as threads:
        reports = list(threads.map(lambda _: shelf.process(BatchSize(bodies=3, versions=3)), range(3)))

    assert sum(report.bodies for report in reports) == 1 + 2 * 30 + 10
    assert sum((report.versions for report in reports), Counter[LifeCycle]()) == {LifeCycle.UPDATED: 10}
    assert {stock(shelf, item) for item in items if item % 3 == 0} == {41}
    assert_whole(shelf.database)


@pytest.mark.parametrize("known", [True, False], ids=["read by the worker", "read by the catalog"])
@pytest.mark.parametrize("lacking", ["ShippingModule", "ProductDetailInfoModule", "ProductBannersModule"])
def test_a_detail_that_lacks_a_module_leaves_its_fields_as_they_were(shelf: Shelf, lacking: str, known: bool) -> None:
    fetch(shelf, 1, known=known)
    shelf.process()
    (before,) = shelf.rows("SELECT data FROM products")
    shelf.end()
    shelf.open()
    shelf.listing(1)
    detail(shelf, 1, known=known, lacking=lacking, stock=9)
    shelf.swept()

    assert shelf.process().changes == {"STOCK": 1}

    (after,) = shelf.rows("SELECT data FROM products")
    assert orjson.loads(after["data"]) == orjson.loads(before["data"]) | {"stock": 9}


@pytest.mark.parametrize("known", [True, False], ids=["read by the worker", "read by the catalog"])
def test_a_module_that_comes_back_as_it_was_is_no_change(shelf: Shelf, known: bool) -> None:
    fetch(shelf, 1, known=known)
    shelf.process()
    for lacking in ("ShippingModule", None):
        shelf.end()
        shelf.open()
        shelf.listing(1)
        detail(shelf, 1, known=known, lacking=lacking)
        shelf.swept()
        assert shelf.process().versions == {}
    assert shelf.versions(1) == [(1, "CREATED")]


def test_a_replay_reads_the_body_and_not_what_was_kept_beside_it(shelf: Shelf) -> None:
    """The content was read by the code that had to be fixed."""
    shelf.listing(1)
    options(shelf, 1)
    body = bodies.encoded(bodies.detail(ProductInfoModule=bodies.info(itemNo=1, sellerId=shelf.seller_id, stock=5)))
    misread = bodies.encoded(bodies.detail(ProductInfoModule=bodies.info(itemNo=1, sellerId=shelf.seller_id, stock=0)))
    wrong = canonical.content_of(parse_detail(misread, item_no=1))
    shelf.put(TaskType.PRODUCT_DETAIL, 1, body, wrong)
    shelf.change("UPDATE product_raw_data SET status = 'FAILED', attempts = 3 WHERE source = 'PRODUCT_DETAIL'")
    shelf.swept()
    assert shelf.process().versions == {}

    done = replay_failed(shelf.database, seller_id=SellerId(shelf.seller_id), since=None, now=utc_now)

    assert done.reopened == 1
    assert stock(shelf) == 5
    assert shelf.versions(1) == [(1, "CREATED")]


def test_a_failed_body_that_is_tried_again_is_read_again_even_where_its_hash_is_the_known_one(shelf: Shelf) -> None:
    fetch(shelf, 1)
    shelf.process()
    shelf.end()
    shelf.open()
    body = bodies.encoded(bodies.detail(ProductInfoModule=bodies.info(itemNo=1, sellerId=shelf.seller_id, stock=5)))
    with shelf.database.reading() as connection:
        known_hash = connection.execute(text("SELECT detail_data_hash FROM products")).scalar_one()
    shelf.put(TaskType.PRODUCT_DETAIL, 1, body, canonical.Content("{}", known_hash))
    shelf.change("UPDATE product_raw_data SET status = 'FAILED' WHERE status = 'PENDING'")
    shelf.swept()

    assert shelf.process().changes["STOCK"] == 1
    assert stock(shelf) == 5


def test_unchanged_bodies_are_settled_however_many_statements_that_takes(shelf: Shelf) -> None:
    fetch(shelf, 1, 2, 3, 4, 5)
    shelf.process()
    shelf.end()
    shelf.open()
    fetch(shelf, 1, 2, 4, 5)
    detail(shelf, 3, discountPrice=1)

    with shelf.database.transaction() as connection:
        # A worker that knows the hash of its task's content stores no text of what has it.
        connection.execute(text("UPDATE product_raw_data SET content = NULL WHERE item_no <> 3"))
        assert raw.settle_unchanged(connection, shelf.seller_id, batch=2) == 8

    left = shelf.rows("SELECT source, item_no FROM product_raw_data WHERE status = 'PENDING' ORDER BY source")
    assert left == [{"source": "MINISHOP", "item_no": None}, {"source": "PRODUCT_DETAIL", "item_no": 3}]


def test_a_listing_is_parsed_once_and_a_replay_reads_it_again(
    database: Database, make_settings: MakeSettings, marketplace: RunningSimulator, market: MarketplaceControl
) -> None:
    settings = make_settings(base_url=marketplace.url, page_size=20)
    market.add_seller("dmont", 30)
    register(database, "dmont")
    work = Crawl(
        database, settings, open_or_join(database, SellerId("dmont"), triggered_by="test", now=utc_now()).stored
    )
    work.sweep(60)
    # Were it parsed again, this would be what it says.
    broken = "UPDATE product_raw_data SET body = '{}' WHERE source = 'MINISHOP' AND status = 'PENDING'"
    with database.transaction() as connection:
        assert connection.execute(text(broken)).rowcount == 2

    report = process(database, SellerId("dmont"), now=utc_now)

    assert (report.bodies, report.failed_bodies) == (2, 0)
    with database.reading() as connection:
        listed = "SELECT count(*) FROM products WHERE seller_id = 'dmont' AND minishop_data IS NOT NULL"
        assert connection.execute(text(listed)).scalar_one() == 30
    assert replay_stored(database, SellerId("dmont"), now=utc_now).failed_bodies == 2
