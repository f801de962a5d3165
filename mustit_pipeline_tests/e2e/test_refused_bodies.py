"""A body that drift has blocked, from the crawl that refused it to its change, by commands alone."""

from typing import Any

import pytest

from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.e2e.asking import ask, settings_of
from mustit_pipeline_tests.e2e.conftest import World
from mustit_pipeline_tests.integration.crawling.drifting import ITEMS, SELLER, drifting_marketplace
from mustit_pipeline_tests.integration.crawls import crawl, register

COUPON = "detail.ProductInfoModule.coupon"


def with_a_coupon(source: str, item_no: int | None, body: Any) -> Any:
    if source == "detail":
        body["moduleList"][1]["data"] |= {"coupon": 1, "stock": 77}
    return body


def blocking(world: World, url: str) -> Settings:
    return settings_of(world).model_copy(update={"base_url": url, "drift_block": COUPON})


def test_a_blocked_body_is_listed_with_its_reason_and_replayed_once_its_drift_is_accepted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTIT_DRIFT_BLOCK", COUPON)
    mine = ("--seller", SELLER)
    register(world.database, SELLER)
    with drifting_marketplace() as drifting:
        crawl(world.database, blocking(world, drifting.url), SELLER)
        drifting.change = with_a_coupon
        crawl(world.database, blocking(world, drifting.url), SELLER)
        drifting.asked.clear()

        listed = ask(world, "raw", "list", "--status", "FAILED", *mine, "--json").document
        assert {(one["itemNo"], one["errorCode"]) for one in listed} == {
            (item, "EXTERNAL_BLOCKED_DRIFT") for item in ITEMS
        }
        assert {one["error"] for one in listed} == {f"{COUPON} is new (number), and MUSTIT_DRIFT_BLOCK blocks it"}
        assert ask(world, "raw", "replay", *mine).code == 1

        ask(world, "drift", "accept", COUPON)
        mended = ask(world, "raw", "replay", *mine)

        assert mended.code == 0, mended.err
        assert "Replayed 2 failed bodies; made 2 versions." in mended.out
        assert drifting.asked == []
    assert ask(world, "raw", "list", "--status", "FAILED", *mine, "--json").document == []
    ask(world, "drift", "forget", COUPON)
