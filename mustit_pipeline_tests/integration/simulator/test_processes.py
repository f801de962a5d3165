"""The servers as processes: how they say where they are, and how they end."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil
import pytest

from mustit_pipeline.simulator.process import start_marketplace


@pytest.mark.parametrize("kind", ["marketplace", "product-server"])
def test_a_server_says_in_one_line_where_it_listens_and_ends_on_a_signal(tmp_path: Path, kind: str) -> None:
    environment = {**os.environ, "MUSTIT_HOME": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-m", "mustit_pipeline.simulator", kind], stdout=subprocess.PIPE, env=environment
    )
    assert process.stdout is not None
    try:
        url = json.loads(process.stdout.readline())["url"]
        assert url.startswith("http://127.0.0.1:")
        assert httpx.get(f"{url}/_control/audit", trust_env=False, verify=False).status_code == 200
        assert (tmp_path / "simulator" / f"{kind}.jsonl").exists()
        process.send_signal(signal.SIGTERM if kind == "marketplace" else signal.SIGINT)
        assert process.wait(10) == 0
        assert process.stdout.read() == b""
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_server_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path\n"
        "from mustit_pipeline.simulator.process import start_marketplace\n"
        "running = start_marketplace(state=Path(sys.argv[1])); print(running.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    server = psutil.Process(int(parent.stdout.readline()))
    assert server.is_running()
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while server.is_running() and server.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the server outlived its parent"
        time.sleep(0.02)


def test_a_stopped_server_can_be_started_again_at_the_same_address(tmp_path: Path) -> None:
    with start_marketplace(state=tmp_path) as running:
        url = running.url
        running.stop()
        assert not running.running
        with pytest.raises(httpx.ConnectError):
            httpx.get(url, trust_env=False, verify=False)
        running.restart()
        assert running.url == url
        assert httpx.get(url, trust_env=False, verify=False).status_code == 200


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--requests-per-window", "0"], "requestsPerWindow must be a whole number from 1"),
        (["--sellers", "a"], "'a' is not id:count"),
        (["--port", "99999"], "is not a port: 0 to 65535"),
    ],
)
def test_wrong_arguments_end_with_a_sentence_and_not_with_a_trace(
    tmp_path: Path, arguments: list[str], reason: str
) -> None:
    command = [sys.executable, "-m", "mustit_pipeline.simulator", "marketplace", "--state", str(tmp_path), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert ended.returncode in (1, 2)
    assert reason in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""
