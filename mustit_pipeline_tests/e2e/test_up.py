"""`mustit up`, seen from outside."""

import json
import os
import queue
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psutil
import pytest
from sqlalchemy import make_url
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from mustit_pipeline import embedded
from mustit_pipeline.access import users
from mustit_pipeline.access.console_sessions import open_session
from mustit_pipeline.domain.access import Role, UserName
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database, make_engine
from mustit_pipeline.settings import Settings, read_simulated_world
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline_tests import leaks
from mustit_pipeline_tests.conftest import NO_CHROMIUM, free_port
from mustit_pipeline_tests.e2e.asking import explained
from mustit_pipeline_tests.e2e.browser import find_chromium, open_lineage, opened_page
from mustit_pipeline_tests.e2e.conftest import WIDE_OPEN, Mustit

DEMO_SELLERS = {"dmont", "럭셔리하우스", "bag & shoes/50%"}
START_SECONDS = 180.0
SESSION = "mustit_session"
PRODUCT_SERVER_TOKEN = "the-product-servers-own-token"
OVERVIEW = """{
  assetNodes { assetKey { path } dependencyKeys { path } }
  assetNodeOrError(assetKey: {path: ["minishop_listings"]}) { ... on AssetNode { partitionKeys } }
  repositoryOrError(repositorySelector: {
    repositoryLocationName: "mustit_pipeline", repositoryName: "__repository__"
  }) { ... on Repository {
    sensors { name sensorState { status } }
    schedules { name scheduleState { status } }
  } }
}"""
START_SENSOR = """mutation { startSensor(sensorSelector: {
  repositoryLocationName: "mustit_pipeline", repositoryName: "__repository__", sensorName: "due_crawls"
}) { __typename } }"""
CRAWLS = """{ runsOrError(filter: {pipelineName: "crawl_seller", statuses: [SUCCESS]}) {
  ... on Runs { results { tags { key value } } }
} }"""
BACKFILL = """{ partitionBackfillOrError(backfillId: "%s") {
  ... on PartitionBackfill { status runs(limit: 10) { status stepStats { stepKey } } }
} }"""


@dataclass(frozen=True)
class Up:
    """A running `mustit up`."""

    mustit: Mustit
    url: str
    viewer: str
    web: str
    process: psutil.Process
    said: "_Lines"


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Generator[Up]:
    """One for all tests, because starting it takes long; in the end it is stopped and must leave nothing behind."""
    port, viewer_port, api_port = free_port(), free_port(), free_port()
    web = f"http://127.0.0.1:{api_port}"
    url, viewer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{viewer_port}"
    ports = {
        "MUSTIT_DAGSTER_PORT": str(port),
        "MUSTIT_DAGSTER_VIEWER_PORT": str(viewer_port),
        "MUSTIT_API_PORT": str(api_port),
        # The tests alone change the marketplace.
        "MUSTIT_DEMO": "calm",
        "MUSTIT_PRODUCT_SERVER_TOKEN": PRODUCT_SERVER_TOKEN,
    }
    # At 25 past the hour the checks would ask the marketplace for a few products, in the middle of a test.
    mustit = Mustit(tmp_path_factory.mktemp("up") / "home", {**WIDE_OPEN, **ports, "MUSTIT_TRUTH_SAMPLE": "0"})
    with mustit.start("up") as process:
        said = _Lines(process.stdout, process.stderr)
        try:
            said.wait_for(f"Console          {web}")
            said.wait_for(f"First login      {web}/login/link?key=ml_")
            said.wait_for(f"Dagster UI       {url}")
            said.wait_for(f"For looking only {viewer}")
            yield Up(mustit, url, viewer, web, psutil.Process(process.pid), said)
            assert len(_processes_of(mustit.home)) > 5
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()
            embedded.stop(mustit.home)
    said.wait_for("Everything is stopped")
    assert _processes_of(mustit.home) == []
    status = embedded.status(mustit.home)
    assert (status.keeper_pid, status.postgres_pid, status.redis_pid) == (None, None, None)


def test_the_ui_has_the_lineage_the_sellers_and_everything_switched_on(up: Up) -> None:
    _check_overview(up.url)


def test_the_second_ui_shows_everything_and_changes_nothing(up: Up) -> None:
    _until(lambda: httpx.get(f"{up.viewer}/server_info", trust_env=False).is_success)
    _check_overview(up.viewer)

    refused = _ask(up.viewer, START_SENSOR)["startSensor"]

    assert refused["__typename"] == "UnauthorizedError"
    _check_overview(up.url)


def test_dagster_is_behind_the_consoles_login_with_the_role_of_each_person(up: Up) -> None:
    _until(lambda: httpx.get(f"{up.viewer}/server_info", trust_env=False).is_success)
    ours = {"Origin": up.web}
    with _browser(up, None) as stranger:
        assert stranger.get("/dagster/").headers["location"].startswith("/login")
        assert stranger.post("/dagster/graphql", json={"query": CRAWLS}, headers=ours).status_code == 303
    with _browser(up, Role.ADMIN) as admin:
        page = admin.get("/dagster/overview").text
        script = re.search(r'src="(/dagster/_next/static/[^"]+)"', page)
        assert script is not None
        assert '"pathPrefix": "/dagster"' in page
        assert admin.get(script[1]).headers["content-type"].startswith("application/javascript")
        elsewhere = admin.post("/dagster/graphql", json={"query": CRAWLS}, headers={"Origin": "https://evil.example"})
        assert elsewhere.json()["errorCode"] == "FORBIDDEN_ORIGIN"
        # What an image of another site asks for: Dagster executes a mutation in an address too.
        by_address = admin.get("/dagster/graphql", params={"query": START_SENSOR}, headers={"Accept": "image/*"})
        assert by_address.json()["errorCode"] == "FORBIDDEN_ORIGIN"
        assert "data" in admin.post("/dagster/graphql", json={"query": CRAWLS}, headers=ours).json()
    with _browser(up, Role.VIEWER) as viewer:
        refused = viewer.post("/dagster/graphql", json={"query": START_SENSOR}, headers=ours).json()
        assert refused["data"]["startSensor"]["__typename"] == "UnauthorizedError"
        report = viewer.post("/dagster/report_asset_materialization/minishop_listings", headers=ours)
        assert report.status_code == 403


def test_dagsters_live_updates_reach_only_a_page_of_ours_with_a_session(up: Up) -> None:
    url = up.web.replace("http", "ws") + "/dagster/graphql"
    cookie = f"{SESSION}={_session(up, Role.ADMIN)}"
    for headers, origin in (({}, up.web), ({"Cookie": cookie}, "https://evil.example")):
        with pytest.raises(InvalidStatus):
            connect(url, origin=Origin(origin), additional_headers=headers)
    with connect(
        url, origin=Origin(up.web), additional_headers={"Cookie": cookie}, subprotocols=[Subprotocol("graphql-ws")]
    ) as socket_of_dagster:
        socket_of_dagster.send('{"type": "connection_init", "payload": {}}')
        assert json.loads(socket_of_dagster.recv(30))["type"] == "connection_ack"


def _session(up: Up, role: Role) -> str:
    """The cookie of a person who is logged in."""
    settings = Settings(home=up.mustit.home)  # pyright: ignore[reportCallIssue]
    database = Database(make_engine(make_url(embedded.attach(up.mustit.home).database_url)))
    try:
        user = users.add(database, UserName(f"{role}{uuid4().hex[:8]}"), role, None)
    finally:
        database.close()
    return open_session(settings.signing_keys(), user, utc_now()).text


def _browser(up: Up, role: Role | None) -> httpx.Client:
    cookies = {} if role is None else {SESSION: _session(up, role)}
    return httpx.Client(base_url=up.web, cookies=cookies, trust_env=False, timeout=60)


def test_a_demo_in_the_same_home_is_refused_meanwhile(up: Up) -> None:
    demo = explained(up, "demo", "--json")

    assert demo.code == 1
    assert "is running in" in demo.document["message"]


def test_a_ui_that_dies_is_restarted(up: Up) -> None:
    lines = {child.pid: " ".join(child.cmdline()) for child in up.process.children()}
    [webserver] = [pid for pid, line in lines.items() if "dagster-webserver" in line and "--read-only" not in line]
    os.kill(webserver, signal.SIGKILL)

    up.said.wait_for("Dagster UI is restarted")
    _until(lambda: httpx.get(f"{up.url}/server_info", trust_env=False).is_success)


def test_the_daemon_crawls_every_seller_and_a_backfill_replays_them_without_a_request(up: Up) -> None:
    _until(lambda: _crawled(up.url) == DEMO_SELLERS)
    with MarketplaceControl(read_simulated_world(up.mustit.home)["base_url"]) as market:
        market.reset_audit()

        replayed = explained(up, "backfill", "--all", "--mode", "replay", "--watch", "--json")

        assert replayed.code == 0, replayed.err
        done = replayed.document
        assert (done["status"], done["succeeded"], done["failed"]) == ("COMPLETED_SUCCESS", len(DEMO_SELLERS), [])
        assert market.requested_urls() == {}
        shown = _ask(up.url, BACKFILL % done["backfillId"])["partitionBackfillOrError"]
        assert [run["status"] for run in shown["runs"]] == ["SUCCESS"] * len(DEMO_SELLERS)
        steps = {step["stepKey"] for run in shown["runs"] for step in run["stepStats"]}
        assert steps == {"product_change_sets"}, "what is judged over all sellers is no part of a seller's run"


def test_doctor_finds_everything_well(up: Up) -> None:
    said = up.mustit("doctor")

    assert (said.out.splitlines()[-1], said.code) == ("Everything is well.", 0), said.out


def test_dagsters_pages_work_below_the_consoles_address_and_ask_for_nothing_elsewhere(up: Up) -> None:
    chromium = find_chromium()
    if chromium is None:
        pytest.skip(f"{NO_CHROMIUM}: the UI was not looked at")
    wrong: list[str] = []
    with opened_page(chromium) as page:
        cookie = {"name": SESSION, "value": _session(up, Role.ADMIN), "url": up.web}
        page.context.add_cookies([cookie])  # pyright: ignore[reportArgumentType]
        page.on("request", lambda one: None if _is_below_dagster(up, one.url) else wrong.append(one.url))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("response", lambda one: wrong.append(f"{one.status} {one.url}") if one.status >= 400 else None)
        page.goto(f"{up.web}/dagster/assets/minishop_listings")
        page.get_by_text("Every product that a seller's minishop listing shows").first.wait_for()
        page.reload()
        page.get_by_text("Every product that a seller's minishop listing shows").first.wait_for()
        # Workers of the browser lay the graph out.
        open_lineage(page, f"{up.web}/dagster")
        for asset in ("mustit_marketplace", "minishop_listings", "product_details", "product_options"):
            page.get_by_text(asset, exact=True).first.wait_for()
        page.goto(f"{up.web}/dagster/locations/mustit_pipeline/jobs/check_criteria/playground")
        page.get_by_text("Launch Run").wait_for()
        page.goto(f"{up.web}/dagster/runs")
        # A backfill's row leads to the backfill.
        page.locator("a[href*='/dagster/runs/']:not([href*='/runs/b/'])").first.click()
        page.get_by_text("View tags and config").first.wait_for()
        # Its log comes over a WebSocket; that of a run under way is shown from its end.
        page.get_by_text(re.compile("^(RUN|STEP|ENGINE)_[A-Z_]+$")).first.wait_for()
        page.reload()
        page.get_by_text(re.compile("^(RUN|STEP|ENGINE)_[A-Z_]+$")).first.wait_for()
    assert wrong == []


def _is_below_dagster(up: Up, url: str) -> bool:
    return url.startswith((f"{up.web}/dagster/", f"{up.web}/favicon", "data:", "blob:"))


def test_a_seller_lives_its_whole_life_over_http_alone(up: Up) -> None:
    token = explained(up, "token", "issue", "--role", "admin", "--json").document["accessToken"]
    seller = "/sellers/over%20http"
    with (
        MarketplaceControl(read_simulated_world(up.mustit.home)["base_url"]) as market,
        httpx.Client(
            base_url=f"{up.web}/api/v1", headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=60
        ) as api,
    ):
        market.add_seller("over http", 3)
        key = api.post("/api-keys", json={"name": "e2e", "scope": "trigger"}).json()["key"]
        made = api.post("/sellers", json={"sellerId": "over http", "name": "HTTP", "crawlingIntervalHours": 6})
        assert made.status_code == 201, made.text
        asked = httpx.post(
            f"{up.web}/api/internal/crawling/trigger",
            json={"sellerId": "over http"},
            headers={"X-API-Key": key},
            trust_env=False,
        )
        assert asked.status_code == 200, asked.text
        execution = asked.json()["executionId"]
        with api.stream("GET", f"/executions/{execution}/events") as events:
            assert "FINISHED" in "".join(events.iter_text())
        assert api.get(f"/executions/{execution}").json()["status"] == "COMPLETED"

        products = api.get("/products", params={"sellerId": "over http"}).json()["content"]
        changes = api.get("/changes", params={"sellerId": "over http"}).json()["content"]
        numbers = api.get("/metrics/crawling", params={"sellerId": "over http"}).json()
        assert (len(products), [one["lifeCycle"] for one in changes]) == (3, ["CREATED"] * 3)
        assert (numbers["successRate"], numbers["taskStats"]["failed"]) == (100.0, 0)

        market.fault("slow", "detail", seconds=2)
        again = api.post(f"{seller}/crawl", json={"full": True})
        assert again.status_code == 202, again.text
        execution = again.json()["executionId"]
        _until(lambda: api.get(f"/executions/{execution}").json()["status"] == "RUNNING")
        assert api.post(f"/executions/{execution}/pause").json()["status"] == "PAUSED"
        assert api.post(f"{seller}/crawl").json()["errorCode"] == "CONFLICT_EXECUTION_PAUSED"
        assert api.post(f"/executions/{execution}/resume").json()["status"] == "RUNNING"
        assert api.post(f"/executions/{execution}/cancel").json()["status"] == "CANCELLED"
        market.clear_faults()
        assert api.post(f"{seller}/deactivate").json()["status"] == "INACTIVE"
        assert api.post(f"{seller}/crawl").json()["errorCode"] == "CONFLICT_SELLER_INACTIVE"


def test_no_secret_of_all_this_is_in_any_log_event_row_file_answer_or_metric(up: Up) -> None:
    """Searched for by value, after crawls, deliveries, logins, and requests that are refused."""
    _until(lambda: bool(_crawled(up.url)))
    secrets: dict[str, str] = {"token of the product server": PRODUCT_SERVER_TOKEN}
    answers: dict[str, str] = {}

    def remember(name: str, value: str) -> str:
        assert len(value) >= 12, "too short to be told from other words"
        secrets[name] = value
        return value

    password, other, wrong = (
        remember(f"{name} password", f"{name} {uuid4().hex}") for name in ("first", "second", "wrong")
    )
    token = remember(
        "token of the CLI", explained(up, "token", "issue", "--role", "admin", "--json").document["accessToken"]
    )
    with httpx.Client(base_url=up.web, trust_env=False, timeout=60) as client:

        def ask(method: str, path: str, status: int, **options: Any) -> Any:
            answer = client.request(method, path, **options)
            assert answer.status_code == status, answer.text
            if status >= 400 or method == "GET":
                answers[f"the answer to {method} {path} number {len(answers)}"] = f"{answer.headers} {answer.text}"
            return answer.json() if answer.content else None

        bearer = {"Authorization": f"Bearer {token}"}
        user = {"name": "secretive", "role": "admin", "password": password}
        ask("POST", "/api/v1/users", 201, json=user, headers=bearer)
        ask("POST", "/api/v1/users", 409, json=user, headers=bearer)
        ask("POST", "/api/v1/users", 400, json=user | {"name": "b", "role": "king", "extra": password}, headers=bearer)
        login = {"username": "secretive", "password": password}
        ask("POST", "/api/v1/auth/login", 401, json=login | {"password": wrong})
        ask("POST", "/api/v1/auth/login", 400, json=login | {"password": [password]})
        ask("POST", f"/api/v1/auth/login?password={wrong}", 400, json=login)
        logged_in = remember("token of a login", ask("POST", "/api/v1/auth/login", 200, json=login)["accessToken"])
        ask("PATCH", "/api/v1/users/secretive", 200, json={"password": other}, headers=bearer)
        ask("GET", "/api/v1/sellers", 401, headers={"Authorization": f"Bearer {logged_in}"})
        ask("GET", f"/api/v1/sellers?access_token={token}", 400, headers=bearer)
        # The problem repeats the path to the client that sent it: only the logs are searched for this one.
        assert client.get(f"/api/v1/sellers/{token}", headers=bearer).status_code == 400
        for scope in ("trigger", "metrics"):
            key = ask("POST", "/api/v1/api-keys", 201, json={"name": "secretive", "scope": scope}, headers=bearer)
            remember(f"key of scope {scope}", key["key"])
        trigger, metrics = ({"X-API-Key": secrets[f"key of scope {scope}"]} for scope in ("trigger", "metrics"))
        ask("POST", "/api/internal/crawling/trigger", 404, json={"sellerId": "nowhere"}, headers=trigger)
        ask("POST", "/api/internal/crawling/trigger", 401, json={}, headers={"X-API-Key": trigger["X-API-Key"] + "x"})
        ask("GET", "/metrics", 403, headers=trigger)
        answers["metrics"] = client.get("/metrics", headers=metrics).raise_for_status().text
        ask("GET", "/api/v1/audit?size=100", 200, headers=bearer)
        ask("GET", "/api/v1/users", 200, headers=bearer)
        ask("GET", "/api/v1/api-keys", 200, headers=bearer)
        for given, status in ((wrong, 401), (other, 303)):
            form = re.search(r'name="form_token" value="([0-9a-f]+)"', client.get("/login").text)
            assert form is not None
            typed = {"form_token": form[1], "username": "secretive", "password": given}
            page = client.post("/login", data=typed, headers={"Origin": up.web})
            assert page.status_code == status, page.text
            answers[f"the login page after {status}"] = page.text
        remember("session of the console", client.cookies[SESSION])
        answers["the page of users"] = client.get("/users").raise_for_status().text

    settings = Settings(home=up.mustit.home)  # pyright: ignore[reportCallIssue]
    made = (up.mustit.home / "secrets").iterdir()
    secrets |= {f"made secret {file.name}": file.read_text().strip() for file in made if file.is_file()}
    # The last part of a token signs it: with the rest, which says nothing secret, it is the whole.
    secrets |= {
        f"signature of the {name}": value.rpartition(".")[2] for name, value in secrets.items() if "eyJ" in value
    }
    secrets |= {f"end of the {name}": value.rpartition("_")[2] for name, value in secrets.items() if "mk_" in value}
    servers = embedded.attach(up.mustit.home)
    found: list[str] = []
    for number, url in enumerate((servers.database_url, servers.dagster_database_url)):
        database = Database(make_engine(make_url(url).set(drivername="postgresql+psycopg")))
        try:
            if number == 0:
                secrets |= leaks.marketplace_sessions(database, settings.token_keys())
            found += leaks.in_database(secrets, database)
        finally:
            database.close()
    assert len(secrets) > 20
    # The first login link is shown on purpose, once, on the terminal.
    said = [line for line in up.said.so_far() if "First login" not in line]
    found += leaks.in_texts(secrets, answers | {"what `mustit up` said": "\n".join(said)})
    # PostgreSQL and Redis were asked themselves, and the simulated marketplace knows whom it lets in.
    besides = [up.mustit.home / name for name in ("secrets", "pgdata", "redis", "simulator")]
    found += leaks.in_files(secrets, up.mustit.home, besides=besides)
    assert found == []
    logged = {file.name for file in up.mustit.home.rglob("*.err")} | {
        file.name for file in up.mustit.home.rglob("*.log")
    }
    assert logged, "compute logs and logs of servers were among these files"


def test_a_taken_port_is_named_before_anything_is_started(tmp_path: Path) -> None:
    mustit = Mustit(tmp_path / "home")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])

        refused = explained(mustit, "up", MUSTIT_DAGSTER_PORT=port)

    assert refused.code == 1
    assert f"port {port}" in refused.err
    assert "MUSTIT_DAGSTER_PORT" in refused.err
    assert not (tmp_path / "home" / "pgdata").exists()


def _check_overview(url: str) -> None:
    shown = _ask(url, OVERVIEW)
    lineage = {
        node["assetKey"]["path"][0]: {key["path"][0] for key in node["dependencyKeys"]} for node in shown["assetNodes"]
    }
    assert lineage == {
        "mustit_marketplace": set(),
        "minishop_listings": {"mustit_marketplace"},
        "product_details": {"minishop_listings"},
        "product_options": {"minishop_listings"},
        "product_change_sets": {"product_details", "product_options"},
        "product_server": {"product_change_sets"},
        "daily_crawl_metrics": {"product_change_sets", "product_server"},
        "product_catalog": {"product_change_sets"},
        "product_changes": {"product_change_sets"},
    }
    assert set(shown["assetNodeOrError"]["partitionKeys"]) == DEMO_SELLERS
    repository = shown["repositoryOrError"]
    sensors = {one["name"]: one["sensorState"]["status"] for one in repository["sensors"]}
    assert {"seller_partitions", "due_crawls", "waiting_outbox", "run_failures"} <= sensors.keys()
    assert set(sensors.values()) == {"RUNNING"}
    assert {one["scheduleState"]["status"] for one in repository["schedules"]} == {"RUNNING"}


def _crawled(url: str) -> set[str]:
    """The sellers that the daemon has crawled."""
    runs = _ask(url, CRAWLS)["runsOrError"]["results"]
    tags = [{tag["key"]: tag["value"] for tag in run["tags"]} for run in runs]
    return {one["dagster/partition"] for one in tags if "dagster/sensor_name" in one}


def _ask(url: str, query: str) -> Any:
    answer = httpx.post(f"{url}/graphql", json={"query": query}, timeout=60, trust_env=False)
    document = answer.json()
    assert "errors" not in document, document
    return document["data"]


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            if true():
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.5)
    raise AssertionError("it did not happen in time")


def _processes_of(home: Path) -> list[list[str]]:
    """Every process that was started for this home, whatever its parent is by now."""
    found: list[list[str]] = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("MUSTIT_HOME") == str(home) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.cmdline())
        except psutil.Error:
            continue
    return found


class _Lines:
    """What a process says on both of its outputs, line by line as it comes."""

    def __init__(self, *streams: Any) -> None:
        self._said: list[str] = []
        self._queue: queue.Queue[str] = queue.Queue()
        for stream in streams:
            threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def so_far(self) -> list[str]:
        """All lines until now."""
        while not self._queue.empty():
            self._said.append(self._queue.get())
        return self._said

    def wait_for(self, text: str) -> None:
        """Until a line with this text was said."""
        deadline = time.monotonic() + START_SECONDS
        while not any(text in line for line in self._said):
            try:
                self._said.append(self._queue.get(timeout=max(0.01, deadline - time.monotonic())))
            except queue.Empty:
                raise AssertionError(f"{text!r} was not said, only: {self._said}") from None

    def _read(self, stream: Any) -> None:
        for line in stream:
            self._queue.put(line.rstrip())
