"""Five failures are the end of a hopeless event, but not of one that had bad luck; and failing ones hold up nobody."""

from collections.abc import Callable

import pytest

from mustit_pipeline.delivery.relay import RelayReport, relay
from mustit_pipeline.settings import Settings
from mustit_pipeline.simulator.control import ProductServerControl
from mustit_pipeline_tests.integration.catalog.shelf import Shelf

Effects = Callable[[], list[tuple[int, int, str]]]
FLAKY = range(100, 110)


def fail_once_each(server: ProductServerControl) -> None:
    """Ten products whose first event fails and whose second one goes through."""
    for item in FLAKY:
        server.fault("status", "events", status=503, itemNo=item, count=1)


def state(shelf: Shelf, item: int) -> tuple[str, int]:
    (row,) = shelf.outbox(item)
    return row["status"], row["retry_count"]


def test_an_event_that_only_had_bad_luck_with_a_flaky_server_goes_through(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects
) -> None:
    fail_once_each(server)
    server.fault("status", "events", status=503, itemNo=1, count=7)
    shelf.crawl(1, *FLAKY)

    report = relay(shelf.database, settings, patience_seconds=10)

    assert (report.sent, report.failed, report.waiting) == (11, 0, 0)
    assert state(shelf, 1) == ("COMPLETED", 7)
    assert len(effects()) == 11


@pytest.mark.parametrize(("status", "failures"), [(503, 10), (422, 5)])
def test_patience_with_a_flaky_server_has_an_end_and_is_not_for_an_event_that_is_itself_refused(
    shelf: Shelf, settings: Settings, server: ProductServerControl, status: int, failures: int
) -> None:
    fail_once_each(server)
    server.fault("status", "events", status=status, itemNo=1)
    shelf.crawl(1, *FLAKY)
    twice = settings.model_copy(update={"outbox_flaky_factor": 2, "relay_longest_backoff_seconds": 0.1})

    report = relay(shelf.database, twice, patience_seconds=10)

    assert (report.sent, report.failed, report.waiting) == (10, 1, 0)
    assert state(shelf, 1) == ("FAILED", failures)


def test_a_server_that_refuses_everything_makes_the_fifth_failure_final_however_flaky_it_was_before(
    shelf: Shelf, settings: Settings, server: ProductServerControl
) -> None:
    fail_once_each(server)
    shelf.crawl(*FLAKY)
    assert relay(shelf.database, settings, patience_seconds=10).sent == len(FLAKY)
    server.fault("status", "events", status=500)
    shelf.crawl(1, 2, 3)

    report = relay(shelf.database, settings, patience_seconds=10)

    assert (report.sent, report.failed, report.waiting) == (0, 3, 0)
    assert [state(shelf, item) for item in (1, 2, 3)] == [("FAILED", 5)] * 3


def test_failing_events_that_hang_leave_half_of_the_window_to_others(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects
) -> None:
    """Eight events meet silence. On their second try they are the oldest, and would fill the whole window."""
    narrow = settings.model_copy(
        update={"relay_concurrent_sends": 4, "product_server_read_seconds": 1.0, "retry_base_seconds": 3600.0}
    )
    hanging = range(1, 9)
    fault = server.fault("status", "events", status=503)
    shelf.crawl(*hanging)
    relay(shelf.database, narrow)
    server.clear_faults(fault)
    for item in hanging:
        server.fault("timeout_before", "events", seconds=30, itemNo=item)
    shelf.crawl(*range(50, 80))
    shelf.change("UPDATE product_outbox SET next_attempt_at = now() - interval '1 hour' WHERE item_no < 50")
    hung_by_then: list[int] = []

    def look(report: RelayReport) -> None:
        if report.sent == 30 and not hung_by_then:
            hung_by_then.append(server.audit()["faults"].get("timeout_before", 0))

    relay(shelf.database, narrow, progress=look)

    assert len(effects()) == 30
    assert hung_by_then[0] < len(hanging)


def test_events_that_hang_on_their_first_try_leave_half_of_the_window_to_the_newest(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects
) -> None:
    """Sixteen events that meet silence are the oldest: one after another they would fill the whole window."""
    narrow = settings.model_copy(
        update={"relay_concurrent_sends": 4, "product_server_read_seconds": 1.0, "outbox_max_retries": 1}
    )
    hanging = range(1, 17)
    for item in hanging:
        server.fault("timeout_before", "events", seconds=30, itemNo=item)
    shelf.crawl(*hanging)
    shelf.crawl(*hanging, *range(50, 80))
    hung_by_then: list[int] = []

    def look(report: RelayReport) -> None:
        if report.sent == 30 and not hung_by_then:
            hung_by_then.append(server.audit()["faults"].get("timeout_before", 0))

    report = relay(shelf.database, narrow, progress=look)

    assert (report.sent, report.failed, report.waiting) == (30, 16, 0)
    assert len(effects()) == 30
    assert hung_by_then[0] <= 4 + 2 * 2
    assert shelf.rows("SELECT DISTINCT attempts FROM product_outbox") == [{"attempts": 1}]
    assert server.audit()["maxInFlight"] <= 4
