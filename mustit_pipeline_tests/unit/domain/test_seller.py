"""Sellers."""

import pytest

from mustit_pipeline.domain.errors import ValidationFailed
from mustit_pipeline.domain.seller import Seller
from mustit_pipeline.domain.states import SellerStatus
from mustit_pipeline.domain.values import CrawlingInterval
from mustit_pipeline_tests.unit.domain.builders import DMONT, LATER, T0, seller


def test_a_registered_seller_is_active_and_crawled_daily() -> None:
    registered = Seller.register(DMONT, " 디몬트 ", T0)
    assert registered.is_active
    assert (registered.name, registered.interval) == ("디몬트", CrawlingInterval.DEFAULT)
    assert (registered.total_product_count, registered.created_at, registered.updated_at) == (0, T0, T0)


def test_a_seller_can_be_registered_with_another_interval() -> None:
    assert Seller.register(DMONT, "디몬트", T0, CrawlingInterval.hours(6)).interval == CrawlingInterval.hours(6)


@pytest.mark.parametrize("name", ["", "  ", "x" * 201, "a\nb"])
def test_a_seller_without_a_proper_name_is_refused(name: str) -> None:
    with pytest.raises(ValidationFailed) as refused:
        Seller.register(DMONT, name, T0)
    assert refused.value.code == "VALIDATION_SELLER_NAME"


def test_every_change_is_dated() -> None:
    changes = [
        lambda s: s.change_interval(CrawlingInterval.days(7), LATER),
        lambda s: s.deactivate(LATER),
        lambda s: s.count_products(3464, LATER),
    ]
    for change in changes:
        changed = seller()
        change(changed)
        assert (changed.created_at, changed.updated_at) == (T0, LATER)


def test_an_inactive_seller_is_not_crawled_until_activated() -> None:
    inactive = seller(status=SellerStatus.INACTIVE)
    assert not inactive.is_active
    inactive.activate(LATER)
    assert inactive.is_active


def test_the_interval_and_the_product_count_can_change() -> None:
    changed = seller()
    changed.change_interval(CrawlingInterval.days(30), LATER)
    changed.count_products(3464, LATER)
    assert (changed.interval, changed.total_product_count) == (CrawlingInterval.days(30), 3464)
    changed.count_products(0, LATER)
    assert changed.total_product_count == 0


def test_a_negative_product_count_is_refused() -> None:
    with pytest.raises(ValidationFailed) as refused:
        seller().count_products(-1, LATER)
    assert refused.value.code == "VALIDATION_SELLER_PRODUCT_COUNT"
