"""What a crawl fetches: PostgreSQL chooses what the policy's functions choose."""

import random
from datetime import UTC, datetime

import pytest
from sqlalchemy import text

from mustit_pipeline.crawling.sql import choosing
from mustit_pipeline.crawling.sql.choosing import SOURCES, Chooser
from mustit_pipeline.domain.recrawl.choosing import Candidate, Reason, Terms, chosen
from mustit_pipeline.domain.recrawl.worth import change_chance, is_believed, unseen_changes, value, weight
from mustit_pipeline.foundation.database import Database
from mustit_pipeline_tests.integration.crawls import register
from mustit_pipeline_tests.integration.recrawl.rows import (
    KINDS,
    KnownProduct,
    hours_between,
    random_product,
    random_seller,
)

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
SELLER = "dmont"


def candidates_of(product: KnownProduct) -> list[Candidate]:
    found: list[Candidate] = []
    for number, kind in enumerate(KINDS):
        source, seen = product.source(kind, NOW), product.seller.seen(kind)
        unseen = unseen_changes(source, seen)
        since_change = float("inf") if product.changed_at is None else hours_between(product.changed_at, NOW)
        weighs = weight(not product.sold_out, since_change, product.boost * product.seller.boost)
        fetched = product.fetched_at[kind] is not None
        found.append(
            Candidate(
                key=2 * product.item_no + number,
                age=source.age if fetched else None,
                value=value(unseen, source.rate, weighs) if fetched else 0.0,
                chance=change_chance(unseen),
                believed=is_believed(source, seen),
            )
        )
    return found


def random_terms(chance: random.Random, sources: int) -> Terms:
    return Terms(
        allowance=chance.choice([0, sources // 10, sources // 2, 2 * sources]),
        price=10 ** chance.uniform(-4, 3),
        kept_age=10 ** chance.uniform(0, 3),
        promise_broken=chance.random() < 0.5,
        look_hours=10 ** chance.uniform(-2, 1),
        promise_rate=10 ** chance.uniform(0, 4),
        min_chance=chance.choice([0.0, 0.01, 0.2]),
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_crawl_fetches_what_the_policy_chooses_for_the_same_reason_and_in_the_same_order(
    database: Database, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "CHUNK", 7)
    chance = random.Random(seed)
    register(database, SELLER)
    seller = random_seller(chance, SELLER, NOW)
    products = [random_product(chance, seller, item, NOW) for item in range(1, 120)]
    candidates = [candidate for product in products for candidate in candidates_of(product)]
    with database.transaction() as connection:
        connection.execute(
            text(
                "INSERT INTO products (seller_id, item_no, version) SELECT :seller, unnest(CAST(:items AS bigint[])), 1"
            ),
            {"seller": SELLER, "items": [product.item_no for product in products]},
        )
        for one in (seller, *products):
            one.store(connection)
    seen: set[Reason] = set()
    for _ in range(20):
        terms = random_terms(chance, len(candidates))
        expected = chosen(candidates, terms)
        with database.transaction() as connection:
            chooser = Chooser(connection, SELLER, terms, NOW)
            found = [one for chunk in chooser.choose(None) for one in chunk]
            at_once = chooser.choose_at_once([product.item_no for product in products])
            reasons = chooser.reasons()
        keys = [(2 * one.item_no + SOURCES.index(one.source), one.reason) for one in found]
        assert keys == [(choice.key, choice.reason) for choice in expected]
        assert reasons.chosen == {
            reason: sum(one.reason is reason for one in expected) for reason in {o.reason for o in expected}
        }
        assert reasons.left == len(candidates) - len(expected)
        assert at_once == [one for one in found if one.reason in (Reason.NEW, Reason.LATE, Reason.SIGNALLED)]
        seen |= set(reasons.chosen)
    assert seen == set(Reason)
