"""`mustit up`: everything on one machine, until Ctrl-C."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType

import httpx

from mustit_pipeline import embedded
from mustit_pipeline.access.login_links import make_first_admin_link
from mustit_pipeline.cli.dagster_home import WORKSPACE
from mustit_pipeline.cli.demo import SELLERS
from mustit_pipeline.cli.lively_world import lively_world
from mustit_pipeline.cli.output import Json, err, out, print_json
from mustit_pipeline.cli.runtime import (
    Runtime,
    dagster_environment,
    dagster_instance,
    ensure_partition,
    runtime,
)
from mustit_pipeline.cli.serve import free_port, refuse_taken_port
from mustit_pipeline.cli.supervisor import Child, Supervisor
from mustit_pipeline.cli.world import World, only_one, simulated_world
from mustit_pipeline.crawling.steering import open_or_join
from mustit_pipeline.domain.errors import Conflict
from mustit_pipeline.domain.values import CrawlingInterval, SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.sellers import registry
from mustit_pipeline.settings import Settings, load_settings

HOST = "127.0.0.1"
VIEWER_PORT = "MUSTIT_DAGSTER_VIEWER_PORT"
CHECK_SECONDS = 0.5
START_SECONDS = 120.0
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(Exception):
    """A signal asked `mustit up` to stop."""


def up(as_json: Json = False) -> None:
    """Run everything until Ctrl-C: servers, console and API, Dagster, and a simulated world if none is configured.

    With --json the document comes once all of them answer, or after two minutes without one.

    Example: `MUSTIT_DAGSTER_PORT=3001 mustit up`
    """
    settings = load_settings()
    refuse_taken_port("MUSTIT_DAGSTER_PORT", HOST, settings.dagster_port)
    refuse_taken_port("MUSTIT_API_PORT", settings.api_host, settings.api_port)
    if settings.dagster_viewer_port is not None:
        refuse_taken_port(VIEWER_PORT, HOST, settings.dagster_viewer_port)
    for number in SIGNALS:
        signal.signal(number, _stop)
    try:
        with only_one(settings.home):
            try:
                with simulated_world(SELLERS, announce=True) as world, runtime() as ground:
                    _serve(world, ground, as_json=as_json)
            finally:
                _ignore_signals()
                if settings.embedded:
                    embedded.stop(settings.home)
    except Stopped:
        pass
    err.print("Everything is stopped; the data stays in", settings.home, highlight=False)


def _serve(world: World, ground: Runtime, *, as_json: bool) -> None:
    supervisor = Supervisor(_say)
    try:
        _prepare(world, ground)
        for child in _children(ground.settings):
            supervisor.add(child)
        _wait_for_servers(ground.settings, supervisor)
        link = _first_login(ground)
        if as_json:
            print_json(_addresses(world, ground.settings) | {"loginLink": link})
        else:
            _welcome(world, ground.settings, link)
        with lively_world(world, ground.database, SELLERS, _say) as life:
            started = time.monotonic()
            while True:
                supervisor.check()
                _check_world(world)
                if life is not None:
                    life.go_on(time.monotonic() - started)
                time.sleep(CHECK_SECONDS)
    finally:
        _ignore_signals()
        err.print("stopping …")
        supervisor.stop()


def _say(text: str) -> None:
    err.print(text, markup=False, highlight=False)


def _children(settings: Settings) -> Iterator[Child]:
    """The web server, and the Dagster processes, each with its own code server."""
    environment = {**os.environ, **dagster_environment(settings)}
    # Viewers reach it through the console, wherever it listens.
    environment.setdefault(VIEWER_PORT, str(free_port()))
    folder = Path(sys.executable).parent

    def child(name: str, command: str, *words: str, log: str = "") -> Child:
        said = settings.home / "logs" / f"{log or command}.log"
        return Child(name, [str(folder / command), *words, "-w", str(WORKSPACE)], environment, said)

    log = settings.home / "logs" / "serve.log"
    yield Child("Web server", [str(folder / "mustit"), "serve"], environment, log)
    yield child("Dagster UI", "dagster-webserver", "-h", HOST, "-p", str(settings.dagster_port))
    yield child("Dagster daemon", "dagster-daemon", "run")
    words = ("--read-only", "-h", HOST, "-p", environment[VIEWER_PORT])
    yield child("Dagster viewer", "dagster-webserver", *words, log="dagster-viewer")


def _prepare(world: World, ground: Runtime) -> None:
    """Create Dagster's tables before several processes would, and the demo sellers of a simulated marketplace."""
    with dagster_instance(ground.settings) as instance:
        if world.marketplace is None:
            return
        for seller_id in SELLERS:
            try:
                registry.register(ground.database, SellerId(seller_id), seller_id, CrawlingInterval.hours(1), utc_now())
            except Conflict:
                continue
        for seller_id in SELLERS:
            ensure_partition(instance, seller_id)
            # A new user wants to see a crawl, however recent the last one was; an INACTIVE seller stays so.
            with suppress(Conflict):
                open_or_join(ground.database, SellerId(seller_id), triggered_by="up", now=utc_now())


def _wait_for_servers(settings: Settings, supervisor: Supervisor) -> None:
    err.print("starting the console, the Dagster UI and the daemon …")
    deadline = time.monotonic() + START_SECONDS
    waiting = {
        "web server": f"{_web(settings)}/health/live",
        "Dagster UI": f"http://{HOST}:{settings.dagster_port}/server_info",
    }
    while waiting and time.monotonic() < deadline:
        supervisor.check()
        waiting = {name: url for name, url in waiting.items() if not _answers(url)}
        if waiting:
            time.sleep(CHECK_SECONDS)
    for name, url in waiting.items():
        err.print(f"the {name} does not answer at {url} yet; going on", highlight=False)


def _answers(url: str) -> bool:
    """Whether a server of ours is there; its certificate may be for another name than this host's."""
    try:
        return httpx.get(url, timeout=2.0, trust_env=False, verify=False).is_success
    except httpx.HTTPError:
        return False


def _web(settings: Settings) -> str:
    """The web server as a browser on this host reaches it."""
    scheme = "https" if settings.api_tls_cert is not None else "http"
    host = {"0.0.0.0": HOST, "::": "[::1]", "::1": "[::1]"}.get(settings.api_host, settings.api_host)
    return f"{scheme}://{host}:{settings.api_port}"


def _first_login(ground: Runtime) -> str | None:
    """A link for the first admin, until there is a user with a password; elsewhere `mustit user add` adds one."""
    if not ground.settings.embedded:
        return None
    link = make_first_admin_link(ground.database)
    return None if link is None else f"{_web(ground.settings)}{link.path}"


def _addresses(world: World, settings: Settings) -> dict[str, object]:
    """The addresses of all servers, for JSON."""
    return {
        "consoleUrl": _web(settings),
        "apiUrl": f"{_web(settings)}/api/v1",
        "dagsterUrl": f"http://{HOST}:{settings.dagster_port}",
        "dagsterViewerUrl": _viewer(settings),
        "marketplaceUrl": settings.base_url,
        "marketplaceSimulated": world.marketplace is not None,
        "productServerUrl": settings.product_server_url,
        "productServerSimulated": world.product_server is not None,
        "home": str(settings.home),
    }


def _viewer(settings: Settings) -> str | None:
    return None if settings.dagster_viewer_port is None else f"http://{HOST}:{settings.dagster_viewer_port}"


def _welcome(world: World, settings: Settings, link: str | None) -> None:
    out.print()
    out.print(f"  Console          {_web(settings)}", highlight=False)
    if link is not None:
        out.print(f"  First login      {link} (once, for 10 minutes)", highlight=False, soft_wrap=True)
    out.print(f"  REST API         {_web(settings)}/docs", highlight=False)
    out.print(f"  Dagster UI       http://{HOST}:{settings.dagster_port}", highlight=False)
    if (viewer := _viewer(settings)) is not None:
        out.print(f"  For looking only {viewer}", highlight=False)
    simulated = " (simulated)" if world.marketplace is not None else ""
    out.print(f"  Marketplace      {settings.base_url}{simulated}", highlight=False)
    simulated = " (simulated)" if world.product_server is not None else ""
    out.print(f"  Product server   {settings.product_server_url}{simulated}", highlight=False)
    out.print(f"  Data and logs    {settings.home}", highlight=False, soft_wrap=True)
    out.print()
    if settings.embedded_redis and not embedded.has_redis():
        out.print("No redis-server was found: PostgreSQL counts the limits alone.", highlight=False)
    if settings.run_launcher == "celery":
        out.print("Runs wait for a `mustit run-worker`, here or on another host.", highlight=False)
    out.print("Crawls start by themselves within half a minute. Ctrl-C stops everything.")


def _check_world(world: World) -> None:
    for name, server in (("simulated marketplace", world.marketplace), ("product server", world.product_server)):
        if server is not None and not server.running:
            err.print(f"The {name} has ended; restarting it.", highlight=False)
            server.restart()


def _ignore_signals() -> None:
    """A second Ctrl-C must not interrupt the cleanup after the first."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _stop(number: int, frame: FrameType | None) -> None:
    raise Stopped
