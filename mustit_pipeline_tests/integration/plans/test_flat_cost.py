"""What a statement costs depends on what it is about, not on what lies beside it or on what the planner believes."""

from uuid import uuid4

import pytest
from sqlalchemy import text

from mustit_pipeline.catalog.sql import products
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.scheduling.sql import next_sellers
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.crawls import crawl, register
from mustit_pipeline_tests.integration.plans.costs import cost, statements_of
from mustit_pipeline_tests.integration.plans.crowd import register as register_many
from mustit_pipeline_tests.integration.plans.statements import STATEMENTS, Scene
from mustit_pipeline_tests.integration.plans.statistics import STATISTICS

# A row is met by several steps of a plan, and found through the pages of an index; a written one enters all of them.
ROWS_OF_A_LOOK, PAGES_OF_A_LOOK, FIRST_PAGES = 12, 50, 200


@pytest.mark.parametrize("generic", [False, True], ids=["values known", "plan for all values"])
@pytest.mark.parametrize("believed", STATISTICS)
def test_a_statement_looks_at_what_it_is_about_whatever_the_planner_believes(
    crowded: Database, believed: str, generic: bool
) -> None:
    too_much: dict[str, str] = {}
    with crowded.engine.connect() as connection:
        STATISTICS[believed](connection)
        connection.exec_driver_sql(f"SET LOCAL plan_cache_mode = {'force_generic_plan' if generic else 'auto'}")
        scene = Scene(connection)
        for name, statement in STATEMENTS.items():
            sent = statements_of(connection, lambda c, s=statement: s.act(c, scene))
            if not sent:
                too_much[name] = "asks nothing of a table that grows"
            undone = connection.begin_nested()
            for one in sent:
                found = cost(connection, one, generic=generic)
                pages = statement.pages or PAGES_OF_A_LOOK * statement.looks + FIRST_PAGES
                most = ROWS_OF_A_LOOK * statement.looks, pages
                if found.rows > most[0] or found.pages > most[1]:
                    too_much[name] = f"{found} > {most}: {one.shape[:300]}"
            undone.rollback()
        connection.rollback()
    assert too_much == {}


def test_the_choice_of_the_next_seller_does_not_look_at_those_that_are_not_due(database: Database) -> None:
    with database.transaction() as connection:
        register_many(connection, [f"seller {number}" for number in range(3000)])
        connection.exec_driver_sql("ANALYZE")
    with database.engine.connect() as connection:
        for look in (
            lambda c: next_sellers.next_sellers(c, 4, busy=["x"], slice_seconds=600),
            lambda c: next_sellers.count_next_sellers(c, busy=["x"]),
        ):
            [sent] = statements_of(connection, look)
            for generic in (False, True):
                assert cost(connection, sent, generic=generic).rows < ROWS_OF_A_LOOK


def test_a_product_that_a_crawl_has_only_seen_again_enters_no_index(database: Database) -> None:
    """Every crawl writes every product that it sees: as a HOT update, or each time into all indexes."""
    register(database, "dmont")
    with database.transaction() as connection:
        products.sight(connection, "dmont", uuid4(), {7: utc_now()})
    with database.transaction() as connection:
        products.sight(connection, "dmont", uuid4(), {7: utc_now()})
        hot = connection.execute(text("SELECT pg_stat_get_xact_tuples_hot_updated('products'::regclass)")).scalar_one()
    assert hot == 1


def test_what_every_crawl_adds_lies_together_in_the_index_of_ids(
    database: Database, make_settings: MakeSettings, marketplace: RunningSimulator, market: MarketplaceControl
) -> None:
    """By random ids each new row would read and write another page of an index that no cache holds."""
    market.add_seller("dmont", 3)
    register(database, "dmont")
    crawl(database, make_settings(base_url=marketplace.url, page_size=20), "dmont")
    with database.reading() as connection:
        for ids in ("task_id FROM crawler_tasks", "change_set_id FROM product_change_sets"):
            found = list(connection.execute(text(f"SELECT {ids}")).scalars())
            assert len(found) >= 3
            assert {one.version for one in found} == {7}
