"""Metrics as Prometheus scrapes them: after real work, from several servers, and with a part of the world missing."""

import re
from collections.abc import Generator
from pathlib import Path
from threading import Barrier, Thread

import orjson
import pytest
import yaml
from dagster._core.storage.runs.schema import RunStorageSqlMetadata
from fastapi.testclient import TestClient
from prometheus_client import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import event, make_url, text
from structlog.testing import capture_logs

from mustit_pipeline.api.context import Ground
from mustit_pipeline.aws.setup import make_queues
from mustit_pipeline.delivery.relay import relay
from mustit_pipeline.domain.access import Scope
from mustit_pipeline.domain.states import ExecutionStatus, TaskStatus
from mustit_pipeline.foundation.database import Database, make_engine
from mustit_pipeline.monitoring import exposition
from mustit_pipeline.monitoring.exposition import Exposition
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration import rows
from mustit_pipeline_tests.integration.api.conftest import MakeClient
from mustit_pipeline_tests.integration.crawls import crawl, register
from mustit_pipeline_tests.simulated_aws import SimulatedAws

SELLER = "럭셔리 샵&co"
MONITORING = Path(__file__).parents[3] / "deploy" / "monitoring"
# What one look at the metrics may not exceed, however much is stored.
MOST_SERIES = 300
LABELS = {"le", "state", "endpoint", "outcome", "type", "event", "kind", "job", "version", "schema", "source", "size"}
Numbers = dict[str, float]


def scraped(client: TestClient) -> list[Metric]:
    answer = client.get("/metrics")
    assert answer.status_code == 200, answer.text
    return list(text_string_to_metric_families(answer.text))


def numbers(families: list[Metric]) -> Numbers:
    """Each sample by its name and the values of its labels."""
    return {
        " ".join((sample.name, *sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


@pytest.fixture
def reader(with_key: MakeClient) -> TestClient:
    return with_key(Scope.METRICS)


def test_after_a_crawl_and_its_delivery_the_metrics_say_what_was_done(
    reader: TestClient,
    database: Database,
    make_settings: MakeSettings,
    marketplace: RunningSimulator,
    product_server: RunningSimulator,
    market: MarketplaceControl,
) -> None:
    settings = make_settings(base_url=marketplace.url, product_server_url=product_server.url, page_size=20)
    market.add_seller(SELLER, 45)
    register(database, SELLER)
    crawl(database, settings, SELLER)
    relay(database, settings)
    market.random_changes(SELLER, 6)
    market.fault("status", "detail", status=503, count=1)
    crawl(database, settings, SELLER)

    found = numbers(scraped(reader))

    # The count call and three pages, twice; of the details one was asked for twice.
    assert found["mustit_fetches_total minishop ok"] == 2 * (1 + 3)
    assert found["mustit_fetches_total product_detail ok"] == 2 * 45
    assert found["mustit_fetches_total product_detail server_error"] == 1
    assert found["mustit_fetch_duration_seconds_count product_detail"] == 2 * 45 + 1
    assert found["mustit_fetch_duration_seconds_bucket product_detail +Inf"] == 2 * 45 + 1
    assert 0 < found["mustit_fetch_duration_seconds_sum product_detail"] < 60
    assert found["mustit_changes_total created"] == 45
    assert found["mustit_delivery_delay_seconds_count created"] == 45
    assert found["mustit_outbox_rows waiting"] == 6
    assert 0 < found["mustit_outbox_oldest_age_seconds waiting"] < 600
    assert found["mustit_agents available"] == 50
    with database.reading() as connection:
        used = connection.execute(text("SELECT count(*) FROM agent_bookings")).scalar_one()
    assert (found["mustit_budget_used_requests"], found["mustit_budget_left_requests"]) == (used, 50 * 100_000 - used)
    assert (found["mustit_sweep_listed_products"], found["mustit_sweep_coverage_ratio"]) == (45, 1)
    assert (found["mustit_sellers active"], found["mustit_sellers_due"], found["mustit_sellers_overdue"]) == (1, 0, 0)


def test_an_incomplete_sweep_is_seen_in_the_coverage_without_counting_products(
    reader: TestClient,
    database: Database,
    make_settings: MakeSettings,
    marketplace: RunningSimulator,
    market: MarketplaceControl,
) -> None:
    settings = make_settings(base_url=marketplace.url, page_size=20, task_max_retries=0)
    market.add_seller(SELLER, 40)
    register(database, SELLER)
    market.fault("status", "listing", status=404, pageNo=1)
    crawl(database, settings, SELLER)
    with database.transaction() as connection:
        connection.execute(text("UPDATE products SET last_seen_execution_id = NULL"))

    found = numbers(scraped(reader))

    assert found["mustit_sweeps_incomplete"] == 1
    assert (found["mustit_sweep_listed_products"], found["mustit_sweep_seen_products"]) == (40, 20)


@pytest.mark.parametrize(
    ("status", "waiting"), [(ExecutionStatus.RUNNING, 3), (ExecutionStatus.PENDING, 3), (ExecutionStatus.PAUSED, 0)]
)
def test_tasks_that_wait_for_a_worker_are_counted_unless_their_crawl_is_paused(
    reader: TestClient, database: Database, status: ExecutionStatus, waiting: int
) -> None:
    """The number that an autoscaler of workers follows."""
    home = rows.ground(database, status).home
    states = [TaskStatus.PUBLISHED, TaskStatus.WAITING, TaskStatus.RETRY, TaskStatus.COMPLETED, TaskStatus.FAILED]
    with database.transaction() as connection:
        for item_no, state in enumerate([*states, TaskStatus.IN_PROGRESS, TaskStatus.IN_PROGRESS], start=1):
            rows.add_task(connection, home, state, item_no)

    found = numbers(scraped(reader))

    assert (found["mustit_tasks_waiting"], found["mustit_tasks_leased"]) == (waiting, 2)


def test_two_servers_tell_the_same(ground: Ground, database: Database) -> None:
    register(database, SELLER)
    texts = []
    for _ in range(2):
        one = Exposition(ground.database, ground.settings)
        texts.append(one.text("")[0])
        one.close()
    assert texts[0] == texts[1]
    assert b'mustit_sellers{state="active"} 1.0' in texts[0]


def test_names_units_and_labels_are_as_prometheus_wants_them(reader: TestClient, database: Database) -> None:
    register(database, SELLER)
    families = scraped(reader)
    assert len(families) > 20
    for family in families:
        assert re.fullmatch(r"mustit_[a-z0-9_]+", family.name)
        assert family.documentation
        assert not re.search(r"_(milliseconds|ms|hours?|minutes?|days?|percent|kb|mb)(_|$)", family.name), family.name
        assert not family.name.endswith(("_total", "_count", "_sum", "_bucket")), family.name
        if family.type == "counter":
            assert {sample.name for sample in family.samples} == {f"{family.name}_total"}
        labels = {name for sample in family.samples for name in sample.labels}
        assert labels <= LABELS
    assert sum(len(family.samples) for family in families) < MOST_SERIES
    assert SELLER not in reader.get("/metrics").text


def test_the_content_type_is_the_one_that_the_reader_asks_for(reader: TestClient) -> None:
    plain = reader.get("/metrics")
    assert plain.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    wanted = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3"
    answer = reader.get("/metrics", headers={"Accept": wanted})
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0; charset=utf-8")
    assert list(openmetrics.text_string_to_metric_families(answer.text))
    assert answer.text.endswith("# EOF\n")


def test_only_a_key_of_that_scope_opens_it(anyone: TestClient, admin: TestClient, with_key: MakeClient) -> None:
    assert anyone.get("/metrics").status_code == 401
    assert admin.get("/metrics").status_code == 401
    assert with_key(Scope.TRIGGER).get("/metrics").status_code == 403


def test_scrapes_at_the_same_time_read_the_database_once(ground: Ground) -> None:
    one = Exposition(ground.database, ground.settings)
    asked: list[str] = []
    event.listen(ground.database.engine, "before_cursor_execute", lambda *a: asked.append(a[2]))
    ready = Barrier(8)

    def scrape() -> None:
        ready.wait()
        one.text("")

    threads = [Thread(target=scrape) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum("FROM pool_state" in statement for statement in asked) == 1


def test_a_change_is_told_once_what_was_read_is_old(
    ground: Ground, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Exposition(ground.database, ground.settings)
    one.text("")
    register(database, SELLER)
    assert b'mustit_sellers{state="active"} 0.0' in one.text("")[0]
    monkeypatch.setattr(exposition, "FRESH_SECONDS", 0.0)
    assert b'mustit_sellers{state="active"} 1.0' in one.text("")[0]


@pytest.fixture
def dagster_database(empty_database_url: str) -> Generator[Database]:
    """A database with Dagster's own table of runs."""
    opened = Database(make_engine(make_url(empty_database_url)))
    RunStorageSqlMetadata.create_all(opened.engine)
    yield opened
    opened.close()


def test_runs_are_told_by_job_and_result(
    database: Database, make_settings: MakeSettings, dagster_database: Database, empty_database_url: str
) -> None:
    add = text("""
        INSERT INTO runs (run_id, pipeline_name, status, update_timestamp)
        SELECT job || state || n || age, job, state, now() AT TIME ZONE 'UTC' - age * interval '1 hour'
        FROM (VALUES ('crawl_seller', 'SUCCESS', 3), ('crawl_seller', 'FAILURE', 1), ('maintain', 'STARTED', 1))
             AS v(job, state, many), generate_series(1, many) n, (VALUES (1), (30)) AS a(age)
    """)
    with dagster_database.transaction() as connection:
        connection.execute(add)
    one = Exposition(database, make_settings(dagster_database_url=empty_database_url))
    found = numbers(list(text_string_to_metric_families(one.text("")[0].decode())))
    one.close()
    assert found["mustit_dagster_database_up"] == 1
    assert {name: value for name, value in found.items() if name.startswith("mustit_dagster_runs")} == {
        "mustit_dagster_runs crawl_seller success": 3,
        "mustit_dagster_runs crawl_seller failure": 1,
        "mustit_dagster_runs maintain started": 1,
    }


def test_without_dagsters_database_the_rest_is_told_and_it_is_not_asked_again_at_once(
    database: Database, make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exposition, "FRESH_SECONDS", 0.0)
    # No server listens on the discard port of a test machine.
    one = Exposition(database, make_settings(dagster_database_url="postgresql://me@127.0.0.1:9/dagster"))
    with capture_logs() as lines:
        texts = [one.text("")[0].decode() for _ in range(3)]
    one.close()
    for said in texts:
        found = numbers(list(text_string_to_metric_families(said)))
        assert (found["mustit_dagster_database_up"], found["mustit_agents available"]) == (0, 50)
        assert "mustit_dagster_runs" not in said
    assert len(lines) == 1


def queries() -> list[str]:
    """Every query of the dashboard and of the alerts."""
    dashboard = orjson.loads((MONITORING / "grafana-dashboard.json").read_bytes())
    rules = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"][0]["rules"]
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    return [*shown, *(rule["expr"] for rule in rules)]


def test_dashboard_and_alerts_ask_for_what_is_exported_and_for_all_of_it(
    database: Database,
    make_settings: MakeSettings,
    dagster_database: Database,
    empty_database_url: str,
    aws: SimulatedAws,
) -> None:
    settings = make_settings(
        dagster_database_url=empty_database_url, task_transport="sqs", aws_endpoint_url=aws.endpoint
    )
    make_queues(settings)
    with dagster_database.transaction() as connection:
        failed = "INSERT INTO runs (run_id, pipeline_name, status) VALUES ('1', 'crawl_seller', 'FAILURE')"
        connection.execute(text(failed))
    one = Exposition(database, settings)
    families = list(text_string_to_metric_families(one.text("")[0].decode()))
    one.close()
    labels: dict[str, dict[str, set[str]]] = {}
    for sample in (sample for family in families for sample in family.samples):
        known = labels.setdefault(sample.name, {})
        for name, value in sample.labels.items():
            known.setdefault(name, set()).add(value)

    asked: set[str] = set()
    for query in queries():
        found = re.findall(r"\b(mustit_\w+)(?:\{([^}]*)\})?", query)
        assert found or "up{" in query, query
        for metric, matchers in found:
            assert metric in labels, f"{metric} of {query}"
            asked.add(metric)
            for name, values in re.findall(r'(\w+)=~?"([^"]*)"', matchers):
                assert set(values.split("|")) <= labels[metric][name], query
        grouped = re.findall(r"\b(?:by|without) \(([^)]*)\)", query)
        exported = {name for metric, _ in found for name in labels[metric]} | {"instance", "job"}
        assert {name.strip() for names in grouped for name in names.split(",")} <= exported, query
    unused = [family.name for family in families if not any(name.startswith(family.name) for name in asked)]
    assert unused == []


def test_the_scrape_config_reads_the_route_with_a_key_in_its_header(reader: TestClient) -> None:
    [job] = yaml.safe_load((MONITORING / "prometheus.yaml").read_text())["scrape_configs"]
    [(header, value)] = job["http_headers"].items()
    key = reader.headers[header]
    assert value.keys() == {"files"}
    reader.headers.clear()
    assert reader.get(job["metrics_path"]).status_code == 401
    assert reader.get(job["metrics_path"], headers={header: key}).status_code == 200
