"""The plan of the world that goes on by itself."""

import pytest

from mustit_pipeline.cli.lively_world import LOST_SHARE, Happening, Kind, due
from mustit_pipeline.settings import Settings

SELLERS = ["a", "b", "c"]
FIVE_MINUTES = 300.0
HOUR = 3600.0


def times(kind: Kind, until: float = HOUR) -> list[float]:
    return [one.at for one in due(0, until, SELLERS) if one.kind is kind]


def test_everything_is_seen_within_five_minutes() -> None:
    seen = due(0, FIVE_MINUTES, SELLERS)

    assert {one.kind for one in seen} == set(Kind)
    assert len(times(Kind.CHANGE, FIVE_MINUTES)) == 14
    assert {seller for one in seen if one.kind is Kind.CHANGE for seller in one.sellers} == set(SELLERS)
    assert [one.at for one in seen] == sorted(one.at for one in seen)


@pytest.mark.parametrize("step", [0.5, 0.7, 20.0, 33.3, 1000.0])
def test_checks_at_any_pace_find_each_happening_once(step: float) -> None:
    found: list[Happening] = []
    at = 0.0
    while at < HOUR:
        found += due(at, min(at + step, HOUR), SELLERS)
        at += step

    assert found == due(0, HOUR, SELLERS)


def test_each_loss_is_swept_before_the_products_return_and_would_be_held() -> None:
    returns, crawls = times(Kind.RESTOCK), times(Kind.CRAWL)

    losses = [loss for loss in times(Kind.LOSE) if loss < returns[-1]]
    assert losses
    for loss in losses:
        back = next(at for at in returns if at > loss)
        assert len([at for at in crawls if loss < at < back]) >= 2
    assert Settings.model_fields["deletion_hold_share"].default < LOST_SHARE


def test_each_failure_of_the_product_server_ends_within_two_minutes() -> None:
    failures, recoveries = times(Kind.FAIL), times(Kind.RECOVER)

    assert len(failures) == len(recoveries) > 1
    assert all(0 < end - start <= 120 for start, end in zip(failures, recoveries, strict=True))


def test_crawls_and_returns_are_for_all_sellers_and_losses_for_one_after_the_other() -> None:
    planned = due(0, HOUR, SELLERS)

    assert all(one.sellers == ("a", "b", "c") for one in planned if one.kind in (Kind.CRAWL, Kind.RESTOCK))
    assert [one.sellers for one in planned if one.kind is Kind.LOSE][:4] == [("a",), ("b",), ("c",), ("a",)]
