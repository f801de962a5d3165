"""A product server that cannot or will not report: said to be so, and what one answer lacks ends nothing."""

import pytest

from mustit_pipeline.delivery.reconcile import Kind
from mustit_pipeline.delivery.relay import relay
from mustit_pipeline.domain.errors import ExternalFailure
from mustit_pipeline.settings import Settings
from mustit_pipeline.simulator.control import ProductServerControl
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.catalog.shelf import Shelf
from mustit_pipeline_tests.integration.delivery.asking import a_server_that_says, look


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (404, b'{"timestamp": 17, "status": 404, "path": "PATH"}', "EXTERNAL_PRODUCT_SERVER_CANNOT_REPORT"),
        (404, b"<h1>Not Found</h1>", "EXTERNAL_PRODUCT_SERVER_CANNOT_REPORT"),
        (405, b"", "EXTERNAL_PRODUCT_SERVER_CANNOT_REPORT"),
        (501, b"", "EXTERNAL_PRODUCT_SERVER_CANNOT_REPORT"),
        (200, b"<html>welcome</html>", "EXTERNAL_PRODUCT_SERVER_CANNOT_REPORT"),
        (200, b'{"ok": true}', "EXTERNAL_PRODUCT_SERVER_CANNOT_REPORT"),
        (401, b"", "EXTERNAL_PRODUCT_SERVER_REFUSED"),
    ],
)
def test_a_server_that_cannot_report_is_said_to_be_so_and_nothing_is_sent_again(
    shelf: Shelf, settings: Settings, status: int, body: bytes, code: str
) -> None:
    shelf.crawl(1, 2)
    relay(shelf.database, settings)
    with a_server_that_says(status, body) as url, pytest.raises(ExternalFailure) as raised:
        look(shelf, settings.model_copy(update={"product_server_url": url}), resend=True)
    assert raised.value.code == code
    assert len(shelf.outbox(1)) == 1


def test_a_server_that_is_down_is_an_error_and_not_a_list_of_missing_products(
    shelf: Shelf, settings: Settings, make_settings: MakeSettings
) -> None:
    shelf.crawl(1)
    relay(shelf.database, settings)
    with pytest.raises(ExternalFailure, match="cannot be reached"):
        look(shelf, make_settings(product_server_url="http://127.0.0.1:1"), resend=True)


def test_products_without_an_answer_are_counted_and_leave_it_open(
    shelf: Shelf, settings: Settings, server: ProductServerControl
) -> None:
    shelf.crawl(1, 2, 3)
    relay(shelf.database, settings)
    server.fault("status", "products", status=503, itemNo=2)

    result = look(shelf, settings)

    assert (result.compared, result.unanswered, result.differences, result.in_order) == (2, 1, 0, False)
    server.clear_faults()
    server.fault("status", "products", status=503, itemNo=2, count=2)
    assert look(shelf, settings).in_order


@pytest.mark.parametrize(
    ("kind", "options", "reason"),
    [
        ("status", {"status": 400}, "HTTP 400"),
        ("status", {"status": 405}, "HTTP 405"),
        ("drop_before", {}, "connection dropped"),
    ],
)
@pytest.mark.parametrize("batch", [500, 2])
def test_what_is_wrong_with_one_product_ends_nothing_and_is_told_of_it(
    shelf: Shelf,
    settings: Settings,
    server: ProductServerControl,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    options: dict[str, int],
    reason: str,
    batch: int,
) -> None:
    monkeypatch.setattr("mustit_pipeline.delivery.reconcile.BATCH", batch)
    shelf.crawl(1, 2, 3)
    relay(shelf.database, settings)
    # The last one, which may be a batch of its own.
    server.fault(kind, "products", itemNo=3, **options)
    shelf.change(
        "UPDATE product_change_sets SET product_data = replace(product_data, '상품 1', '물건 1') WHERE item_no = 1"
    )

    result = look(shelf, settings, resend=True)

    assert (result.compared, result.unanswered, result.resent, result.in_order) == (2, 1, 1, False)
    (silent,) = result.silent
    assert silent.belief.item_no == 3
    assert silent.reason.startswith(reason)


def test_what_waits_to_be_sent_again_is_told_although_the_server_refuses_to_go_on(
    shelf: Shelf, settings: Settings, server: ProductServerControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mustit_pipeline.delivery.reconcile.BATCH", 2)
    shelf.crawl(1, 2, 3)
    relay(shelf.database, settings)
    shelf.change("UPDATE product_change_sets SET product_data = replace(product_data, '상품', '물건')")
    server.fault("status", "products", status=403, itemNo=3)

    with pytest.raises(ExternalFailure, match="2 products wait to be sent again") as raised:
        look(shelf, settings, resend=True)

    assert raised.value.code == "EXTERNAL_PRODUCT_SERVER_REFUSED"
    assert [len(shelf.outbox(item)) for item in (1, 2, 3)] == [2, 2, 1]


@pytest.mark.parametrize("version", [-5, -1, 2**30, 2**31, 10**15])
def test_a_version_that_no_product_of_ours_can_have_is_not_believed(
    shelf: Shelf, settings: Settings, version: int
) -> None:
    shelf.crawl(1)
    relay(shelf.database, settings)
    (known,) = shelf.rows("SELECT product_data FROM product_change_sets")

    body = b'{"version": %d, "productData": %s}' % (version, known["product_data"].encode())
    with (
        a_server_that_says(200, body, only="/api/v1/products/") as url,
        pytest.raises(ExternalFailure, match=f"version {version} is none of ours"),
    ):
        look(shelf, settings.model_copy(update={"product_server_url": url}), resend=True)

    assert shelf.rows("SELECT version, delivered_version FROM products") == [{"version": 1, "delivered_version": 1}]


def test_the_greatest_version_that_is_believed_is_gone_beyond(shelf: Shelf, settings: Settings) -> None:
    shelf.crawl(1)
    relay(shelf.database, settings)
    (known,) = shelf.rows("SELECT product_data FROM product_change_sets")

    body = b'{"version": %d, "productData": %s}' % (2**30 - 1, known["product_data"].encode())
    with a_server_that_says(200, body, only="/api/v1/products/") as url:
        result = look(shelf, settings.model_copy(update={"product_server_url": url}), resend=True)

    assert (result.kinds, result.resent) == ({Kind.NEWER: 1}, 1)
    assert shelf.rows("SELECT version FROM products") == [{"version": 2**30}]
