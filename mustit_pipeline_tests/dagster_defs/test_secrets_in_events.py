"""Dagster writes its own lines, which no processor of ours sees: no secret reaches them, whatever fails in a run."""

import os
from collections.abc import Generator

import dagster as dg
import pytest
from sqlalchemy import URL, make_url

from mustit_pipeline.cli.runtime import dagster_instance
from mustit_pipeline.foundation.database import Database, make_engine
from mustit_pipeline.settings import load_settings
from mustit_pipeline.simulator.control import MarketplaceControl, ProductServerControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline_tests import leaks
from mustit_pipeline_tests.conftest import JWT_SECRET, TOKEN_KEY
from mustit_pipeline_tests.dagster_defs.conftest import SetEnvironment, run_job
from mustit_pipeline_tests.integration.crawls import register

SELLER = "럭셔리 샵&co"
PASSWORDS = {"database": "password-of-the-business", "dagster": "password-of-dagsters-own"}
TOKEN = "token-of-the-product-server"
NAMES = ("DAGSTER_HOME", "DAGSTER_STORAGE_URL", "DAGSTER_DISABLE_TELEMETRY", "MUSTIT_HOME", "MUSTIT_RUNS_AT_ONCE")


def with_password(url: str, name: str) -> URL:
    """The server of the tests takes any password."""
    return make_url(url).set(password=PASSWORDS[name])


@pytest.fixture
def instance(
    set_environment: SetEnvironment, database_url: str, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> Generator[dg.DagsterInstance]:
    """Dagster's events in PostgreSQL, and passwords in the addresses of both databases."""
    for name in NAMES:
        monkeypatch.setenv(name, os.environ.get(name, ""))
    set_environment(
        database_url=with_password(database_url, "database").render_as_string(hide_password=False),
        dagster_database_url=with_password(empty_database_url, "dagster").render_as_string(hide_password=False),
        product_server_token=TOKEN,
    )
    with dagster_instance(load_settings()) as opened:
        yield opened


def test_runs_that_work_and_runs_that_fail_leave_no_secret_in_events_metadata_or_rows(
    instance: dg.DagsterInstance,
    set_environment: SetEnvironment,
    database: Database,
    marketplace: RunningSimulator,
    market: MarketplaceControl,
    product_server: RunningSimulator,
    receiver: ProductServerControl,
    database_url: str,
    empty_database_url: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    set_environment(base_url=marketplace.url, product_server_url=product_server.url, page_size=20, task_max_retries=0)
    market.add_seller(SELLER, 6)
    register(database, SELLER)
    instance.add_dynamic_partitions("sellers", [SELLER])
    results = [run_job(instance, "crawl_seller", SELLER)]
    receiver.fault("status", "events", status=401, count=2)
    results.append(run_job(instance, "relay_product_outbox"))
    market.fault("status", "detail", status=401)
    market.fault("status", "listing", status=500)
    results.append(run_job(instance, "crawl_seller", SELLER))
    # A database that is not there, and a product server at which nothing listens.
    gone = with_password(database_url, "database").set(database="gone").render_as_string(hide_password=False)
    set_environment(database_url=gone, product_server_url="http://127.0.0.1:9")
    results += [run_job(instance, "crawl_seller", SELLER), run_job(instance, "relay_product_outbox")]
    succeeded = [result.success for result in results]
    assert (succeeded[0], succeeded[-2:]) == (True, [False, False])

    keys = load_settings().token_keys()
    secrets = {"key of tokens": TOKEN_KEY, "key of logins": JWT_SECRET, "token of the product server": TOKEN}
    secrets |= {f"password of {name}": value for name, value in PASSWORDS.items()}
    secrets |= leaks.marketplace_sessions(database, keys)
    assert len(secrets) > 5
    said = capfd.readouterr()
    found = list(leaks.in_texts(secrets, {"output": said.out, "errors": said.err}))
    found += leaks.in_database(secrets, database)
    dagsters = Database(make_engine(make_url(empty_database_url)))
    try:
        found += leaks.in_database(secrets, dagsters)
        assert list(leaks.in_database({"seller": SELLER}, dagsters)), "the search finds what is there"
    finally:
        dagsters.close()
    assert found == []
