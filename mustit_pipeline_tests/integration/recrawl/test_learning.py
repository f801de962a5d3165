"""What fetches teach: PostgreSQL learns what the policy's functions say."""

import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from mustit_pipeline.crawling.sql.learning import Fetched, learn
from mustit_pipeline.domain.recrawl.learning import (
    Evidence,
    SellerEvidence,
    fetched_evidence,
    kept_share,
    learnt,
    learnt_of_seller,
)
from mustit_pipeline.domain.states import TaskType
from mustit_pipeline.foundation.database import Database
from mustit_pipeline_tests.integration.crawls import register
from mustit_pipeline_tests.integration.recrawl.rows import (
    EVIDENCE,
    KINDS,
    KnownProduct,
    KnownSeller,
    hours_between,
    random_product,
    random_seller,
)

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
SELLERS = ("Z", "a", "한글 & a/b 50%")
SOURCES = dict(zip((TaskType.PRODUCT_DETAIL, TaskType.PRODUCT_OPTION), KINDS, strict=True))


def stored(database: Database, table: str, *key: str) -> dict[Any, dict[str, Any]]:
    with database.reading() as connection:
        rows = connection.execute(text(f"SELECT * FROM {table}")).mappings()
        return {tuple(row[name] for name in key): dict(row) for row in rows}


def summed(found: Iterable[SellerEvidence]) -> SellerEvidence:
    evidence = list(found)
    return SellerEvidence(*(sum(getattr(one, name) for one in evidence) for name in EVIDENCE))


@pytest.mark.parametrize("seed", range(3))
def test_products_and_sellers_learn_what_the_policy_says(database: Database, seed: int) -> None:
    chance = random.Random(seed)
    register(database, *SELLERS)
    sellers = [random_seller(chance, name, NOW) for name in SELLERS]
    products = [random_product(chance, seller, item, NOW) for seller in sellers for item in range(1, 60)]
    lessons = {
        (product.seller.seller_id, product.item_no, kind): Fetched(
            product.seller.seller_id, product.item_no, source, NOW, chance.random() < 0.4, chance.random() < 0.3
        )
        for product in products
        for source, kind in SOURCES.items()
        if chance.random() < 0.7
    }
    signalled = [(product.seller.seller_id, product.item_no) for product in products if chance.random() < 0.3]
    with database.transaction() as connection:
        for one in (*sellers, *products):
            one.store(connection)
        learn(connection, lessons.values(), signalled)

    rows = stored(database, "recrawl_products", "seller_id", "item_no")
    taught: dict[tuple[str, str], list[SellerEvidence]] = {}
    for product in products:
        key = product.seller.seller_id, product.item_no
        row = rows[key]
        changed_at = product.changed_at
        for kind in KINDS:
            lesson = lessons.get((*key, kind))
            if lesson is None:
                expected = product.evidence[kind], product.fetched_at[kind], product.signals[kind] + (key in signalled)
            else:
                expected = believed(product, kind, lesson, taught), NOW, 0
                changed_at = NOW if lesson.changed and product.fetched_at[kind] is not None else changed_at
            evidence, fetched_at, signals = expected
            assert row[f"{kind}_changes"] == pytest.approx(evidence.changes, rel=1e-9)
            assert row[f"{kind}_hours"] == pytest.approx(evidence.hours, rel=1e-9)
            assert (row[f"{kind}_fetched_at"], row[f"{kind}_signals"]) == (fetched_at, signals)
        assert row["changed_at"] == changed_at
    of_sellers = stored(database, "recrawl_sellers", "seller_id")
    for seller in sellers:
        check_seller(seller, of_sellers[(seller.seller_id,)], taught)


def believed(
    product: KnownProduct, kind: str, lesson: Fetched, taught: dict[tuple[str, str], list[SellerEvidence]]
) -> Evidence:
    """The evidence of a source after a fetch; a first fetch teaches nothing."""
    if product.fetched_at[kind] is None:
        return product.evidence[kind]
    source = product.source(kind, NOW)
    found = fetched_evidence(source, product.seller.seen(kind), float(bool(lesson.changed)))
    taught.setdefault((product.seller.seller_id, kind), []).append(found)
    return learnt(product.evidence[kind], found, kept_share(source.age))


def check_seller(seller: KnownSeller, row: dict[str, Any], taught: dict[tuple[str, str], list[SellerEvidence]]) -> None:
    kept = kept_share(hours_between(seller.learnt_at, NOW))
    for kind in KINDS:
        expected = learnt_of_seller(seller.evidence[kind], summed(taught[seller.seller_id, kind]), kept)
        for name in EVIDENCE:
            assert row[f"{kind}_{name}"] == pytest.approx(getattr(expected, name), rel=1e-9)
    assert (row["learnt_at"], row["boost"]) == (NOW, seller.boost)


def test_a_first_fetch_and_one_that_cannot_be_compared_teach_nothing_but_are_remembered(database: Database) -> None:
    register(database, "dmont")
    detail, later = TaskType.PRODUCT_DETAIL, NOW + timedelta(hours=3)
    with database.transaction() as connection:
        learn(connection, [Fetched("dmont", 1, detail, NOW, changed=True, sold_out=True)], [("dmont", 1)])
        learn(connection, [Fetched("dmont", 1, detail, later, changed=None)], [])
    [row] = stored(database, "recrawl_products", "item_no").values()
    assert (row["detail_fetched_at"], row["detail_changes"], row["detail_hours"]) == (later, 0, 0)
    assert (row["option_fetched_at"], row["option_signals"], row["sold_out"]) == (None, 1, True)
    assert stored(database, "recrawl_sellers", "seller_id") == {}


def test_an_unlike_hash_of_another_reading_is_no_change(database: Database) -> None:
    """After a release with another parser every body would look changed."""
    register(database, "dmont")
    detail = TaskType.PRODUCT_DETAIL
    with database.transaction() as connection:
        learn(connection, [Fetched("dmont", 1, detail, NOW, changed=None)], [])
        connection.execute(text("UPDATE recrawl_products SET detail_reading = detail_reading - 1"))
        learn(connection, [Fetched("dmont", 1, detail, NOW + timedelta(hours=1), changed=True)], [])
        known = "SELECT detail_changes + detail_hours, changed_at FROM recrawl_products"
        assert tuple(connection.execute(text(known)).one()) == (0, None)
        learn(connection, [Fetched("dmont", 1, detail, NOW + timedelta(hours=2), changed=False)], [])
        hours = connection.execute(text("SELECT detail_hours FROM recrawl_products")).scalar_one()
    assert hours == pytest.approx(1)


def test_every_fetch_of_a_known_product_is_a_hot_update(database: Database) -> None:
    register(database, "dmont")

    def fetch(items: range) -> None:
        learn(connection, [Fetched("dmont", item, TaskType.PRODUCT_DETAIL, NOW, changed=False) for item in items], [])

    with database.transaction() as connection:
        fetch(range(200))
    with database.transaction() as connection:
        fetch(range(0, 200, 20))
        counted = "SELECT pg_stat_get_xact_tuples_hot_updated('recrawl_products'::regclass)"
        assert connection.execute(text(counted)).scalar_one() == 10
