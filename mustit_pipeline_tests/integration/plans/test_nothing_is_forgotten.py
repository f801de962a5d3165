"""Whatever the code asks of a table that grows is in the table of statements."""

import pkgutil
import re
from collections.abc import Iterator
from datetime import timedelta
from html import unescape
from importlib import import_module
from typing import cast

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, TextClause
from sqlalchemy.dialects import postgresql

import mustit_pipeline
from mustit_pipeline.access import users
from mustit_pipeline.access.console_sessions import open_session
from mustit_pipeline.access.tokens import issue
from mustit_pipeline.api.context import Ground
from mustit_pipeline.catalog.replay import replay_failed, replay_stored
from mustit_pipeline.cli.doctor import examine
from mustit_pipeline.crawling import steering
from mustit_pipeline.crawling.estimate import estimate
from mustit_pipeline.delivery.reconcile import reconcile
from mustit_pipeline.delivery.relay import relay
from mustit_pipeline.domain.access import Role, UserName
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.monitoring import alerting, exposition, metrics
from mustit_pipeline.monitoring.criteria import CRITERIA
from mustit_pipeline.monitoring.notifications import notify
from mustit_pipeline.monitoring.spot_checks import spot_check
from mustit_pipeline.scheduling.due import begin_slices
from mustit_pipeline.scheduling.light import open_light_slices
from mustit_pipeline.scheduling.refresh import open_refreshes
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline.upkeep import recovery
from mustit_pipeline.upkeep.maintenance import maintain
from mustit_pipeline.web import create_web
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.crawls import crawl, register
from mustit_pipeline_tests.integration.plans.costs import has_a_plan, recorded, shape, statements_of
from mustit_pipeline_tests.integration.plans.statements import STATEMENTS, Scene

SELLER = "dmont"
# Once a month, under an exclusive lock, and about the few rows that came before their partition.
EXEMPT = {"SELECT DISTINCT task_month FROM crawler_tasks_default ORDER BY task_month"}


@pytest.fixture(scope="module")
def covered(crowded: Database) -> set[str]:
    """The shapes of all statements that the table sends."""
    shapes: set[str] = set()
    with crowded.engine.connect() as connection:
        scene = Scene(connection)
        for statement in STATEMENTS.values():
            sent = statements_of(connection, lambda c, s=statement: s.act(c, scene))
            shapes |= {one.shape for one in sent}
        connection.rollback()
    return shapes


def written_down() -> Iterator[tuple[str, str]]:
    """Every statement that a room's SQL has a name for."""
    for found in pkgutil.walk_packages(mustit_pipeline.__path__, f"{mustit_pipeline.__name__}."):
        if ".sql." not in found.name:
            continue
        module = import_module(found.name)
        for name, value in vars(module).items():
            named = cast("dict[object, object]", value).values() if isinstance(value, dict) else [value]
            for one in named:
                if isinstance(one, TextClause):
                    compiled = one.compile(dialect=postgresql.dialect(paramstyle="pyformat"))  # pyright: ignore
                    yield f"{found.name}.{name}", str(compiled)


def test_every_statement_that_a_room_has_a_name_for_is_in_the_table(covered: set[str]) -> None:
    named = {name: statement for name, statement in written_down() if has_a_plan(statement)}
    assert len(named) > 50
    missing = [name for name, statement in named.items() if shape(statement) not in covered]
    assert missing == [], "\n".join(missing)


def test_a_day_of_the_pipeline_sends_nothing_that_is_not_in_the_table(
    covered: set[str],
    database: Database,
    make_settings: MakeSettings,
    marketplace: RunningSimulator,
    product_server: RunningSimulator,
    market: MarketplaceControl,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = make_settings(base_url=marketplace.url, product_server_url=product_server.url, page_size=20)
    adaptive = settings.model_copy(update={"recrawl": "adaptive"})
    monkeypatch.setenv("MUSTIT_HOME", str(settings.home))
    monkeypatch.setenv("MUSTIT_DATABASE_URL", settings.database_url or "")
    monkeypatch.setenv("MUSTIT_DAGSTER_DATABASE_URL", settings.dagster_database_url or "")
    monkeypatch.setenv("MUSTIT_REDIS_URL", "off")
    market.add_seller(SELLER, 45)
    seller_id = SellerId(SELLER)

    with recorded(Engine) as sent:
        register(database, SELLER)
        begin_slices(database, busy=[], free=4, now=utc_now(), slice_seconds=600)
        crawl(database, settings, SELLER)
        relay(database, settings)
        market.random_changes(SELLER, 18)
        market.remove(SELLER, count=2)
        for _ in range(3):
            crawl(database, settings, SELLER)
        relay(database, settings)
        market.random_changes(SELLER, 18)
        crawl(database, adaptive, SELLER)
        open_light_slices(database, adaptive, busy=[], free=4, now=utc_now() + timedelta(hours=2))
        estimate(database, adaptive, seller_id)
        reconcile(database, settings, seller_id=None, resend=True, now=utc_now)
        cancelled = steering.open_or_join(database, seller_id, triggered_by="test", now=utc_now()).stored
        steering.cancel(database, cancelled.execution.id, utc_now())
        recovery.find_stuck(database, utc_now(), busy=[])
        recovery.recover(database, settings, utc_now, busy=[], idle_seconds=0)
        replay_failed(database, seller_id=None, since=None, now=utc_now)
        replay_stored(database, seller_id, now=utc_now)
        open_refreshes(database, settings, busy=[], free=4, now=utc_now())
        metrics.metrics_of(database, utc_now().date())
        metrics.days_to_compute(database, utc_now(), [])
        with database.reading() as connection:
            for criterion in CRITERIA:
                criterion.judge(connection, settings, utc_now())
            list(exposition.families(connection, settings, utc_now()))
        alerting.observe(database, settings, utc_now())
        notify(database, settings, utc_now())
        spot_check(database, settings)
        maintain(database, settings, utc_now())
        list(examine())

    asked = {one.shape for one in sent if has_a_plan(one.statement)}
    assert len(asked) > 60
    assert sorted(asked - covered - EXEMPT) == []


def test_no_page_and_no_list_sends_what_is_not_in_the_table(
    covered: set[str],
    database: Database,
    make_settings: MakeSettings,
    marketplace: RunningSimulator,
    market: MarketplaceControl,
) -> None:
    settings = make_settings(base_url=marketplace.url, page_size=20)
    market.add_seller(SELLER, 45)
    register(database, SELLER)
    for _ in range(2):
        crawl(database, settings, SELLER)
        market.random_changes(SELLER, 18)
    ground = Ground(settings, database, settings.signing_keys())
    admin = users.add(database, UserName("kim"), Role.ADMIN, None)
    session = open_session(ground.keys, admin, utc_now()).text
    bearer = {"Authorization": f"Bearer {issue(ground.keys, admin, utc_now()).text}"}

    with recorded(Engine) as sent, TestClient(create_web(ground)) as client:
        client.cookies.set("mustit_session", session, domain="testserver.local")
        pages = read_links(client)
        lists = [
            path
            for path, ways in client.get("/openapi.json").json()["paths"].items()
            if "get" in ways and "{" not in path and "events" not in path
        ]
        for path in lists:
            client.get(path, headers=bearer)

    assert len(pages) > 25
    assert len(lists) > 10
    asked = {one.shape for one in sent if has_a_plan(one.statement)}
    assert sorted(asked - covered - EXEMPT) == []


def read_links(client: TestClient) -> set[str]:
    """Follow all links of the console; of addresses that differ only in an id or a place one."""
    left, seen = ["/"], set[str]()
    while left:
        page = left.pop()
        kind = re.sub(r"[0-9a-f]{8}-[0-9a-f-]+|\d+|cursor=[^&]*", "0", page)
        if kind not in seen:
            seen.add(kind)
            found = re.findall(r'href="(/(?!dagster|api|docs|static)[^"#]*)"', client.get(page).text)
            left += map(unescape, found)
    return seen
