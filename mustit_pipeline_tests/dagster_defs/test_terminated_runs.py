"""A run that is terminated in the UI, in the process that the daemon has started for it."""

import time
from pathlib import Path

import dagster as dg
import pytest
from sqlalchemy import text

from mustit_pipeline.cli.runtime import dagster_environment
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.settings import load_settings
from mustit_pipeline.simulator.control import ProductServerControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline_tests.dagster_defs.conftest import SetEnvironment
from mustit_pipeline_tests.dagster_defs.daemon import running_daemon, until
from mustit_pipeline_tests.integration.catalog.shelf import Shelf

PRODUCTS = 120
SOON_SECONDS = 15.0
ONE_RELAY = """
import dagster as dg
from mustit_pipeline.defs.delivery.product_relay import relay_product_outbox

@dg.sensor(job=relay_product_outbox, minimum_interval_seconds=1, default_status=dg.DefaultSensorStatus.RUNNING)
def once():
    return dg.RunRequest(run_key="once")

defs = dg.Definitions(jobs=[relay_product_outbox], sensors=[once])
"""


def test_a_relay_whose_run_is_terminated_sends_no_further_event_and_gives_the_rest_back(
    database: Database,
    set_environment: SetEnvironment,
    product_server: RunningSimulator,
    receiver: ProductServerControl,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its step was retried by its policy, and sent everything that was left."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    set_environment(product_server_url=product_server.url, relay_concurrent_sends=4)
    for name, value in dagster_environment(load_settings()).items():
        monkeypatch.setenv(name, value)
    receiver.fault("slow", "events", seconds=0.3)
    Shelf(database).crawl(*range(1, PRODUCTS + 1))

    with dg.DagsterInstance.get() as instance, running_daemon(tmp_path, ONE_RELAY):
        until(lambda: len(receiver.log()) >= 10)
        [run] = instance.get_runs()
        asked = time.monotonic()
        # What the UI's button does.
        assert instance.run_launcher.terminate(run.run_id)
        until(lambda: instance.get_runs()[0].status is dg.DagsterRunStatus.CANCELED)
        took = time.monotonic() - asked
        sent = len(receiver.log())
        [told] = instance.fetch_materializations(dg.AssetKey("product_server"), limit=10).records

    assert took < SOON_SECONDS
    assert 10 <= sent < PRODUCTS
    assert told.asset_materialization is not None
    assert told.asset_materialization.metadata["events_sent"].value == sent
    with database.reading() as connection:
        rows = connection.execute(text("SELECT status, count(*), max(retry_count) FROM product_outbox GROUP BY 1"))
        assert {row[0]: (row[1], row[2]) for row in rows} == {"COMPLETED": (sent, 0), "WAITING": (PRODUCTS - sent, 0)}
