"""Simulated servers in their own processes, which end with the process that started them."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import orjson

from mustit_pipeline.environment_failure import EnvironmentFailure

START_SECONDS = 30.0
_STOP_SECONDS = 10.0


class SimulatorStartError(EnvironmentFailure):
    """The server did not start; the message says why."""

    code = "EXTERNAL_SIMULATOR_START"
    topic = "시뮬레이션 서버를 시작할 수 없습니다"


class RunningSimulator:
    """One server process; as a context manager it is stopped at the end."""

    def __init__(self, arguments: list[str], environment: Mapping[str, str] | None = None) -> None:
        self._arguments = arguments
        self._environment = {**os.environ, **(environment or {})}
        self.url = ""
        self._process = self._started()

    @property
    def pid(self) -> int:
        """The pid, for signals."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End it with SIGTERM; harmless if it has ended."""
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._ended()

    def kill(self) -> None:
        """End it with SIGKILL: nothing is flushed."""
        self._process.kill()
        self._ended()

    def restart(self) -> None:
        """Start it again at the same address with the state it left behind."""
        if self.running:
            self.stop()
        self._process = self._started(self.url.rpartition(":")[2])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _started(self, port: str | None = None) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "mustit_pipeline.simulator", *self._arguments, "--watch-stdin"]
        if port is not None:
            command += ["--port", port]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self._environment, start_new_session=True
        )
        deadline = threading.Timer(START_SECONDS, process.kill)
        deadline.start()
        try:
            line = process.stdout.readline() if process.stdout else b""
        finally:
            deadline.cancel()
        if not line:
            process.kill()
            code = process.wait()
            raise SimulatorStartError(f"{' '.join(self._arguments)} ended with {code} before it listened; see stderr")
        self.url = orjson.loads(line)["url"]
        return process

    def _ended(self) -> None:
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def start_marketplace(
    *,
    state: Path,
    seed: int | None = None,
    sellers: Mapping[str, int] | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    requests_per_window: int = 80,
    window_seconds: float = 3600.0,
    min_gap_seconds: float = 1.0,
    gap_tolerance_seconds: float = 0.05,
    latency_ms: float = 0.0,
    first_page_no: int = 0,
    listing_path: str | None = None,
    token_seconds: float = 7200.0,
    noise: bool = True,
) -> RunningSimulator:
    """The marketplace, listening; sellers that its state does not know yet are made."""
    arguments = [
        *("marketplace", "--host", host, "--port", str(port), "--state", str(state)),
        *("--requests-per-window", str(requests_per_window), "--window-seconds", str(window_seconds)),
        *("--min-gap-seconds", str(min_gap_seconds), "--gap-tolerance-seconds", str(gap_tolerance_seconds)),
        *("--latency-ms", str(latency_ms), "--first-page-no", str(first_page_no)),
        *("--token-seconds", str(token_seconds)),
    ]
    if seed is not None:
        arguments += ["--seed", str(seed)]
    if listing_path is not None:
        arguments += ["--listing-path", listing_path]
    if not noise:
        arguments.append("--no-noise")
    if sellers:
        if odd := [seller_id for seller_id in sellers if "," in seller_id]:
            raise ValueError(f"sellers with a comma are made through the control API: {odd}")
        arguments += ["--sellers=" + ",".join(f"{seller_id}:{count}" for seller_id, count in sellers.items())]
    return RunningSimulator(arguments)


def start_product_server(
    *, state: Path, host: str = "127.0.0.1", port: int = 0, seed: int | None = None, token: str | None = None
) -> RunningSimulator:
    """The product server, listening; with a token it asks every caller for it."""
    arguments = ["product-server", "--host", host, "--port", str(port), "--state", str(state)]
    if seed is not None:
        arguments += ["--seed", str(seed)]
    # An empty value, not an inherited one: the token travels by environment so that no process list shows it.
    return RunningSimulator(arguments, {"MUSTIT_PRODUCT_SERVER_TOKEN": token or ""})
