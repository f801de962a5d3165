"""`mustit alerts` and `mustit holds`, and what doctor says about both."""

from collections.abc import Generator
from datetime import timedelta

import pytest
from sqlalchemy import text

from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.monitoring.sql import alerts
from mustit_pipeline.monitoring.sql.alerts import Condition
from mustit_pipeline_tests.e2e.asking import ask, explained, settings_of
from mustit_pipeline_tests.e2e.conftest import World
from mustit_pipeline_tests.integration.crawls import crawl
from mustit_pipeline_tests.integration.monitoring.inbox import TOKEN, Inbox, opened_inbox


@pytest.fixture
def inbox() -> Generator[Inbox]:
    with opened_inbox() as opened:
        yield opened


@pytest.fixture
def alerted(world: World) -> Generator[None]:
    """Two alerts, one of which is over."""
    now = utc_now()
    open_one = Condition("run crawl_seller [bold]", "RUN_FAILED", "crawl_seller of [bold] failed", "Mend it.")
    over = Condition("check x", "CHECK_FAILED", "The check x fails", "Mend it.")
    with world.database.transaction() as connection:
        alerts.see(connection, [(open_one, now), (over, now - timedelta(hours=1))], now)
        connection.execute(text("UPDATE alerts SET ended_at = now() WHERE subject = 'check x'"))
    yield
    with world.database.transaction() as connection:
        connection.execute(text("DELETE FROM alerts"))


def finding(world: World, subject: str) -> dict[str, str]:
    [found] = [one for one in ask(world, "doctor", "--json").document if one["subject"] == subject]
    return found


@pytest.mark.usefixtures("alerted")
def test_open_alerts_are_listed_and_those_that_are_over_where_asked(world: World) -> None:
    [found] = ask(world, "alerts", "list", "--json").document

    assert (found["subject"], found["kind"], found["endedAt"]) == ("run crawl_seller [bold]", "RUN_FAILED", None)
    assert [one["subject"] for one in ask(world, "alerts", "list", "--all", "--json").document] == [
        "run crawl_seller [bold]",
        "check x",
    ]
    assert "crawl_seller of [bold] failed" in ask(world, "alerts", "list").out
    said = finding(world, "alerts")
    assert said["health"] == "warning"
    assert said["detail"] == "1 open; not sent, MUSTIT_ALERT_URLS is not set"


def test_where_nothing_is_wrong_that_is_said(world: World) -> None:
    assert ask(world, "alerts", "list").out == "No alert is open.\n"
    assert ask(world, "holds", "list").out == "No changes are held back.\n"
    assert finding(world, "held changes")["health"] == "ok"


def test_a_test_message_reaches_every_address_and_a_bad_one_is_named_by_its_number(world: World, inbox: Inbox) -> None:
    good = explained(world, "alerts", "test", MUSTIT_ALERT_URLS=inbox.url)
    assert (good.code, good.out) == (0, "address 1 (json): sent\n")
    assert inbox.titles == ["[mustit] Test"]

    bad = explained(world, "alerts", "test", "--json", MUSTIT_ALERT_URLS=f"{inbox.url}, nosuch://{TOKEN}")
    assert bad.code == 1
    assert [(one["address"], one["sent"]) for one in bad.document] == [
        ("address 1 (json)", True),
        ("address 2 (nosuch)", False),
    ]
    assert TOKEN not in bad.out + bad.err


def test_a_test_without_an_address_says_which_setting_is_missing(world: World) -> None:
    refused = explained(world, "alerts", "test")

    assert refused.code == 1
    assert "MUSTIT_ALERT_URLS" in refused.err


def test_changes_that_look_wrong_fail_the_crawl_and_a_release_publishes_them(world: World) -> None:
    world.register("jumping", 4)
    crawl(world.database, settings_of(world), "jumping")
    for product in world.market.products("jumping"):
        world.market.set_fields("jumping", product["itemNo"], sellingPrice=product["sellingPrice"] * 10)

    crawled = explained(world, "crawl", "jumping", "--json", MUSTIT_SUSPICIOUS_LEAST="3")

    assert crawled.code == 1
    assert (crawled.document["status"], crawled.document["changes"]) == ("COMPLETED", {})
    assert "mustit holds list" in crawled.document["message"]
    [hold] = ask(world, "holds", "list", "--status", "open", "--json").document
    assert (hold["sellerId"], hold["jumped"], hold["lookedAt"], hold["share"]) == ("jumping", 4, 4, 100.0)
    assert "4 of 4 of jumping" in finding(world, "held changes")["detail"]
    assert "jumping" in ask(world, "holds", "list").out

    released = ask(world, "holds", "release", "jumping", "--json").document
    assert released == {"sellerId": "jumping", "published": 4, "changes": {"PRICE": 4}}
    assert [one["status"] for one in ask(world, "holds", "list", "--json").document] == ["RELEASED"]
