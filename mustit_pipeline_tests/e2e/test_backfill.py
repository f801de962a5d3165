"""`mustit backfill` where no daemon runs: here and now, seller after seller."""

from sqlalchemy import text

from mustit_pipeline.crawling.steering import deactivate_seller
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline_tests.e2e.asking import explained
from mustit_pipeline_tests.e2e.conftest import World


def test_sellers_are_fetched_anew_and_then_replayed_without_a_request(world: World) -> None:
    for seller in ("backfilled", "백필 & 50%"):
        world.register(seller, 2)

    fetched = explained(world, "backfill", "backfilled", "백필 & 50%", "backfilled", "--json")

    assert fetched.code == 0, fetched.err
    assert fetched.document == {
        "backfillId": None,
        "mode": "refetch",
        "sellers": 2,
        "status": "COMPLETED_SUCCESS",
        "succeeded": 2,
        "failed": [],
    }
    with world.database.transaction() as connection:
        query = "SELECT bool_and(full_refetch) FROM crawling_schedule_executions WHERE seller_id = 'backfilled'"
        assert connection.execute(text(query)).scalar_one()
        connection.execute(
            text(
                'UPDATE product_raw_data SET body = replace(body, \'"brandNameKr"\', \'"brandNameKr":"새","w"\')'
                " WHERE seller_id = 'backfilled'"
            )
        )
    world.market.reset_audit()

    replayed = explained(world, "backfill", "backfilled", "--mode", "replay")

    assert replayed.code == 0, replayed.err
    assert "replay of 1 sellers: 1 succeeded, 0 failed" in replayed.out
    assert world.market.requested_urls() == {}
    with world.database.reading() as connection:
        query = "SELECT min(version), max(version) FROM products WHERE seller_id = 'backfilled'"
        assert tuple(connection.execute(text(query)).one()) == (2, 2)


def test_a_seller_that_fails_is_named_and_the_next_one_is_done_all_the_same(world: World) -> None:
    for seller in ("failing", "following"):
        world.register(seller, 1)
    fault = world.market.fault("status", "listing", sellerId="failing", status=400)

    done = explained(world, "backfill", "failing", "following", "--json")

    world.market.clear_faults(fault)
    assert done.code == 1
    assert (done.document["status"], done.document["succeeded"]) == ("COMPLETED_FAILED", 1)
    [failed] = done.document["failed"]
    assert failed["sellerId"] == "failing"
    assert "unexpected status" in failed["message"]


def test_who_cannot_be_meant_is_refused_before_anything_is_begun(world: World) -> None:
    world.register("resting", 1)
    deactivate_seller(world.database, SellerId("resting"), utc_now())

    inactive = explained(world, "backfill", "resting", "--json")
    unknown = explained(world, "backfill", "resting", "stranger", "--mode", "replay", "--json")
    unnamed = explained(world, "backfill")

    assert (inactive.code, inactive.document["errorCode"]) == (1, "CONFLICT_SELLER_INACTIVE")
    assert (unknown.code, unknown.document["errorCode"]) == (1, "NOT_FOUND_SELLER")
    assert unnamed.code == 2
    assert "--all" in unnamed.err
    with world.database.reading() as connection:
        query = "SELECT count(*) FROM crawling_schedule_executions WHERE seller_id = 'resting'"
        assert connection.execute(text(query)).scalar_one() == 0
