"""Ctrl-C and SIGTERM while events are under way: the relay takes no new one, ends soon, and tells the truth."""

import signal
import time
from collections.abc import Generator

import pytest
from dagster import DagsterRunStatus
from sqlalchemy import text

from mustit_pipeline.cli.runtime import dagster_instance
from mustit_pipeline_tests.e2e.asking import explained, settings_of
from mustit_pipeline_tests.e2e.conftest import World, opened_world

PRODUCTS = 60
SOON_SECONDS = 30.0


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    """A home of its own: how slowly its product server answers concerns no other test."""
    with opened_world(tmp_path_factory.mktemp("stopping-relay")) as opened:
        yield opened


def arrived(world: World, seller: str) -> int:
    return sum(effect.seller_id == seller for effect in world.receiver.log())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_relay_that_is_stopped_gives_back_what_it_has_not_sent_and_reports_what_it_has(
    world: World, number: signal.Signals, code: int
) -> None:
    """It stalled for a minute, sent everything that was left, and reported less than it had sent."""
    seller = f"stopped by {number.name}"
    world.register(seller, PRODUCTS)
    assert explained(world, "crawl", seller).code == 0
    fault = world.receiver.fault("slow", "events", seconds=0.3)
    with world.mustit.start("relay", "--json", MUSTIT_RELAY_CONCURRENT_SENDS="4") as process:
        while arrived(world, seller) < 10:
            assert process.poll() is None
            time.sleep(0.05)
        asked = time.monotonic()
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        took = time.monotonic() - asked
    world.receiver.clear_faults(fault)

    sent = arrived(world, seller)
    assert process.returncode == code, err
    assert took < SOON_SECONDS
    assert "Traceback" not in err
    assert "Stopped" in err
    assert 10 <= sent < PRODUCTS
    assert out.splitlines()[0].startswith("{")
    assert f'"sent": {sent}' in out
    assert f'"waiting": {PRODUCTS - sent}' in out
    with world.database.reading() as connection:
        query = text("SELECT status, count(*), max(retry_count) FROM product_outbox WHERE seller_id = :id GROUP BY 1")
        found = {row[0]: (row[1], row[2]) for row in connection.execute(query, {"id": seller})}
    assert found == {"COMPLETED": (sent, 0), "WAITING": (PRODUCTS - sent, 0)}
    # A run that failed would open an alert.
    with dagster_instance(settings_of(world)) as instance:
        assert instance.get_runs(limit=1)[0].status is DagsterRunStatus.CANCELED
    assert explained(world, "relay", "--json").document["sent"] == PRODUCTS - sent
    assert arrived(world, seller) == PRODUCTS
