"""Bad input on the command line: a clear error each, the right exit code, and nothing stored."""

import pytest

from mustit_pipeline.crawling import steering
from mustit_pipeline.crawling.sql import executions
from mustit_pipeline.crawling.steering import deactivate_seller, open_or_join
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.sellers.sql import sellers
from mustit_pipeline_tests.e2e.asking import explained
from mustit_pipeline_tests.e2e.conftest import World


def _ids(world: World) -> list[str]:
    with world.database.reading() as connection:
        return sellers.all_ids(connection)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["   ", "--name", "X"], "VALIDATION_SELLER_ID_BLANK"),
        (["new", "--name", "  "], "VALIDATION_SELLER_NAME"),
        (["new", "--name", "X", "--interval", "0d"], "VALIDATION_INTERVAL"),
        (["new", "--name", "X", "--interval", "31d"], "VALIDATION_INTERVAL"),
        (["new", "--name", "X", "--interval", "soon"], "VALIDATION_INTERVAL_FORMAT"),
    ],
)
def test_a_seller_that_cannot_be_is_refused_and_nothing_is_stored(
    world: World, arguments: list[str], code: str
) -> None:
    before = _ids(world)

    refused = explained(world, "seller", "add", *arguments, "--json")

    assert refused.code == 2
    assert refused.document["errorCode"].startswith(code.removesuffix("_BLANK"))
    assert refused.document["message"] in refused.err
    assert _ids(world) == before


def test_a_known_id_is_refused_and_the_seller_stays_as_it_was(world: World) -> None:
    world.register("twice", 1)

    refused = explained(world, "seller", "add", "twice", "--name", "Another", "--interval", "6h")

    assert refused.code == 1
    assert "registered already" in refused.err
    with world.database.reading() as connection:
        seller, _ = sellers.get(connection, SellerId("twice"))
    assert (seller.name, str(seller.interval)) == ("twice", "1d")


def test_an_unknown_seller_is_named_with_what_to_do(world: World) -> None:
    refused = explained(world, "crawl", "stranger", "--json")

    assert refused.code == 1
    assert refused.document["errorCode"] == "NOT_FOUND_SELLER"
    assert "mustit seller add" in refused.err


def test_paused_and_inactive_crawls_exit_1_with_the_reason_and_the_document(world: World) -> None:
    world.register("halted", 1)
    stored = open_or_join(world.database, SellerId("halted"), triggered_by="test", now=utc_now()).stored
    stored.execution.start(1, utc_now())
    with world.database.transaction() as connection:
        executions.save(connection, stored.execution)
    steering.pause(world.database, stored.execution.id)

    paused = explained(world, "crawl", "halted", "--json")
    deactivate_seller(world.database, SellerId("halted"), utc_now())
    inactive = explained(world, "crawl", "halted", "--json")

    assert (paused.code, paused.document["status"]) == (1, "PAUSED")
    assert paused.document["executionId"] == str(stored.execution.id)
    assert f"mustit execution resume {stored.execution.id}" in paused.err
    assert (inactive.code, inactive.document["status"]) == (1, "INACTIVE")
    assert "mustit seller activate" in inactive.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["nope"],
        ["seller"],
        ["seller", "add", "x"],
        ["crawl", "x", "--limit", "0"],
        ["crawl", "x", "--limit", str(2**31)],
        ["product", "show", "1", "--version", "99999999999999999999"],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_2_and_keeps_stdout_clean(world: World, arguments: list[str]) -> None:
    refused = explained(world, *arguments)

    assert refused.code == 2
    if arguments != ["seller"]:
        assert refused.out == ""
        assert "Usage: mustit" in refused.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["crawl"], "Missing argument"),
        (["crawl", "x", "--limit", "many"], "--limit"),
        (["agents", "unblock"], "--all"),
        (["run-worker", "--slots", "0"], "--slots"),
        (["serve", "--host", "nowhere.example"], "--host"),
        (["user", "password", "kim"], "--password-stdin"),
        (["simulate", "marketplace", "--sellers", "dmont"], "--sellers"),
        (["execution", "show", "not-an-id"], "VALIDATION_"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_a_document_too_where_one_is_asked_for(world: World, arguments: list[str], said: str) -> None:
    refused = explained(world, *arguments, "--json")

    assert refused.code == 2
    assert refused.document["errorCode"].startswith("VALIDATION_")
    assert said in refused.document["message"]


def test_wrong_usage_is_said_in_korean_where_that_is_read(world: World) -> None:
    refused = explained(world, "crawl", "--json", LANG="ko_KR.UTF-8")

    assert (refused.code, refused.document["errorCode"]) == (2, "VALIDATION_USAGE")
    assert refused.document["message"].startswith("명령을 잘못 사용했습니다")


def test_an_interval_of_an_inactive_seller_is_a_conflict(world: World) -> None:
    world.register("at rest", 1)
    deactivate_seller(world.database, SellerId("at rest"), utc_now())

    refused = explained(world, "seller", "set-interval", "at rest", "7d", "--json")

    assert (refused.code, refused.document["errorCode"]) == (1, "CONFLICT_SCHEDULE_INTERVAL")


@pytest.mark.parametrize("arguments", [["crawl", "nowhere"], ["backfill", "nowhere"], ["worker", "--seconds", "1"]])
def test_no_marketplace_is_called_that_was_not_named(world: World, arguments: list[str]) -> None:
    """Without an address `crawl` called the real marketplace, while `up` simulated one."""
    refused = explained(world, *arguments, "--json", MUSTIT_BASE_URL="")

    assert (refused.code, refused.document["errorCode"]) == (1, "VALIDATION_SETTINGS")
    assert "https://m.web.mustit.co.kr" in refused.document["message"]
    assert "mustit up" in refused.document["message"]


def test_a_misspelt_variable_is_named_at_the_start(world: World) -> None:
    listed = explained(world, "seller", "list", "--json", MUSTIT_PAGESIZE="5")

    assert listed.code == 0
    assert "no setting reads MUSTIT_PAGESIZE; MUSTIT_PAGE_SIZE was probably meant" in listed.err


def test_an_unreachable_database_has_a_code_and_a_text_in_korean(world: World) -> None:
    nowhere = "postgresql://u:p@127.0.0.1:9"
    refused = explained(
        world,
        "seller",
        "list",
        "--json",
        MUSTIT_DATABASE_URL=f"{nowhere}/a",
        MUSTIT_DAGSTER_DATABASE_URL=f"{nowhere}/b",
        MUSTIT_TOKEN_KEY="AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        MUSTIT_JWT_SECRET="x" * 32,
        LANG="ko_KR.UTF-8",
    )

    assert (refused.code, refused.document["errorCode"]) == (1, "EXTERNAL_DATABASE_UNREACHABLE")
    assert refused.document["message"].startswith("데이터베이스에 연결할 수 없습니다")


def test_an_operator_resumes_the_pool_now(world: World) -> None:
    with world.database.transaction() as connection:
        connection.exec_driver_sql(
            "UPDATE pool_state SET breaker_open_until = now() + interval '9 min', paused_until = now() + interval '1 h'"
        )

    resumed = explained(world, "agents", "resume", "--json")
    status = explained(world, "agents", "status", "--json").document

    assert resumed.code == 0
    assert resumed.document["endedPauseUntil"]
    assert resumed.document["closedCircuitUntil"]
    assert (status["circuit"], status["hostPausedUntil"]) == ("closed", None)
    assert explained(world, "agents", "resume", "--json").document == {
        "closedCircuitUntil": None,
        "endedPauseUntil": None,
    }


def test_a_wrong_setting_is_named(world: World) -> None:
    refused = explained(world, "seller", "list", "--json", MUSTIT_PAGE_SIZE="many")

    assert refused.code == 1
    assert "MUSTIT_PAGE_SIZE" in refused.document["message"]
    assert "MUSTIT_PAGE_SIZE" in refused.err


def test_a_relay_without_an_address_names_the_setting(world: World) -> None:
    refused = explained(world, "relay", "--json", MUSTIT_PRODUCT_SERVER_URL="")

    assert refused.code == 1
    assert "MUSTIT_PRODUCT_SERVER_URL" in refused.document["message"]
