"""The run queue as dagster.yaml sets it up."""

import dagster as dg
import pytest
from sqlalchemy import make_url

from mustit_pipeline.cli.runtime import dagster_environment
from mustit_pipeline_tests.conftest import MakeSettings, TestServers


def test_how_many_runs_go_on_at_once_is_a_setting_a_seller_has_one_and_backfills_three(
    make_settings: MakeSettings, test_servers: TestServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = make_url(test_servers.servers.dagster_database_url).set(drivername="postgresql")
    settings = make_settings(runs_at_once=3, dagster_database_url=url.render_as_string(hide_password=False))
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    for name, value in dagster_environment(settings).items():
        monkeypatch.setenv(name, value)
    with dg.DagsterInstance.get() as instance:
        queue = instance.get_concurrency_config().run_queue_config
    assert queue is not None
    assert queue.max_concurrent_runs == 3
    assert queue.tag_concurrency_limits == [
        {"key": "dagster/partition", "value": {"applyLimitPerUniqueValue": True}, "limit": 1},
        {"key": "dagster/backfill", "limit": 3},
    ]
