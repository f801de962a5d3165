"""`mustit reconcile` as a person uses it."""

from sqlalchemy import text

from mustit_pipeline.delivery.relay import relay
from mustit_pipeline_tests.e2e.asking import ask, explained, settings_of
from mustit_pipeline_tests.e2e.conftest import NOWHERE, World
from mustit_pipeline_tests.integration.crawls import crawl

SELLER = "reconcile & 대조/1"


def test_a_difference_is_shown_sent_again_and_gone(world: World) -> None:
    settings = settings_of(world)
    world.register(SELLER, 5)
    crawl(world.database, settings, SELLER)
    relay(world.database, settings)
    agreed = ask(world, "reconcile", "--seller", SELLER, "--json")
    assert agreed.code == 0
    assert (agreed.document["compared"], agreed.document["differences"]) == (5, 0)

    with world.database.transaction() as connection:
        query = text("""
            UPDATE product_change_sets SET product_data = replace(product_data, '"soldOut"\\:false', '"soldOut"\\:true')
            WHERE seller_id = :seller AND version = 1 RETURNING item_no
        """)
        items = sorted(connection.execute(query, {"seller": SELLER}).scalars())
    shown = explained(world, "reconcile", "--seller", SELLER)
    assert shown.code == 1
    assert "different fields" in shown.out
    assert "soldOut" in shown.out

    healed = ask(world, "reconcile", "--seller", SELLER, "--resend", "--json")
    assert healed.code == 0
    assert healed.document["resent"] == healed.document["byKind"]["DIFFERENT"] > 0
    assert {one["itemNo"] for one in healed.document["examples"]} <= set(items)
    relay(world.database, settings)
    assert ask(world, "reconcile", "--seller", SELLER).code == 0


def test_a_server_that_is_down_and_an_unknown_seller_are_said_in_words(world: World) -> None:
    unknown = explained(world, "reconcile", "--seller", "stranger", "--json")
    assert (unknown.code, unknown.document["errorCode"]) == (1, "NOT_FOUND_SELLER")
    down = explained(world, "reconcile", "--json", MUSTIT_PRODUCT_SERVER_URL=NOWHERE)
    assert down.code == 1
    assert down.document["errorCode"] == "EXTERNAL_PRODUCT_SERVER_UNREACHABLE"
