"""Sensors and jobs on a real instance and a real database, with the environment that a Dagster process would have."""

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyarrow import parquet

from mustit_pipeline.crawling.sql import executions, slices
from mustit_pipeline.crawling.sql.executions import StoredExecution
from mustit_pipeline.crawling.sql.slices import EndedSlice
from mustit_pipeline.definitions import defs
from mustit_pipeline.defs.resources import RESOURCES
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.settings import load_settings
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline_tests.conftest import JWT_SECRET, TOKEN_KEY, dagster_beside
from mustit_pipeline_tests.integration.crawls import register
from mustit_pipeline_tests.simulated_aws import REGION, SimulatedAws

GRACE_SECONDS = 60.0
SetEnvironment = Callable[..., None]
AddRun = Callable[..., dg.DagsterRun]
Stock = Callable[..., MarketplaceControl]


@dataclass(frozen=True)
class TickOutcome:
    """What a sensor asked for, or why it did not."""

    run_requests: list[dg.RunRequest]
    skip_message: str


@dataclass(frozen=True)
class Bucket:
    """A bucket of a simulated S3, seen by another client than ours."""

    endpoint: str
    client: Any
    let_in: Callable[[str], None]

    def names(self) -> list[str]:
        return [one["Key"] for one in self.client.list_objects_v2(Bucket="bucket").get("Contents", [])]

    def read(self, name: str) -> list[dict[str, Any]]:
        body = self.client.get_object(Bucket="bucket", Key=name)["Body"].read()
        return parquet.read_table(BytesIO(body)).to_pylist()


Tick = Callable[[dg.SensorDefinition], TickOutcome]


@pytest.fixture
def instance() -> Generator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


@pytest.fixture
def bucket(aws: SimulatedAws) -> Bucket:
    """An S3 on a free port, with a bucket in it."""
    client = aws.client("s3")
    client.create_bucket(Bucket="bucket", CreateBucketConfiguration={"LocationConstraint": REGION})
    return Bucket(aws.endpoint, client, aws.let_in)


@pytest.fixture
def set_environment(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SetEnvironment:
    """The settings of this process, read anew after each change."""

    def change(**values: object) -> None:
        for name, value in values.items():
            monkeypatch.setenv(f"MUSTIT_{name.upper()}", str(value))
        load_settings.cache_clear()

    change(
        home=tmp_path / "home",
        database_url=database_url,
        dagster_database_url=dagster_beside(database_url),
        redis_url="off",
        token_key=TOKEN_KEY,
        jwt_secret=JWT_SECRET,
        requests_per_hour=100_000,
        min_request_gap_seconds=0,
        recrawl="everything",
        retry_base_seconds=0.02,
        outbox_retry_base_seconds=0.02,
    )
    return change


@pytest.fixture
def stock(
    database: Database,
    instance: dg.DagsterInstance,
    set_environment: SetEnvironment,
    marketplace: RunningSimulator,
    market: MarketplaceControl,
) -> Stock:
    """Register a seller with products in the marketplace and a partition of its own."""

    def add(seller_id: str, products: int, **settings: object) -> MarketplaceControl:
        set_environment(base_url=marketplace.url, **settings)
        market.add_seller(seller_id, products)
        register(database, seller_id)
        instance.add_dynamic_partitions("sellers", [seller_id])
        return market

    return add


@pytest.fixture
def tick(instance: dg.DagsterInstance, set_environment: SetEnvironment) -> Tick:
    """Evaluate a sensor once, as the daemon does."""

    def evaluate(sensor: dg.SensorDefinition) -> TickOutcome:
        with dg.build_sensor_context(instance=instance, resources=RESOURCES) as context:
            answer = sensor(context)
        if isinstance(answer, dg.SkipReason):
            return TickOutcome([], answer.skip_message or "")
        requests = answer.run_requests if isinstance(answer, dg.SensorResult) else [answer]
        return TickOutcome([request for request in requests or [] if isinstance(request, dg.RunRequest)], "")

    return evaluate


@pytest.fixture
def add_run(instance: dg.DagsterInstance) -> AddRun:
    """A run of the crawl job, or of another, in some state."""

    def add(
        seller_id: str | None,
        status: dg.DagsterRunStatus,
        job: str = "crawl_seller",
        started_at: float | None = None,
    ) -> dg.DagsterRun:
        tags = {} if seller_id is None else {"dagster/partition": seller_id}
        initial = status if started_at is None else dg.DagsterRunStatus.STARTING
        run = instance.add_run(dg.DagsterRun(job_name=job, status=initial, tags=tags))
        if started_at is not None:
            begun = dg.DagsterEvent(event_type_value="PIPELINE_START", job_name=job)
            instance.report_dagster_event(begun, run_id=run.run_id, timestamp=started_at)
        return run

    return add


def run_job(
    instance: dg.DagsterInstance, job: str, seller_id: str | None = None, **options: Any
) -> dg.ExecuteInProcessResult:
    """A job of ours in this process, of one seller where it has partitions; that it failed is something to look at."""
    return defs.resolve_job_def(job).execute_in_process(
        instance=instance, partition_key=seller_id, **{"raise_on_error": False, **options}
    )


def failure(result: dg.ExecuteInProcessResult) -> tuple[str, str]:
    """The one step that failed, and why in words for people."""
    [event] = [event for event in result.all_events if event.is_step_failure]
    told = event.step_failure_data.user_failure_data
    assert told is not None
    return str(event.step_key), str(told.description)


def latest(database: Database, seller_id: str) -> StoredExecution:
    """The newest execution of a seller."""
    with database.reading() as connection:
        found = executions.find_latest(connection, SellerId(seller_id))
    assert found is not None
    return found


def ended_slices(database: Database, seller_id: str) -> list[EndedSlice]:
    """What the slices of a seller's newest execution came to, newest first."""
    execution_id = latest(database, seller_id).execution.id.value
    with database.reading() as connection:
        return slices.newest(connection, [execution_id], 100)[execution_id]


def materialized(result: dg.ExecuteInProcessResult) -> dict[str, dg.AssetMaterialization]:
    """What a run wrote, by asset."""
    found = [event.materialization for event in result.get_asset_materialization_events()]
    return {one.asset_key.to_user_string(): one for one in found}


def keys(requests: Iterable[dg.RunRequest]) -> list[str | None]:
    """The partition keys of run requests."""
    return [request.partition_key for request in requests]
