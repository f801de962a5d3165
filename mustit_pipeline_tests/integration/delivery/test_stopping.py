"""A relay that is asked to stop: what is in flight may end for the grace time, the rest is given back."""

import os
import signal
import threading
import time
from collections.abc import Callable

import pytest

from mustit_pipeline.delivery.relay import RelayReport, relay
from mustit_pipeline.settings import Settings
from mustit_pipeline.simulator.control import ProductServerControl
from mustit_pipeline_tests.integration.catalog.shelf import Shelf

Effects = Callable[[], list[tuple[int, int, str]]]
ROWS = 60
IN_FLIGHT = 4


def sends(server: ProductServerControl) -> int:
    return server.audit()["requests"].get("events", 0)


def stopped_after(
    calls: int, shelf: Shelf, settings: Settings, server: ProductServerControl, times: int
) -> RelayReport:
    """Send until so many calls were made, then be asked to stop."""
    report = RelayReport()

    def ask() -> None:
        while sends(server) < calls:
            time.sleep(0.02)
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)

    asking = threading.Thread(target=ask)
    asking.start()
    with pytest.raises(KeyboardInterrupt):
        relay(shelf.database, settings, patience_seconds=60, report=report)
    asking.join()
    return report


def states(shelf: Shelf) -> dict[str, int]:
    rows = shelf.rows("SELECT status, count(*) AS n, max(retry_count) AS tries FROM product_outbox GROUP BY status")
    assert all(row["tries"] == 0 for row in rows)
    return {row["status"]: row["n"] for row in rows}


def test_what_is_in_flight_ends_within_the_grace_time_and_the_rest_waits(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects
) -> None:
    slow = settings.model_copy(update={"relay_concurrent_sends": IN_FLIGHT})
    server.fault("slow", "events", seconds=0.2)
    shelf.crawl(*range(1, ROWS + 1))

    report = stopped_after(10, shelf, slow, server, 1)

    assert report.sent == len(effects()) == sends(server)
    assert report.waiting == ROWS - report.sent > 0
    assert states(shelf) == {"COMPLETED": report.sent, "WAITING": report.waiting}
    server.clear_faults()
    assert relay(shelf.database, settings).sent == report.waiting


@pytest.mark.parametrize(("grace", "times"), [(0.2, 1), (30.0, 2)])
def test_what_takes_longer_than_that_is_given_back_and_its_effect_is_one(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects, grace: float, times: int
) -> None:
    """Asked a second time, it waits no longer for the grace time either."""
    impatient = settings.model_copy(update={"relay_concurrent_sends": IN_FLIGHT, "relay_grace_seconds": grace})
    server.fault("late", "events", seconds=1.0)
    shelf.crawl(*range(1, ROWS + 1))

    report = stopped_after(IN_FLIGHT, shelf, impatient, server, times)

    assert (report.sent, report.failed, report.waiting) == (0, 0, ROWS)
    assert states(shelf) == {"WAITING": ROWS}
    assert shelf.rows("SELECT sum(attempts) AS n FROM product_outbox") == [{"n": IN_FLIGHT}]
    server.clear_faults()
    assert relay(shelf.database, settings, patience_seconds=5).sent == ROWS
    assert len(effects()) == ROWS


def test_a_relay_that_waits_for_a_pause_to_end_stops_at_once(
    shelf: Shelf, settings: Settings, server: ProductServerControl
) -> None:
    patient = settings.model_copy(update={"outbox_retry_base_seconds": 40.0})
    server.fault("status", "events", status=500)
    shelf.crawl(1)

    began = time.monotonic()
    report = stopped_after(1, shelf, patient, server, 1)

    assert time.monotonic() - began < 30
    assert (report.sent, report.waiting) == (0, 1)
