"""The lake on a path, and the same on S3."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from mustit_pipeline.foundation.database import Database
from mustit_pipeline.lake.place import Place, lake_of
from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.crawls import register
from mustit_pipeline_tests.simulated_aws import REGION, SimulatedAws

KOREAN = "한글 & a/b 50%"


@dataclass(frozen=True)
class Lake:
    """A lake, and what a reader finds in it."""

    place: Place
    settings: Settings
    names: Callable[[], list[str]]

    def rows(self, *names: str) -> list[dict[str, Any]]:
        """The rows of some files, or of all."""
        found: list[dict[str, Any]] = []
        for name in names or self.names():
            with self.place.filesystem.open_input_file(f"{self.place.root}/{name}") as opened:
                found += parquet.read_table(opened).to_pylist()
        return found


@pytest.fixture
def endpoint(aws: SimulatedAws) -> str:
    return aws.endpoint


@pytest.fixture
def path_lake(make_settings: MakeSettings, tmp_path: Path) -> Lake:
    root = tmp_path / "the lake"
    settings = make_settings(lake_uri=str(root))
    return Lake(
        lake_of(settings),
        settings,
        lambda: sorted(str(one.relative_to(root)) for one in root.glob("[!.]*/**/*.parquet")),
    )


@pytest.fixture
def s3_lake(make_settings: MakeSettings, endpoint: str) -> Lake:
    import boto3

    client: Any = boto3.client("s3", endpoint_url=endpoint)
    bucket = f"bucket-{time.monotonic_ns()}"
    client.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
    settings = make_settings(lake_uri=f"s3://{bucket}/some/prefix", aws_endpoint_url=endpoint)

    def names() -> list[str]:
        stored = client.list_objects_v2(Bucket=bucket).get("Contents", [])
        return sorted(one["Key"].removeprefix("some/prefix/") for one in stored)

    return Lake(lake_of(settings), settings, names)


@pytest.fixture(params=["path", "s3"])
def lake(request: pytest.FixtureRequest) -> Lake:
    return request.getfixturevalue(f"{request.param}_lake")


@pytest.fixture
def sellers(database: Database) -> Database:
    register(database, "a", "b", KOREAN)
    return database
