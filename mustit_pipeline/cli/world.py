"""The simulated world that `up` and `demo` use where no real servers are configured."""

import fcntl
import json
import os
import socket
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from mustit_pipeline.settings import Settings, SettingsError, load_settings, simulated_world_file
from mustit_pipeline.simulator.process import RunningSimulator, start_marketplace, start_product_server

MARKETPLACE_PORT, PRODUCT_SERVER_PORT = "marketplace.port", "product-server.port"


@dataclass(frozen=True, slots=True)
class World:
    """The simulated servers; None where a real one is configured."""

    settings: Settings
    marketplace: RunningSimulator | None
    product_server: RunningSimulator | None


@contextmanager
def simulated_world(sellers: dict[str, int], *, announce: bool) -> Generator[World]:
    """Start simulators for servers that are not configured, with the crawler's limits, and set their addresses."""
    settings = load_settings()
    state = settings.home / "simulator"
    with ExitStack() as stack:
        marketplace = product_server = None
        urls: dict[str, str] = {}
        if not os.environ.get("MUSTIT_BASE_URL"):
            marketplace = stack.enter_context(
                start_marketplace(
                    state=state,
                    sellers=sellers,
                    requests_per_window=settings.requests_per_hour,
                    window_seconds=settings.window_seconds,
                    min_gap_seconds=settings.min_request_gap_seconds,
                    first_page_no=settings.first_page_no,
                    listing_path=settings.listing_path,
                    port=_usual_port(state / MARKETPLACE_PORT),
                )
            )
            urls["base_url"] = marketplace.url
        if not os.environ.get("MUSTIT_PRODUCT_SERVER_URL"):
            port = _usual_port(state / PRODUCT_SERVER_PORT)
            product_server = stack.enter_context(start_product_server(state=state, port=port))
            urls["product_server_url"] = product_server.url
        for file, server in ((MARKETPLACE_PORT, marketplace), (PRODUCT_SERVER_PORT, product_server)):
            if server is not None:
                (state / file).write_text(server.url.rpartition(":")[2])
        if announce and urls:
            stack.enter_context(_announced(settings.home, urls))
        for name, url in urls.items():
            os.environ[f"MUSTIT_{name.upper()}"] = url
        load_settings.cache_clear()
        yield World(load_settings(), marketplace, product_server)


@contextmanager
def only_one(home: Path) -> Generator[None]:
    """Refuse a second world in the same home."""
    path = home / "run" / "up.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SettingsError(
                f"`mustit up` or `mustit demo` is running in {home} already: "
                "stop it first, or set MUSTIT_HOME to another folder",
                korean=f"{home}에서 `mustit up` 또는 `mustit demo`가 이미 실행 중입니다. "
                "먼저 종료하거나 MUSTIT_HOME을 다른 폴더로 설정하세요",
            ) from None
        yield


def _usual_port(file: Path) -> int:
    """The port of the last start, which people may have noted; 0 (any) if it is unknown or taken."""
    try:
        port = int(file.read_text())
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
    except (OSError, ValueError, OverflowError):
        return 0
    return port


@contextmanager
def _announced(home: Path, urls: dict[str, str]) -> Generator[None]:
    """Let other commands of this home find the servers, as long as this process holds the file's lock."""
    path = simulated_world_file(home)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.seek(0)
        file.truncate()
        json.dump(urls, file)
        file.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
