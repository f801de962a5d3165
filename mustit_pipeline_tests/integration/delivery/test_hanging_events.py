"""Events that hang hold up no other event."""

from collections.abc import Callable

from mustit_pipeline.delivery.relay import RelayReport, relay
from mustit_pipeline.settings import Settings
from mustit_pipeline.simulator.control import ProductServerControl
from mustit_pipeline_tests.integration.catalog.shelf import Shelf

Effects = Callable[[], list[tuple[int, int, str]]]


def test_failing_events_that_hang_leave_half_of_the_window_to_others(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects
) -> None:
    """Eight events meet silence. On their second try they are the oldest, and would fill the whole window."""
    narrow = settings.model_copy(
        update={"relay_concurrent_sends": 4, "product_server_read_seconds": 1.0, "outbox_retry_base_seconds": 3600.0}
    )
    hanging = range(1, 9)
    fault = server.fault("status", "events", status=500)
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
