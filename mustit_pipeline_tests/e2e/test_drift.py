"""`mustit drift`, and what doctor and an execution say about fields that changed."""

import re
from collections.abc import Generator
from uuid import UUID

import pytest
from rich.cells import cell_len
from sqlalchemy import text

from mustit_pipeline.catalog.sql import drift
from mustit_pipeline.catalog.sql.drift import Sighting
from mustit_pipeline.crawling.sql.executions import record_drift
from mustit_pipeline.domain.drift import Deviation, DriftKind
from mustit_pipeline.domain.errors import DomainError
from mustit_pipeline_tests.e2e.asking import ask, explained, on_screens
from mustit_pipeline_tests.e2e.conftest import World

COUPON = Deviation("detail.ProductInfoModule.coupon", DriftKind.NEW, "", "object", '{"name": "첫구매 [5%]"}')
STOCK = Deviation("options.stock", DriftKind.RETYPED, "number or text", "object", '{"seoul": 1}')
GONE = Deviation("detail.ShippingModule", DriftKind.MISSING, "object", "", "")


@pytest.fixture(scope="module")
def execution_id(world: World) -> str:
    """A crawl that something can be said about."""
    world.register("drifting", 1)
    return explained(world, "crawl", "drifting", "--json").document["executionId"]


@pytest.fixture(autouse=True)
def seen(world: World, execution_id: str) -> Generator[None]:
    """Three fields that changed, one of them seen long ago."""
    with world.database.transaction() as connection:
        for deviation in (GONE, COUPON, STOCK):
            record_drift(connection, [Sighting("drifting", 7, UUID(execution_id), deviation)])
        connection.execute(
            text("UPDATE schema_drift SET last_seen_at = now() - interval '9 days' WHERE kind = 'MISSING'")
        )
    yield
    with world.database.transaction() as connection:
        connection.execute(text("DELETE FROM schema_drift"))


def paths(world: World, *arguments: str) -> list[str]:
    return [found["path"] for found in ask(world, "drift", "list", "--json", *arguments).document]


def doctors_finding(world: World) -> dict[str, str]:
    [found] = [one for one in ask(world, "doctor", "--json").document if one["subject"] == "schema drift"]
    return found


def test_fields_that_changed_are_listed_with_where_and_how_often(world: World) -> None:
    [coupon, stock, gone] = ask(world, "drift", "list", "--json").document

    assert (coupon["path"], coupon["kind"], coupon["sample"]) == (COUPON.path, "NEW", COUPON.sample)
    assert (stock["expected"], stock["observed"], stock["count"]) == ("number or text", "object", 1)
    assert (gone["sellerId"], gone["itemNo"], gone["acceptedAt"]) == ("drifting", 7, None)
    assert paths(world, "--since", "2d") == [COUPON.path, STOCK.path]
    assert paths(world, "--limit", "1") == [COUPON.path]


@pytest.mark.parametrize("columns", [80, 120])
def test_the_table_fits_the_screen_and_shows_what_is_seen_as_it_is(world: World, columns: int) -> None:
    [lines] = on_screens(world, columns, ("drift", "list"))

    assert max(cell_len(line) for line in lines) <= columns
    assert re.search(r"RETYPED +\d\d-\d\d \d\d:\d\d +1 +options\.stock", "\n".join(lines))


def test_doctor_warns_until_every_change_is_accepted(world: World) -> None:
    warned = doctors_finding(world)
    accepted = ask(world, "drift", "accept", "detail", "--json")
    still = doctors_finding(world)
    told = ask(world, "drift", "accept", STOCK.path)

    assert (warned["health"], warned["detail"]) == ("warning", "3 fields have changed in the marketplace's bodies")
    assert "mustit drift list" in warned["remedy"]
    assert accepted.document == {"paths": [COUPON.path, GONE.path]}
    assert still["detail"] == "1 field has changed in the marketplace's bodies"
    assert told.out == "Accepted options.stock.\n"
    assert (doctors_finding(world)["health"], paths(world)) == ("ok", [])
    assert ask(world, "drift", "list").out == "The marketplace's bodies are as they were.\n"
    assert paths(world, "--all") == [COUPON.path, STOCK.path, GONE.path]


def test_what_is_forgotten_is_gone_from_the_list(world: World) -> None:
    assert ask(world, "drift", "forget", "*.stock").out == "Forgot options.stock.\n"
    assert paths(world, "--all") == [COUPON.path, GONE.path]


def test_an_execution_says_which_fields_its_bodies_differed_in(world: World, execution_id: str) -> None:
    shown = ask(world, "execution", "show", execution_id, "--json").document
    assert shown["drift"] == [COUPON.path, GONE.path, STOCK.path]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("forget", "listing.items.name"), "NOT_FOUND_DRIFT"),
        (("forget", ""), "NOT_FOUND_DRIFT"),
        (("list", "--since", "soon"), "VALIDATION_TIME"),
    ],
)
def test_what_cannot_be_found_or_read_is_a_clear_error(world: World, arguments: tuple[str, ...], code: str) -> None:
    with pytest.raises(DomainError) as refused:
        ask(world, "drift", *arguments)
    assert refused.value.code == code


def test_a_path_that_is_none_is_wrong_usage(world: World) -> None:
    refused = ask(world, "drift", "accept", "stock")
    assert (refused.code, refused.out) == (2, "")
    assert "PATH" in refused.err
    assert "detail.ProductInfoModule.stock" in refused.err


def test_doctor_says_when_no_more_is_recorded(world: World) -> None:
    with world.database.transaction() as connection:
        connection.execute(
            text("""INSERT INTO schema_drift (path, kind, observed, expected, sample, count, seller_id, accepted_at)
                    SELECT 'listing.filled' || n, 'NEW', 'text', '', 'x', 1, 'drifting', now()
                    FROM generate_series(1, :most) n"""),
            {"most": drift.MOST_ROWS},
        )
    warned = doctors_finding(world)
    assert warned["health"] == "warning"
    assert warned["detail"] == "1,000 deviations are recorded, and no new ones beside them"
    assert "mustit drift forget PATH" in warned["remedy"]
    ask(world, "drift", "forget", "listing.filled*")
    assert "recorded" not in doctors_finding(world)["detail"]
