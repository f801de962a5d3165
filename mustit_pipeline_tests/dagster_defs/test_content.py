"""What a materialization tells of its content: a version that changes with it, rows, coverage, the largest changes."""

import dagster as dg
import pytest

from mustit_pipeline.foundation.database import Database
from mustit_pipeline.simulator.control import MarketplaceControl, ProductServerControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline_tests.dagster_defs.conftest import SetEnvironment, Stock, latest, materialized, run_job

SELLER = "dmont"
PRODUCTS = 4
WORKED = ("minishop_listings", "product_details", "product_options")
# The crawl and its seller in the console.
LINKS = {"console_crawl", "console_seller"}
WORK = LINKS | {
    "execution_id",
    "completed",
    "failed",
    "requests",
    "throttled",
    "drifted_fields",
    "remaining",
    "progress_percent",
    "success_percent",
    "coverage_percent",
    "replayed",
    "duration_seconds",
    "dagster/partition_row_count",
    "dagster/column_lineage",
}
KEYS = {
    "minishop_listings": WORK | {"new", "absent", "skipped", "foreign", "sweep"},
    "product_details": WORK,
    "product_options": WORK,
    "product_change_sets": LINKS
    | {
        "execution_id",
        "execution_status",
        "bodies",
        "failed_bodies",
        "versions",
        "created",
        "updated",
        "restored",
        "removed",
        "changed_price",
        "changed_stock",
        "changed_option",
        "changed_image",
        "changed_description",
        "changed_product_info",
        "remaining",
        "replayed",
        "duration_seconds",
        "largest changes",
        "dagster/partition_row_count",
        "dagster/column_lineage",
    },
    "product_server": {
        "events_sent",
        "superseded",
        "failed",
        "waiting",
        "duration_seconds",
        "dagster/column_lineage",
    },
}


@pytest.fixture
def crawled(instance: dg.DagsterInstance, stock: Stock) -> dict[str, dg.AssetMaterialization]:
    """The materializations of a seller's first crawl."""
    stock(SELLER, PRODUCTS)
    return run(instance)


def run(instance: dg.DagsterInstance, *, raise_on_error: bool = True) -> dict[str, dg.AssetMaterialization]:
    return materialized(run_job(instance, "crawl_seller", SELLER, raise_on_error=raise_on_error))


def numbers(one: dg.AssetMaterialization, *names: str) -> dict[str, object]:
    return {name: one.metadata[name].value for name in names}


def relayed(instance: dg.DagsterInstance) -> dg.AssetMaterialization:
    done = run_job(instance, "relay_product_outbox", raise_on_error=True)
    [event] = done.get_asset_materialization_events()
    return event.materialization


def versions(found: dict[str, dg.AssetMaterialization]) -> dict[str, str]:
    return {key: (one.tags or {})["dagster/data_version"] for key, one in found.items()}


def test_an_unchanged_seller_shows_as_unchanged_and_a_changed_one_only_where_it_changed(
    instance: dg.DagsterInstance, market: MarketplaceControl, crawled: dict[str, dg.AssetMaterialization]
) -> None:
    first = versions(crawled)
    assert len(set(first.values())) == 4
    assert versions(run(instance)) == first

    items = [product["itemNo"] for product in market.products(SELLER)]
    market.change(SELLER, items[0], "OPTION")
    second = versions(run(instance))
    assert {key for key in first if first[key] != second[key]} == {"product_options", "product_change_sets"}

    market.add_products(SELLER, 1)
    third = versions(run(instance))
    assert {key for key in first if second[key] != third[key]} == first.keys()


def test_rows_and_coverage_are_numbers_and_columns_know_where_they_come_from(
    crawled: dict[str, dg.AssetMaterialization],
) -> None:
    rows = {key: one.metadata["dagster/partition_row_count"].value for key, one in crawled.items()}
    assert rows == dict.fromkeys(rows, PRODUCTS)
    assert crawled["minishop_listings"].metadata["coverage_percent"].value == 100.0
    for key, one in crawled.items():
        assert isinstance(one.metadata["dagster/column_lineage"].value, dg.TableColumnLineage), key
    assert crawled["product_change_sets"].metadata["largest changes"].value == "No known product has changed."


def test_the_rows_of_a_listing_are_those_that_are_stored_not_those_that_the_marketplace_counts(
    instance: dg.DagsterInstance, stock: Stock
) -> None:
    stock(SELLER, 15, page_size=10, task_max_retries=0).fault("status", "listing", pageNo=1, status=404)

    found = run(instance, raise_on_error=False)["minishop_listings"]

    assert numbers(found, "dagster/partition_row_count", "coverage_percent", "sweep") == {
        "dagster/partition_row_count": 10,
        "coverage_percent": 66.67,
        "sweep": "INCOMPLETE",
    }


def test_every_materialization_has_the_same_numbers_whatever_happened_so_that_they_plot_without_gaps(
    instance: dg.DagsterInstance,
    market: MarketplaceControl,
    crawled: dict[str, dg.AssetMaterialization],
    set_environment: SetEnvironment,
    product_server: RunningSimulator,
) -> None:
    set_environment(product_server_url=product_server.url)
    crawled["product_server"] = relayed(instance)
    market.change(SELLER, market.products(SELLER)[0]["itemNo"], "PRICE")
    again = run(instance)
    again["product_server"] = relayed(instance)

    for found in (crawled, again):
        assert {key: set(one.metadata) for key, one in found.items()} == KEYS
        for key, one in found.items():
            duration = one.metadata["duration_seconds"].value
            assert isinstance(duration, float), key
            assert 0 < duration < 60, key


def test_a_materialization_links_to_its_crawl_and_seller_in_the_console(
    database: Database, crawled: dict[str, dg.AssetMaterialization]
) -> None:
    for key in ("minishop_listings", "product_details", "product_change_sets"):
        found = crawled[key].metadata
        crawl = f"http://127.0.0.1:8000/executions/{latest(database, SELLER).id}"
        assert found["console_crawl"] == dg.MetadataValue.url(crawl)
        assert found["console_seller"] == dg.MetadataValue.url(f"http://127.0.0.1:8000/sellers/{SELLER}")


def test_every_call_is_counted_once_and_by_the_asset_that_made_it(
    database: Database, crawled: dict[str, dg.AssetMaterialization]
) -> None:
    counted = {key: numbers(one, "requests", "completed", "remaining") for key, one in crawled.items() if key in WORKED}

    # The count call is no task.
    assert counted["minishop_listings"] == {"requests": 2, "completed": 1, "remaining": 0}
    assert counted["product_details"] == {"requests": PRODUCTS, "completed": PRODUCTS, "remaining": 0}
    assert counted["product_options"] == {"requests": PRODUCTS, "completed": PRODUCTS, "remaining": 0}
    assert sum(int(str(one["requests"])) for one in counted.values()) == latest(database, SELLER).requests


def test_what_came_went_and_is_gone_is_counted(
    instance: dg.DagsterInstance,
    market: MarketplaceControl,
    crawled: dict[str, dg.AssetMaterialization],
    set_environment: SetEnvironment,
) -> None:
    set_environment(deletion_hold_share=0.5)
    assert numbers(crawled["minishop_listings"], "new", "absent") == {"new": PRODUCTS, "absent": 0}
    market.remove(SELLER, [market.products(SELLER)[0]["itemNo"]])
    market.add_products(SELLER, 2)

    once, twice = run(instance), run(instance)

    assert numbers(once["minishop_listings"], "new", "absent") == {"new": 2, "absent": 1}
    assert numbers(once["product_change_sets"], "created", "removed") == {"created": 2, "removed": 0}
    assert numbers(twice["minishop_listings"], "new", "absent") == {"new": 0, "absent": 1}
    assert numbers(twice["product_change_sets"], "created", "removed") == {"created": 0, "removed": 1}


def test_a_delivery_says_what_it_stands_for_and_what_is_left(
    instance: dg.DagsterInstance,
    market: MarketplaceControl,
    crawled: dict[str, dg.AssetMaterialization],
    set_environment: SetEnvironment,
    product_server: RunningSimulator,
    receiver: ProductServerControl,
) -> None:
    set_environment(product_server_url=product_server.url)
    item = market.products(SELLER)[0]["itemNo"]
    for _ in range(2):
        market.change(SELLER, item, "STOCK")
        run(instance)

    sent = relayed(instance)

    names = ("events_sent", "superseded", "failed", "waiting")
    assert numbers(sent, *names) == {"events_sent": PRODUCTS, "superseded": 2, "failed": 0, "waiting": 0}

    for product in market.products(SELLER):
        market.change(SELLER, product["itemNo"], "STOCK")
    run(instance)
    set_environment(outbox_retry_base_seconds=60)
    receiver.fault("status", count=1, status=503)
    assert numbers(relayed(instance), *names) == {
        "events_sent": PRODUCTS - 1,
        "superseded": 0,
        "failed": 0,
        "waiting": 1,
    }


def test_the_largest_changes_are_shown_prices_first(
    instance: dg.DagsterInstance, market: MarketplaceControl, crawled: dict[str, dg.AssetMaterialization]
) -> None:
    named, cheaper, dearer = market.products(SELLER)[:3]
    market.set_fields(SELLER, named["itemNo"], name="다른 이름")
    market.set_fields(SELLER, cheaper["itemNo"], discountPrice=cheaper["discountPrice"] - 100)
    market.set_fields(SELLER, dearer["itemNo"], discountPrice=dearer["discountPrice"] * 2)

    shown = str(run(instance)["product_change_sets"].metadata["largest changes"].value).splitlines()[2:]

    assert shown[0].startswith(f"| {dearer['itemNo']} | 2 | PRICE |")
    assert "| discountPrice |" in shown[0]
    assert shown[0].endswith("| +100.0 |")
    assert shown[1].startswith(f"| {cheaper['itemNo']} | 2 | PRICE |")
    assert shown[2:] == [f"| {named['itemNo']} | 2 | PRODUCT_INFO | 1 | | | | |"]
