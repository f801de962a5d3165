"""What a materialization tells of its content: a version that changes with it, rows, coverage, the largest changes."""

import dagster as dg
import pytest

from mustit_pipeline.definitions import defs
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline.store.database import Database
from mustit_pipeline_tests.dagster_defs.conftest import SetEnvironment
from mustit_pipeline_tests.integration.crawls import register

SELLER = "dmont"
PRODUCTS = 4


@pytest.fixture
def crawled(
    database: Database,
    instance: dg.DagsterInstance,
    set_environment: SetEnvironment,
    marketplace: RunningSimulator,
    market: MarketplaceControl,
) -> dict[str, dg.AssetMaterialization]:
    """The materializations of a seller's first crawl."""
    set_environment(base_url=marketplace.url)
    market.add_seller(SELLER, PRODUCTS)
    register(database, SELLER)
    instance.add_dynamic_partitions("sellers", [SELLER])
    return run(instance)


def run(instance: dg.DagsterInstance) -> dict[str, dg.AssetMaterialization]:
    result = defs.resolve_job_def("crawl_seller").execute_in_process(instance=instance, partition_key=SELLER)
    found = [event.materialization for event in result.get_asset_materialization_events()]
    return {one.asset_key.to_user_string(): one for one in found}


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
    assert "largest price changes" not in crawled["product_change_sets"].metadata


def test_the_largest_changes_of_prices_are_shown_with_their_share(
    instance: dg.DagsterInstance, market: MarketplaceControl, crawled: dict[str, dg.AssetMaterialization]
) -> None:
    item = market.products(SELLER)[0]
    market.set_fields(SELLER, item["itemNo"], discountPrice=item["discountPrice"] * 2)

    shown = run(instance)["product_change_sets"].metadata["largest price changes"].value

    assert f"| {item['itemNo']} | 2 | discountPrice |" in str(shown)
    assert "+100.0 |" in str(shown)
