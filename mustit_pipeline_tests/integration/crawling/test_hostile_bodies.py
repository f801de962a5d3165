"""Hostile bodies through the real worker and PostgreSQL: what is true is stored, and nothing else is."""

from typing import Any

import orjson
import pytest

from mustit_pipeline.domain.states import ExecutionStatus, LifeCycle, SweepStatus
from mustit_pipeline.foundation.database import Database
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.catalog.shelf import assert_whole
from mustit_pipeline_tests.integration.crawling.checks import check_outcomes, number
from mustit_pipeline_tests.integration.crawling.drifting import ITEMS, SELLER, DriftingMarketplace
from mustit_pipeline_tests.integration.crawls import crawl, register


def test_lone_surrogates_everywhere_cost_no_product_and_are_drift(
    database: Database, make_settings: MakeSettings, drifting: DriftingMarketplace
) -> None:
    def cut(source: str, item_no: int | None, body: Any) -> bytes:
        return orjson.dumps(body).replace("여성 백팩".encode(), rb"\ud83d").replace("블랙".encode(), rb"a\u0000\udc00")

    register(database, SELLER)
    drifting.change = cut

    outcome = crawl(database, make_settings(base_url=drifting.url), SELLER)

    check_outcomes(database, outcome.stored.execution.id)
    assert (outcome.stored.sweep_status, outcome.stored.skipped_items) == (SweepStatus.COMPLETE, 0)
    assert outcome.report.versions == {LifeCycle.CREATED: 2}
    assert set(outcome.stored.drift) == {
        "listing.items.name",
        "detail.ProductInfoModule.itemName",
        "options.color",
    }
    known = "SELECT count(*) FROM products WHERE CAST(data AS jsonb) ->> 'name' = chr(65533) AND data LIKE :color"
    assert number(database, known, color="%a\ufffd%") == 2
    assert_whole(database)


def test_halves_of_characters_that_are_encoded_apart_are_stored(
    database: Database, make_settings: MakeSettings, drifting: DriftingMarketplace
) -> None:
    def cut(source: str, item_no: int | None, body: Any) -> bytes:
        return orjson.dumps(body).replace("여성 백팩".encode(), b"\xed\xa0\xbd")

    register(database, SELLER)
    drifting.change = cut

    outcome = crawl(database, make_settings(base_url=drifting.url), SELLER)

    check_outcomes(database, outcome.stored.execution.id)
    assert (outcome.stored.sweep_status, outcome.stored.skipped_items) == (SweepStatus.COMPLETE, 0)
    assert outcome.report.versions == {LifeCycle.CREATED: 2}
    assert_whole(database)


def test_an_item_of_a_page_that_cannot_be_is_skipped_and_counted_and_the_other_is_crawled(
    database: Database, make_settings: MakeSettings, drifting: DriftingMarketplace
) -> None:
    def negative(source: str, item_no: int | None, body: Any) -> Any:
        if source == "listing" and len(body["items"]) == len(ITEMS):
            body["items"][0]["price"] = "-1"
        return body

    register(database, SELLER)
    drifting.change = negative

    outcome = crawl(database, make_settings(base_url=drifting.url), SELLER)

    check_outcomes(database, outcome.stored.execution.id)
    assert (outcome.stored.sweep_status, outcome.stored.skipped_items) == (SweepStatus.INCOMPLETE, 1)
    assert outcome.report.versions == {LifeCycle.CREATED: 1}


@pytest.mark.parametrize(
    "hostile",
    [
        b"",
        b"\xef\xbb\xbf{}",
        "{}".encode("utf-16"),
        b"<html></html>",
        b'{"moduleList": [{"type": "\xed\xa0\x80"}]}',
        b'{"moduleList": [NaN]}',
        b"[" * 5000,
        b'{"moduleList": [{"type": "ProductInfoModule", "data": {"itemNo": 1e400}}]}',
        b'[{"optionNo": 1, "optionNo": -1, "stock": "\\u0000\\ud800"}]',
    ],
)
def test_details_and_options_that_are_none_fail_alone_and_change_nothing(
    database: Database, make_settings: MakeSettings, drifting: DriftingMarketplace, hostile: bytes
) -> None:
    settings = make_settings(base_url=drifting.url, task_max_retries=0)
    register(database, SELLER)
    crawl(database, settings, SELLER)
    drifting.change = lambda source, item_no, body: hostile if item_no == ITEMS[0] else body

    outcome = crawl(database, settings, SELLER)

    check_outcomes(database, outcome.stored.execution.id)
    assert outcome.stored.execution.status is ExecutionStatus.COMPLETED
    assert (outcome.stored.execution.failed_tasks, outcome.report.versions) == (2, {})
    assert_whole(database)
