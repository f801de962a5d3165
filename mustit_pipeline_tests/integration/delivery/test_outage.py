"""An outage burns nothing, opens the breaker, and one trial at a time finds its end."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from mustit_pipeline.delivery.relay import relay
from mustit_pipeline.outbox.sql import outbox
from mustit_pipeline.settings import Settings
from mustit_pipeline.simulator.control import ProductServerControl
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.catalog.shelf import Shelf
from mustit_pipeline_tests.integration.crawling.child import wait_until

Effects = Callable[[], list[tuple[int, int, str]]]
LET_A_TRIAL_BE_DUE = "UPDATE circuit_breakers SET open_until = now() - interval '1 second'"
LET_ALL_BE_DUE = "UPDATE product_outbox SET next_attempt_at = now() - interval '1 second' WHERE status = 'WAITING'"
WAITING_FOR_A_TURN = """
    SELECT count(*) AS n FROM pg_locks JOIN pg_database d ON d.oid = database
    WHERE locktype = 'advisory' AND NOT granted AND d.datname = current_database()
"""

BREAKER_THRESHOLD = 5


def sends(server: ProductServerControl) -> int:
    return server.audit()["requests"].get("events", 0)


def test_an_outage_opens_the_breaker_and_burns_no_attempt(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects
) -> None:
    narrow = settings.model_copy(update={"relay_concurrent_sends": 2})
    server.fault("down", "events")
    shelf.crawl(*range(1, 31))

    report = relay(shelf.database, narrow)

    assert (report.sent, report.failed, report.waiting) == (0, 0, 30)
    assert BREAKER_THRESHOLD <= sends(server) <= BREAKER_THRESHOLD + 2
    assert shelf.rows("SELECT DISTINCT status, retry_count FROM product_outbox") == [
        {"status": "WAITING", "retry_count": 0}
    ]
    assert shelf.rows("SELECT sum(attempts) AS n FROM product_outbox") == [{"n": sends(server)}]

    shelf.change(LET_ALL_BE_DUE)
    before = sends(server)
    relay(shelf.database, narrow)
    assert sends(server) == before

    shelf.change(LET_A_TRIAL_BE_DUE)
    relay(shelf.database, narrow)
    assert sends(server) == before + 1

    server.clear_faults()
    shelf.change(LET_A_TRIAL_BE_DUE)
    shelf.change(LET_ALL_BE_DUE)
    report = relay(shelf.database, narrow)
    assert (report.sent, report.waiting) == (30, 0)
    assert sorted(effects()) == [(item, 1, "PRODUCT_CREATED") for item in range(1, 31)]


def test_a_relay_that_has_gone_on_for_long_enough_leaves_the_rest_to_the_next_one(
    shelf: Shelf, settings: Settings, server: ProductServerControl
) -> None:
    shelf.crawl(1, 2, 3)

    over = relay(shelf.database, settings.model_copy(update={"relay_run_seconds": 0.0}), patience_seconds=60)

    assert (over.sent, over.failed, over.waiting, sends(server)) == (0, 0, 3, 0)
    assert relay(shelf.database, settings).sent == 3


def test_of_two_relays_that_find_a_trial_due_at_once_one_makes_it(
    shelf: Shelf, settings: Settings, server: ProductServerControl
) -> None:
    server.fault("down", "events")
    shelf.crawl(*range(1, 11))
    relay(shelf.database, settings)
    shelf.change(LET_ALL_BE_DUE)
    shelf.change(LET_A_TRIAL_BE_DUE)
    before = sends(server)

    with ThreadPoolExecutor(2) as threads:
        with shelf.database.transaction() as connection:
            outbox.lock_claims(connection)
            both = [threads.submit(relay, shelf.database, settings) for _ in range(2)]
            wait_until(lambda: shelf.rows(WAITING_FOR_A_TURN) == [{"n": 2}])
        for one in both:
            one.result()

    assert sends(server) == before + 1


def test_a_patient_relay_waits_for_the_trial_and_sends_everything_after_it(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects
) -> None:
    shelf.crawl(*range(1, 9))
    server.fault("down", "events", seconds=0.6)

    trying = settings.model_copy(update={"product_server_breaker_seconds": 0.3})
    report = relay(shelf.database, trying, patience_seconds=5)

    assert (report.sent, report.failed, report.waiting) == (8, 0, 0)
    assert len(effects()) == 8
    assert shelf.rows("SELECT DISTINCT retry_count FROM product_outbox") == [{"retry_count": 0}]


def test_a_server_that_refuses_connections_has_been_sent_nothing(shelf: Shelf, make_settings: MakeSettings) -> None:
    shelf.crawl(*range(1, 11))

    report = relay(shelf.database, make_settings(product_server_url="http://127.0.0.1:1"))

    assert (report.sent, report.waiting) == (0, 10)
    assert shelf.rows("SELECT DISTINCT status, attempts, retry_count FROM product_outbox") == [
        {"status": "WAITING", "attempts": 0, "retry_count": 0}
    ]


def test_the_trial_is_not_made_with_the_row_that_breaks_every_connection(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects
) -> None:
    server.fault("drop_before", "events", itemNo=1)
    shelf.crawl(1)
    for _ in range(BREAKER_THRESHOLD):
        relay(shelf.database, settings)
        shelf.change(LET_ALL_BE_DUE)
    assert shelf.rows("SELECT open_until > now() AS open FROM circuit_breakers") == [{"open": True}]
    shelf.crawl(1, 2)

    shelf.change(LET_A_TRIAL_BE_DUE)
    relay(shelf.database, settings)

    assert effects() == [(2, 1, "PRODUCT_CREATED")]


def test_events_that_send_nothing_do_not_use_up_the_trial(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects
) -> None:
    """Products deleted before anything was sent are the oldest and were never tried: each would be the trial."""
    small = settings.model_copy(update={"relay_batch": 10})
    server.fault("down", "events")
    shelf.crawl(*range(1, 8))
    relay(shelf.database, small)
    assert shelf.rows("SELECT open_until > now() AS open FROM circuit_breakers") == [{"open": True}]
    unsaid = range(100, 125)
    shelf.crawl(*range(1, 8), *unsaid)
    assert shelf.delete(*unsaid) == len(unsaid)
    shelf.change(LET_ALL_BE_DUE)
    shelf.change("UPDATE product_outbox SET next_attempt_at = now() - interval '1 hour' WHERE item_no >= 100")
    before = sends(server)

    shelf.change(LET_A_TRIAL_BE_DUE)
    relay(shelf.database, small)

    assert sends(server) == before + 1
    assert shelf.rows("SELECT DISTINCT status, attempts FROM product_outbox WHERE item_no >= 100") == [
        {"status": "COMPLETED", "attempts": 0}
    ]
    assert shelf.rows("SELECT count(*) AS n FROM product_outbox WHERE status = 'WAITING'") == [{"n": 7}]
    assert shelf.rows("SELECT sum(attempts) AS n FROM product_outbox") == [{"n": sends(server)}]

    server.clear_faults()
    shelf.change(LET_A_TRIAL_BE_DUE)
    shelf.change(LET_ALL_BE_DUE)
    assert relay(shelf.database, small).sent == 7
    assert len(effects()) == 7
