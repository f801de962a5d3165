"""The policy that `mustit aws setup` prints is enough for what lies on S3, and none of its actions is too much."""

import copy
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from dagster_aws.s3 import S3ComputeLogManager
from pyarrow.fs import FileSelector

from mustit_pipeline.aws.clients import AwsRefused
from mustit_pipeline.aws.policy import work_policy
from mustit_pipeline.lake.place import lake_of
from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.integration.lake.conftest import Lake
from mustit_pipeline_tests.simulated_aws import SimulatedAws

FOLDER = "product_catalog/day=2026-11-14"
OLD, NEW, GONE = "seller=a/products.parquet", "seller=b/products.parquet", "seller=x/products.parquet"
# Dagster says of the output of a run that may not be read that there is none.
REFUSED = (AwsRefused, ClientError, OSError, AssertionError)

Policy = dict[str, Any]
Become = Callable[[Policy], None]


@pytest.fixture
def become(aws: SimulatedAws, monkeypatch: pytest.MonkeyPatch) -> Become:
    """From now on AWS lets this process do what a policy allows, and nothing else."""
    iam = aws.client("iam")
    iam.create_user(UserName="mustit")
    key = iam.create_access_key(UserName="mustit")["AccessKey"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])

    def change(policy: Policy) -> None:
        aws.let_in("inf")
        iam.put_user_policy(UserName="mustit", PolicyName="work", PolicyDocument=json.dumps(policy))
        aws.let_in("0")

    return change


def without_one(policy: Policy) -> dict[str, Policy]:
    """The policy without one of its actions, by statement and action."""
    found: dict[str, Policy] = {}
    for number, statement in enumerate(policy["Statement"]):
        for action in statement["Action"]:
            less = found[f"{statement['Sid']} {action}"] = copy.deepcopy(policy)
            less["Statement"][number]["Action"].remove(action)
    return found


def put(settings: Settings, *names: str) -> None:
    with lake_of(settings).replace(FOLDER) as fresh:
        for name in names:
            with fresh.file(name) as path:
                path.write_bytes(b"x")


def fail_in_the_middle(settings: Settings) -> None:
    with lake_of(settings).replace(FOLDER) as fresh:
        with fresh.file(NEW) as path:
            path.write_bytes(b"x")
        raise ZeroDivisionError


def work_on_s3(settings: Settings, folder: Path) -> None:
    """Days are written, written again, given up and read; the output of a run is stored, read and deleted."""
    place = lake_of(settings)
    put(settings, OLD, GONE)
    with pytest.raises(ZeroDivisionError):
        fail_in_the_middle(settings)
    # What was not given up then is given up now.
    put(settings, OLD, NEW)
    found = place.filesystem.get_file_info(FileSelector(f"{place.root}/{FOLDER}", recursive=True))
    for path in (one.path for one in found if one.is_file):
        with place.filesystem.open_input_file(path) as opened:
            assert opened.read() == b"x"

    bucket, _, prefix = str(settings.compute_logs_uri).removeprefix("s3://").partition("/")
    logs = S3ComputeLogManager(bucket, str(folder), prefix=prefix, endpoint_url=settings.aws_endpoint_url)
    key = ["a-run", "compute_logs", "a-step"]
    with logs.capture_logs(key):
        print("from a run", flush=True)
    assert (
        S3ComputeLogManager(bucket, str(folder / "other"), prefix=prefix, endpoint_url=settings.aws_endpoint_url)
        .get_log_data(key)
        .stdout
    )
    logs.delete_logs(prefix=["a-run"])


def test_the_policy_allows_what_is_done_on_s3_and_nothing_more(s3_lake: Lake, become: Become, tmp_path: Path) -> None:
    lake_uri = str(s3_lake.settings.lake_uri)
    settings = s3_lake.settings.model_copy(update={"compute_logs_uri": lake_uri.replace("some/prefix", "logs")})
    whole = work_policy(settings)
    become(whole)
    work_on_s3(settings, tmp_path / "whole")

    not_needed: list[str] = []
    for number, (missing, less) in enumerate(without_one(whole).items()):
        become(less)
        with suppress(*REFUSED):
            work_on_s3(settings, tmp_path / str(number))
            not_needed.append(missing)
    assert not_needed == []

    elsewhere = settings.model_copy(update={"lake_uri": lake_uri.replace("some/prefix", "another")})
    become(whole)
    with pytest.raises(REFUSED):
        work_on_s3(elsewhere, tmp_path / "elsewhere")


def test_a_lake_on_a_path_needs_nothing_of_s3(path_lake: Lake) -> None:
    assert work_policy(path_lake.settings)["Statement"] == []
