"""A folder of the lake is replaced as a whole or not at all, whatever ends the process that writes it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import boto3
import pytest

from mustit_pipeline.aws.clients import AwsRefused
from mustit_pipeline.lake import on_path
from mustit_pipeline.lake.failures import LakeRefused, LakeUnreachable, lake_failures
from mustit_pipeline.lake.on_s3 import PART_BYTES
from mustit_pipeline.lake.place import lake_of
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.lake.conftest import Lake

FOLDER = "product_catalog/day=2026-11-14"
OLD, NEW, GONE = "seller=a/products.parquet", "seller=b/products.parquet", "seller=x/products.parquet"
PATIENCE_SECONDS = 20.0


def put(lake: Lake, *names: str, content: bytes = b"old") -> None:
    with lake.place.replace(FOLDER) as fresh:
        for name in names:
            with fresh.file(name) as path:
                path.write_bytes(content)


def content(lake: Lake) -> dict[str, bytes]:
    """Every file of the folder, as readers see it."""
    found: dict[str, bytes] = {}
    for name in lake.names():
        with lake.place.filesystem.open_input_file(f"{lake.place.root}/{name}") as opened:
            found[name.removeprefix(f"{FOLDER}/")] = opened.read()
    return found


def being_made(lake: Lake) -> int:
    """How many files are there that readers do not see."""
    if lake.settings.aws_endpoint_url is None:
        return len(list((Path(lake.place.root) / ".making").rglob("*.parquet")))
    client: Any = boto3.client("s3", endpoint_url=lake.settings.aws_endpoint_url)
    bucket = lake.place.root.partition("/")[0]
    return len(client.list_multipart_uploads(Bucket=bucket).get("Uploads", []))


def write_and_kill(lake: Lake) -> None:
    """A process that has written two sellers and half of a third, and then is no more."""
    arguments = [str(lake.settings.lake_uri), FOLDER, *filter(None, [lake.settings.aws_endpoint_url])]
    command = [sys.executable, "-m", "mustit_pipeline_tests.integration.lake.child", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "in the middle\n"
        # It sends both whole sellers to S3 in the background.
        deadline = time.monotonic() + PATIENCE_SECONDS
        while being_made(lake) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)


def test_a_kill_in_the_middle_leaves_the_last_whole_day_and_the_next_write_clears_up(lake: Lake) -> None:
    put(lake, OLD, GONE)

    write_and_kill(lake)

    assert content(lake) == {OLD: b"old", GONE: b"old"}
    put(lake, OLD, NEW, content=b"new")
    assert content(lake) == {OLD: b"new", NEW: b"new"}
    assert being_made(lake) == 0


def test_a_kill_in_the_middle_of_a_first_day_leaves_none(lake: Lake) -> None:
    write_and_kill(lake)

    assert content(lake) == {}


def test_an_error_in_the_middle_leaves_the_last_whole_day_and_nothing_beside_it(lake: Lake) -> None:
    put(lake, OLD, GONE)

    def fail_in_the_middle() -> None:
        with lake.place.replace(FOLDER) as fresh:
            with fresh.file(NEW) as path:
                path.write_bytes(b"new")
            raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        fail_in_the_middle()

    assert content(lake) == {OLD: b"old", GONE: b"old"}
    assert being_made(lake) == 0


def test_a_folder_changes_places_with_its_successor_in_one_step(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
        (folder / "name").write_text(folder.name)

    assert on_path.swap(one, other)

    assert ((one / "name").read_text(), (other / "name").read_text()) == ("other", "one")
    assert not on_path.swap(one, tmp_path / "nothing")


def test_where_folders_cannot_change_places_the_old_one_moves_aside_and_a_kill_then_costs_nothing(
    path_lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_path, "swap", lambda one, other: False)
    put(path_lake, OLD)
    put(path_lake, NEW, content=b"new")
    assert content(path_lake) == {NEW: b"new"}
    assert being_made(path_lake) == 0

    root = Path(path_lake.place.root)
    aside = root / ".making" / FOLDER.replace("/", ".") / "aside"
    aside.parent.mkdir()
    (root / FOLDER).rename(aside)
    with pytest.raises(KeyboardInterrupt), path_lake.place.replace(FOLDER):
        raise KeyboardInterrupt

    assert content(path_lake) == {NEW: b"new"}


def test_a_file_of_several_parts_arrives_whole(s3_lake: Lake) -> None:
    large = os.urandom(PART_BYTES + 1)

    put(s3_lake, OLD, content=large)

    assert content(s3_lake) == {OLD: large}


def test_more_files_than_are_sent_at_once_all_arrive_and_all_go_again(s3_lake: Lake) -> None:
    names = [f"seller={number}/products.parquet" for number in range(40)]

    put(s3_lake, *names)
    assert sorted(content(s3_lake)) == sorted(names)
    put(s3_lake, names[0])

    assert list(content(s3_lake)) == [names[0]]


def test_a_bucket_that_is_not_there_is_named(make_settings: MakeSettings, endpoint: str) -> None:
    place = lake_of(make_settings(lake_uri="s3://no-such-bucket/x", aws_endpoint_url=endpoint))

    with pytest.raises(AwsRefused, match=f"s3://no-such-bucket/x/{FOLDER}/"), place.replace(FOLDER):
        pass


def test_a_path_that_is_not_ours_is_named(path_lake: Lake) -> None:
    Path(path_lake.place.root).write_text("a file")

    with pytest.raises(LakeRefused, match="the lake"), path_lake.place.replace(FOLDER):
        pass


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (FileNotFoundError(2, "no such file"), LakeRefused),
        (PermissionError(13, "not yours"), LakeRefused),
        (OSError("When reading: AWS Error ACCESS_DENIED during HeadObject"), LakeRefused),
        (OSError("When reading: AWS Error NETWORK_CONNECTION during HeadObject"), LakeUnreachable),
        (OSError(28, "no space left"), LakeUnreachable),
    ],
)
def test_what_a_file_system_says_tells_whether_a_retry_may_help(error: OSError, failure: type[Exception]) -> None:
    with pytest.raises(failure, match="s3://bucket/x"), lake_failures("s3://bucket/x"):
        raise error
