"""The recrawl policy from the command line: what a crawl would fetch and why, what the budget keeps, and boosts."""

import pytest

from mustit_pipeline.domain.errors import NotFound
from mustit_pipeline_tests.e2e.asking import ask, settings_of
from mustit_pipeline_tests.e2e.conftest import World
from mustit_pipeline_tests.integration.crawls import crawl

ADAPTIVE = {"MUSTIT_RECRAWL": "adaptive"}


def test_a_dry_run_says_what_a_crawl_would_fetch_and_why(world: World) -> None:
    world.register("worthwhile", 12)
    new = ask(world, "crawl", "worthwhile", "--dry-run", "--json", **ADAPTIVE).document
    assert (new["requests"], new["reasons"]["new"]) == (1 + 1 + 24, 24)

    crawl(world.database, settings_of(world, recrawl="adaptive"), "worthwhile")
    same = ask(world, "crawl", "worthwhile", "--dry-run", "--json", **ADAPTIVE).document
    assert (same["products"], same["requests"]) == (12, 2)
    assert same["reasons"].pop("notWorthIt") == 24
    assert same["reasons"] == dict.fromkeys(("new", "changedInListing", "tooOld", "valuable", "exploration"), 0)

    everything = ask(world, "crawl", "worthwhile", "--full", "--dry-run", "--json", **ADAPTIVE).document
    assert (everything["requests"], everything["reasons"]) == (1 + 1 + 24, None)
    told = ask(world, "crawl", "worthwhile", "--dry-run", **ADAPTIVE).out
    assert "24 left for later" in told


def test_the_budget_says_what_the_pool_keeps_and_what_if(world: World) -> None:
    world.register("afforded", 5)
    crawl(world.database, settings_of(world, recrawl="adaptive"), "afforded")

    found = ask(world, "budget", "--json", **ADAPTIVE).document
    fewer = ask(world, "budget", "--agents", "1", "--max-age", "0.02", MUSTIT_REQUESTS_PER_HOUR="80", **ADAPTIVE)

    assert {
        "capacityPerDay",
        "usedToday",
        "leftToday",
        "products",
        "expectedFreshness",
        "oldestAgeHours",
    } < found.keys()
    assert (found["promiseKept"], found["maxAgeHours"], found["products"] >= 5) == (True, 24, True)
    assert "the pool cannot keep that" in " ".join(fewer.out.split())
    assert "agents instead of 1;" in " ".join(fewer.out.split())


def test_a_seller_and_a_product_are_boosted(world: World) -> None:
    world.register("boosted", 2)
    crawl(world.database, settings_of(world), "boosted")
    item = str(world.market.products("boosted")[0]["itemNo"])

    assert ask(world, "seller", "boost", "boosted", "3", "--json").document == {"sellerId": "boosted", "boost": 3.0}
    assert ask(world, "product", "boost", item, "0.5").code == 0
    assert ask(world, "seller", "boost", "boosted", "0").code == 2
    with pytest.raises(NotFound):
        ask(world, "seller", "boost", "unknown", "2")
