"""The uniform sample: each product is drawn as likely as any other, and what is stale is told by source and size."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from sqlalchemy import text

from mustit_pipeline.foundation.database import Database
from mustit_pipeline.monitoring import staleness
from mustit_pipeline.monitoring.exposition import families
from mustit_pipeline.monitoring.spot_checks import spot_check
from mustit_pipeline.monitoring.sql import spot_checks
from mustit_pipeline.monitoring.staleness import Comparison, Sampled, SellerSize, Share
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.crawls import crawl, register

# Of a Chi² distribution with 399 degrees of freedom, one in a thousand lies above this.
CHI2_399 = 492.0


def publish(database: Database, seller_id: str, products: int, first: int) -> None:
    """A seller of so many published products, and as many deleted ones in between."""
    register(database, seller_id)
    with database.transaction() as connection:
        connection.execute(
            text("UPDATE sellers SET total_product_count = :n WHERE seller_id = :seller"),
            {"n": products, "seller": seller_id},
        )
        # Ids lie in heaps, as bad as they can be: a draw of the next id would prefer the first of each heap.
        connection.execute(
            text("""
                INSERT INTO products (product_id, seller_id, item_no, minishop_data_hash, detail_data_hash,
                                      option_data_hash, data, data_hash, published_hash, version, deleted_at)
                SELECT CAST(lpad(to_hex((n * 37) % 256), 2, '0') || substr(md5(:seller || n), 3) AS uuid), :seller,
                       :first + n, 'a', 'b', 'c', '{}', 'x', 'x', 1, CASE WHEN n > :n THEN now() END
                FROM generate_series(1, 2 * :n) n
            """),
            {"n": products, "seller": seller_id, "first": first},
        )


def test_each_product_is_drawn_as_often_as_any_other_and_not_each_seller(database: Database) -> None:
    publish(database, "large", 360, 1000)
    publish(database, "small", 40, 5000)
    chance, rounds = Random(17), 60
    drawn: Counter[int] = Counter()
    of_seller: Counter[str] = Counter()
    with database.reading() as connection:
        for _ in range(rounds):
            found = spot_checks.draw(connection, 200, chance)
            drawn.update(one.item_no for one in found)
            of_seller.update(one.seller_id for one in found)
    # A product is missed by 200 windows of a 400th with the chance (1 - 1/400)^200.
    expected = rounds * (1 - (1 - 1 / 400) ** 200)
    items = [*range(1001, 1361), *range(5001, 5041)]
    assert set(drawn) <= set(items)
    chi2 = sum((drawn[item] - expected) ** 2 / expected for item in items)
    assert chi2 < CHI2_399
    assert of_seller["small"] / drawn.total() == pytest.approx(0.1, abs=0.01)


def test_the_same_seed_draws_the_same_products(database: Database) -> None:
    publish(database, "dmont", 50, 0)
    with database.reading() as connection:
        once, again, other = (set(spot_checks.draw(connection, 10, Random(seed))) for seed in (1, 1, 2))
    assert once == again
    assert once != other


@pytest.mark.parametrize(
    ("products", "requests", "least", "number"),
    [
        (240_000, 40_000, 2, 100),
        # Few products are still compared; and a pool is never used up for it.
        (100, 4_000, 2, 2),
        (1_000_000, 4_000, 2, 100),
        (100, 10, 2, 1),
    ],
)
def test_one_percent_of_all_products_a_day_are_drawn(products: int, requests: int, least: int, number: int) -> None:
    assert staleness.sample_size(products, requests, least, Random(1)) == number


def test_a_part_of_a_product_is_drawn_in_that_part_of_the_hours() -> None:
    chance = Random(3)
    drawn = sum(staleness.sample_size(20_000, 4_000, 2, chance) for _ in range(24 * 100))
    assert drawn / 100 == pytest.approx(200, rel=0.02)


def test_what_was_stale_is_counted_by_source_and_by_size_of_seller(
    database: Database, make_settings: MakeSettings
) -> None:
    fresh: frozenset[Sampled] = frozenset()
    compared = [
        *[Comparison(10, fresh)] * 8,
        Comparison(99, frozenset({Sampled.DETAIL})),
        Comparison(100, frozenset({Sampled.DETAIL, Sampled.OPTIONS})),
        Comparison(5000, frozenset({Sampled.LISTING})),
        Comparison(5000, None),
    ]
    with database.transaction() as connection:
        staleness.record(connection, compared)
    now = datetime.now(UTC)
    with database.reading() as connection:
        found = staleness.shares(connection, now - timedelta(hours=2), now)
        told = {family.name: family for family in families(connection, make_settings(), now)}
    assert staleness.of_source(found, Sampled.PRODUCT) == Share(11, 3, 1)
    assert staleness.of_source(found, Sampled.DETAIL) == Share(10, 2)
    assert staleness.of_source(found, Sampled.OPTIONS) == Share(10, 1)
    assert staleness.of_source(found, Sampled.LISTING) == Share(11, 1)
    assert [staleness.of_size(found, size).compared for size in SellerSize] == [9, 1, 1]
    assert staleness.of_source(found, Sampled.PRODUCT).interval == pytest.approx((0.0975, 0.5656), abs=1e-3)
    ratios = {tuple(one.labels.values()): one.value for one in told["mustit_sampled_stale_ratio"].samples}
    assert ratios["product", "small"] == pytest.approx(1 / 9)
    assert len(ratios) == len(Sampled) * len(SellerSize)


def test_a_sample_that_is_drawn_anew_counts_again_and_teaches_the_policy_nothing(
    database: Database, make_settings: MakeSettings, marketplace: RunningSimulator, market: MarketplaceControl
) -> None:
    settings = make_settings(base_url=marketplace.url, truth_sample=100, truth_seconds=20, recrawl="adaptive")
    market.add_seller("dmont", 4)
    register(database, "dmont")
    crawl(database, settings, "dmont")
    market.set_fields("dmont", market.products("dmont")[0]["itemNo"], stock=4711)
    learnt = text("SELECT to_jsonb(r) FROM recrawl_products r UNION ALL SELECT to_jsonb(s) FROM recrawl_sellers s")
    with database.reading() as connection:
        before = list(connection.execute(learnt).scalars())

    spot_check(database, settings)
    spot_check(database, settings)

    now = datetime.now(UTC)
    with database.reading() as connection:
        found = staleness.shares(connection, now - timedelta(hours=2), now)
        assert list(connection.execute(learnt).scalars()) == before
    assert staleness.of_source(found, Sampled.PRODUCT) == Share(8, 2)
    assert staleness.of_source(found, Sampled.OPTIONS) == Share(8, 0)
