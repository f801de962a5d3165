"""What we believe the product server has against what it says, and the way back to agreement."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import orjson

from mustit_pipeline.catalog.processing import USUAL_BATCH
from mustit_pipeline.delivery.reconcile import Kind, Reconciliation, resend
from mustit_pipeline.delivery.relay import relay
from mustit_pipeline.delivery.sql import reconciliation
from mustit_pipeline.delivery.sql.reconciliation import Correction
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.settings import Settings
from mustit_pipeline.simulator.control import ProductServerControl
from mustit_pipeline.simulator.process import RunningSimulator, start_product_server
from mustit_pipeline_tests.integration.catalog.shelf import Shelf, assert_whole, utc_now
from mustit_pipeline_tests.integration.delivery.asking import a_server_that_says, look

Effects = Callable[[], list[tuple[int, int, str]]]


def found(result: Reconciliation) -> list[tuple[int, Kind, tuple[str, ...]]]:
    return [(one.belief.item_no, one.kind, one.fields) for one in result.examples]


def tell(url: str, shelf: Shelf, item: int, version: int, data: dict[str, Any] | None) -> None:
    """Another sender tells the product server something."""
    (key,) = (row["idempotency_key"].rpartition(":")[0] for row in shelf.outbox(item)[:1])
    event = {
        "eventId": str(uuid4()),
        "eventType": "PRODUCT_DELETED" if data is None else "PRODUCT_CREATED",
        "sellerId": shelf.seller_id,
        "itemNo": item,
        "version": version,
        "occurredAt": utc_now().isoformat(),
        "changes": [],
        "productData": data,
    }
    headers = {"Idempotency-Key": f"{key}:{version}"}
    httpx.post(f"{url}/api/v1/product-events", json=event, headers=headers).raise_for_status()


def claim_to_have_delivered(shelf: Shelf, item: int) -> None:
    """The newest version is marked as delivered although it was never sent."""
    shelf.change(
        "UPDATE product_outbox SET status = 'COMPLETED' WHERE item_no = :item AND status = 'WAITING'", item=item
    )
    shelf.change("UPDATE products SET delivered_version = version WHERE item_no = :item", item=item)


def test_a_server_that_has_everything_is_in_order_whatever_the_seller_is_called(
    shelf: Shelf, settings: Settings, server: ProductServerControl
) -> None:
    shelf.crawl(1, 2, 3)
    relay(shelf.database, settings)
    shelf.delete(3)
    relay(shelf.database, settings)

    result = look(shelf, settings)

    assert (result.compared, result.differences, result.under_way, result.in_order) == (3, 0, 0, True)
    assert server.audit()["requests"]["products"] == 3


def test_every_kind_of_difference_is_named_and_a_resend_heals_it_with_versions_that_only_grow(
    shelf: Shelf,
    settings: Settings,
    server: ProductServerControl,
    running_server: RunningSimulator,
    effects: Effects,
) -> None:
    shelf.crawl(1, 2, 3, 4, 5, 6)
    relay(shelf.database, settings)
    held = server.products(shelf.seller_id)
    shelf.delete(1)
    relay(shelf.database, settings)
    shelf.crawl(1)
    claim_to_have_delivered(shelf, 1)
    tell(running_server.url, shelf, 2, 7, held[2] | {"stock": 99})
    shelf.crawl(3, stock=55)
    claim_to_have_delivered(shelf, 3)
    shelf.change(
        "UPDATE product_change_sets SET product_data = replace(product_data, '상품 4', '물건 4') WHERE item_no = 4"
    )
    shelf.delete(5)
    claim_to_have_delivered(shelf, 5)

    first = look(shelf, settings)

    assert found(first) == [
        (1, Kind.MISSING, ()),
        (2, Kind.NEWER, ("stock",)),
        (3, Kind.STALE, ("stock",)),
        (4, Kind.DIFFERENT, ("name",)),
        (5, Kind.SHOULD_BE_GONE, ()),
    ]
    assert (first.compared, first.resent, first.in_order) == (6, 0, False)
    assert relay(shelf.database, settings).sent == 0

    second = look(shelf, settings, resend=True)
    assert (second.differences, second.resent, second.in_order) == (5, 5, True)
    report = relay(shelf.database, settings)
    assert (report.sent, report.superseded, report.failed) == (5, 0, 0)
    assert sorted(effects()[-5:]) == [
        (1, 4, "PRODUCT_CREATED"),
        (2, 8, "PRODUCT_UPDATED"),
        (3, 3, "PRODUCT_UPDATED"),
        (4, 2, "PRODUCT_UPDATED"),
        (5, 3, "PRODUCT_DELETED"),
    ]

    third = look(shelf, settings)
    assert (third.compared, third.differences, third.in_order) == (6, 0, True)
    audit = server.audit()
    assert (audit["stale"], audit["rejected"], audit["updatesOfUnknown"]) == (0, 0, 0)


def test_a_product_that_the_server_does_not_hold_is_created_even_where_it_knows_the_version(
    shelf: Shelf, settings: Settings, effects: Effects
) -> None:
    shelf.crawl(1)
    relay(shelf.database, settings)

    with a_server_that_says(200, b'{"version": 1, "productData": null}', only="/api/v1/products/") as url:
        result = look(shelf, settings.model_copy(update={"product_server_url": url}), resend=True)
    relay(shelf.database, settings)

    assert [(one.kind, one.reported_version) for one in result.examples] == [(Kind.MISSING, 1)]
    assert effects() == [(1, 1, "PRODUCT_CREATED"), (1, 2, "PRODUCT_CREATED")]


def test_products_of_which_the_server_refused_everything_as_stale_are_found_and_healed(
    shelf: Shelf, settings: Settings, running_server: RunningSimulator, effects: Effects
) -> None:
    """Without the old database versions begin at 1 again, and the server has newer ones."""
    shelf.crawl(1, 2, 3)
    data = orjson.loads(shelf.rows("SELECT product_data FROM product_change_sets WHERE item_no = 1")[0]["product_data"])
    tell(running_server.url, shelf, 1, 7, data | {"stock": 99})
    assert relay(shelf.database, settings).superseded == 1

    result = look(shelf, settings, resend=True)

    assert found(result) == [(1, Kind.NEWER, ("stock",))]
    assert (result.compared, result.resent) == (3, 1)
    assert relay(shelf.database, settings).sent == 1
    assert effects()[-1] == (1, 8, "PRODUCT_CREATED")
    assert look(shelf, settings).in_order
    with shelf.database.reading() as connection:
        assert reconciliation.count(connection, SellerId(shelf.seller_id)) == 3


def test_what_is_on_its_way_is_neither_judged_nor_sent_again(shelf: Shelf, settings: Settings) -> None:
    shelf.crawl(1, 2)
    relay(shelf.database, settings)
    shelf.crawl(1, stock=44)

    result = look(shelf, settings, resend=True)

    assert (result.compared, result.under_way, result.differences) == (1, 1, 0)
    assert len(shelf.outbox(1)) == 2


def test_a_resend_of_what_has_moved_on_since_is_left_alone(
    shelf: Shelf, settings: Settings, running_server: RunningSimulator, server: ProductServerControl
) -> None:
    """A crawl publishes the product between the question and the answer."""
    shelf.crawl(1)
    relay(shelf.database, settings)
    tell(running_server.url, shelf, 1, 2, None)
    server.fault("slow", "products", seconds=1.0)
    results: list[Reconciliation] = []
    asking = threading.Thread(target=lambda: results.append(look(shelf, settings, resend=True)))
    asking.start()
    while asking.is_alive() and not server.audit()["requests"].get("products"):
        asking.join(0.02)
    shelf.crawl(1, stock=44)
    asking.join()

    (result,) = results
    assert (result.differences, result.under_way, result.resent) == (0, 1, 0)
    assert [row["version"] for row in shelf.outbox(1)] == [1, 2]


def test_what_is_published_while_a_resend_is_written_still_says_what_changed(shelf: Shelf, settings: Settings) -> None:
    """The crawl's version comes after the resent one, and its changes are those since then."""
    shelf.crawl(1, stock=3)
    relay(shelf.database, settings)
    shelf.open()
    shelf.listing(1)
    shelf.detail(1, stock=44)
    shelf.options(1)
    shelf.swept()
    shelf.process(replace(USUAL_BATCH, versions=0))
    with shelf.database.reading() as connection:
        (belief,) = reconciliation.beliefs(connection, SellerId(shelf.seller_id), None, 10)
    publishing = threading.Thread(target=shelf.process)

    with shelf.database.transaction() as connection:
        sent = resend(connection, SellerId(shelf.seller_id), [Correction(belief, 0)], utc_now())
        publishing.start()
        while not shelf.rows("SELECT 1 FROM pg_locks WHERE NOT granted"):
            assert publishing.is_alive(), "it waited for no lock"
            publishing.join(0.02)
    publishing.join()

    assert sent == 1
    assert shelf.versions(1) == [(1, "CREATED"), (2, "UPDATED"), (3, "UPDATED")]
    assert shelf.rows("SELECT changes FROM product_change_sets WHERE version = 3") == [
        {"changes": [{"type": "STOCK", "field": "stock", "old": 3, "new": 44}]}
    ]
    assert_whole(shelf.database)


def test_a_server_that_lost_everything_gets_everything_back_once(
    shelf: Shelf, settings: Settings, tmp_path: Path
) -> None:
    shelf.crawl(*range(1, 31))
    relay(shelf.database, settings)
    with start_product_server(state=tmp_path) as empty, ProductServerControl(empty.url) as control:
        other = settings.model_copy(update={"product_server_url": empty.url})
        result = look(shelf, other, resend=True)
        assert (result.kinds, result.resent) == ({Kind.MISSING: 30}, 30)
        assert relay(shelf.database, other).sent == 30
        assert look(shelf, other).in_order
        log = [(effect.item_no, effect.version, effect.event_type) for effect in control.log()]
        assert sorted(log) == [(item, 2, "PRODUCT_CREATED") for item in range(1, 31)]
    assert_whole(shelf.database)


def test_a_server_that_was_restored_to_before_a_deletion_is_updated(
    shelf: Shelf, settings: Settings, tmp_path: Path
) -> None:
    """It had acknowledged the deletion, and holds the product all the same."""
    shelf.crawl(1, stock=1)
    relay(shelf.database, settings)
    [first] = shelf.rows("SELECT product_data FROM product_change_sets")
    shelf.delete(1)
    relay(shelf.database, settings)
    shelf.crawl(1, stock=2)
    relay(shelf.database, settings)

    with start_product_server(state=tmp_path) as restored, ProductServerControl(restored.url) as control:
        tell(restored.url, shelf, 1, 1, orjson.loads(first["product_data"]))
        other = settings.model_copy(update={"product_server_url": restored.url})
        assert found(look(shelf, other, resend=True)) == [(1, Kind.STALE, ("stock",))]
        relay(shelf.database, other)
        assert [(one.version, one.event_type) for one in control.log()][1:] == [(4, "PRODUCT_UPDATED")]
        assert look(shelf, other).in_order


def test_examples_are_bounded_and_the_count_is_exact(shelf: Shelf, settings: Settings, tmp_path: Path) -> None:
    shelf.crawl(*range(1, 131))
    relay(shelf.database, settings)
    with start_product_server(state=tmp_path) as empty:
        result = look(shelf, settings.model_copy(update={"product_server_url": empty.url}))
    assert (result.differences, len(result.examples)) == (130, 100)
