"""Schedules: when a crawl is due, and what the outside scheduler is told."""

import re
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustit_pipeline.domain.errors import DomainError
from mustit_pipeline.domain.schedule import CrawlingSchedule, ScheduleEvent, rule_name
from mustit_pipeline.domain.states import ScheduleEventType, ScheduleStatus
from mustit_pipeline.domain.values import CrawlingInterval, ScheduleId, SellerId
from mustit_pipeline_tests.unit.domain.builders import DMONT, ID, LATER, T0, schedule

REGISTERED = ScheduleEventType.SCHEDULE_REGISTERED
UPDATED = ScheduleEventType.SCHEDULE_UPDATED
DEACTIVATED = ScheduleEventType.SCHEDULE_DEACTIVATED
A_B_SHA256 = "c8687a08aa5d6ed2044328fa6a697ab8e96dc34291e8c2034ae8c38e6fcc6d65"


def test_registration_is_due_at_once_and_announced_once() -> None:
    registered = CrawlingSchedule.register(ScheduleId(ID), DMONT, CrawlingInterval.days(7), T0)
    assert (registered.status, registered.next_due_at) == (ScheduleStatus.ACTIVE, T0)
    expected = ScheduleEvent(REGISTERED, ScheduleId(ID), DMONT, "mustit-crawler-dmont", "rate(7 days)", T0)
    assert registered.pull_events() == (expected,)
    assert registered.pull_events() == ()


def test_a_loaded_schedule_announces_nothing() -> None:
    assert schedule().pull_events() == ()


@pytest.mark.parametrize(
    ("status", "change", "event"),
    [
        (ScheduleStatus.ACTIVE, lambda s: s.change_interval(CrawlingInterval.hours(6), LATER), UPDATED),
        (ScheduleStatus.ACTIVE, lambda s: s.deactivate(LATER), DEACTIVATED),
        (ScheduleStatus.FAILED, lambda s: s.deactivate(LATER), DEACTIVATED),
        (ScheduleStatus.INACTIVE, lambda s: s.activate(LATER), REGISTERED),
        (ScheduleStatus.FAILED, lambda s: s.activate(LATER), REGISTERED),
    ],
)
def test_a_change_is_announced(status: ScheduleStatus, change, event: ScheduleEventType) -> None:
    changed = schedule(status=status)
    change(changed)
    (announced,) = changed.pull_events()
    assert (announced.event_type, announced.occurred_at, announced.expression) == (event, LATER, changed.expression)


@pytest.mark.parametrize(
    ("status", "active", "event", "after"),
    [
        (ScheduleStatus.ACTIVE, True, REGISTERED, ScheduleStatus.ACTIVE),
        (ScheduleStatus.FAILED, True, REGISTERED, ScheduleStatus.ACTIVE),
        (ScheduleStatus.INACTIVE, False, DEACTIVATED, ScheduleStatus.INACTIVE),
        (ScheduleStatus.FAILED, False, DEACTIVATED, ScheduleStatus.INACTIVE),
    ],
)
def test_telling_again_says_how_it_is_and_starts_a_failed_one_anew(
    status: ScheduleStatus, active: bool, event: ScheduleEventType, after: ScheduleStatus
) -> None:
    told = schedule(status=status)
    told.resend(LATER, active=active)
    (announced,) = told.pull_events()
    assert (announced.event_type, told.status) == (event, after)


@pytest.mark.parametrize(
    ("status", "change"),
    [
        (ScheduleStatus.ACTIVE, lambda s: s.activate(LATER)),
        (ScheduleStatus.INACTIVE, lambda s: s.deactivate(LATER)),
        (ScheduleStatus.INACTIVE, lambda s: s.change_interval(CrawlingInterval.days(2), LATER)),
    ],
)
def test_a_refused_change_is_neither_announced_nor_kept(status: ScheduleStatus, change) -> None:
    refused = schedule(status=status)
    with pytest.raises(DomainError):
        change(refused)
    assert refused.pull_events() == ()
    assert refused.interval == CrawlingInterval.DEFAULT


def test_missed_times_are_caught_up_once() -> None:
    late = schedule(interval=CrawlingInterval.hours(6), next_due_at=T0)
    after_outage = T0 + timedelta(days=10)
    late.triggered(after_outage)
    assert late.next_due_at == after_outage + timedelta(hours=6)
    assert late.last_triggered_at == after_outage


def plan_fails(tried: CrawlingSchedule, at: datetime) -> timedelta:
    """A crawl that comes to no plan; returns the pause until the next one."""
    tried.triggered(at)
    tried.plan_failed(at, base=60, longest=3600)
    return tried.next_due_at - at


def test_a_crawl_without_a_plan_is_due_again_after_ever_longer_pauses_until_there_is_a_plan() -> None:
    tried = schedule(interval=CrawlingInterval.days(30))
    pauses = [plan_fails(tried, LATER) // timedelta(minutes=1) for _ in range(8)]
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    tried.triggered(LATER)
    tried.plan_settled()
    assert tried.next_due_at == LATER + timedelta(days=30)
    assert plan_fails(tried, LATER) == timedelta(minutes=1)


def test_a_crawl_without_a_plan_waits_no_longer_than_its_interval() -> None:
    tried = schedule(interval=CrawlingInterval.hours(1))
    tried.triggered(T0)
    tried.plan_failed(LATER, base=7200, longest=9999)
    assert tried.next_due_at == LATER + timedelta(hours=1)


def test_a_plan_made_after_all_restarts_nothing_but_ends_the_haste() -> None:
    """The crawl that had failed was resumed: it needs no second one a minute later."""
    resumed = schedule()
    plan_fails(resumed, T0)
    resumed.plan_settled()
    assert resumed.next_due_at == T0 + timedelta(days=1)


def test_a_plan_where_none_had_failed_moves_nothing() -> None:
    planned = schedule(next_due_at=T0)
    planned.plan_settled()
    assert planned.next_due_at == T0


def test_a_longer_interval_does_not_delay_a_crawl_that_is_tried_again() -> None:
    tried = schedule()
    pause = plan_fails(tried, T0)
    tried.change_interval(CrawlingInterval.days(30), T0)
    assert tried.next_due_at == T0 + pause


def test_a_new_interval_counts_from_the_last_crawl() -> None:
    running = schedule()
    running.triggered(T0)
    running.change_interval(CrawlingInterval.hours(6), LATER)
    assert running.next_due_at == T0 + timedelta(hours=6)
    running.change_interval(CrawlingInterval.days(30), LATER)
    assert running.next_due_at == T0 + timedelta(days=30)


def test_a_new_interval_does_not_delay_the_first_crawl() -> None:
    fresh = schedule(next_due_at=T0)
    fresh.change_interval(CrawlingInterval.days(30), T0)
    assert fresh.next_due_at == T0


@pytest.mark.parametrize("seller", ["dmont", "A.b-c_9", "x" * 49])
def test_an_id_that_fits_is_part_of_the_rule_name(seller: str) -> None:
    assert rule_name(SellerId(seller)) == f"mustit-crawler-{seller}"


@pytest.mark.parametrize("seller", ["디몬트", "a b", "a/b", "x" * 50])
def test_an_id_that_does_not_fit_is_replaced_by_its_hash(seller: str) -> None:
    name = rule_name(SellerId(seller))
    assert re.fullmatch(r"mustit-crawler-[0-9a-f]{49}", name)
    assert name == rule_name(SellerId(seller))


def test_the_hash_of_a_rule_name_is_sha_256() -> None:
    assert rule_name(SellerId("a b")) == "mustit-crawler-" + A_B_SHA256[:49]


@given(st.text(min_size=1, max_size=200))
def test_every_seller_has_a_valid_rule_name(text: str) -> None:
    try:
        seller = SellerId(text)
    except DomainError:
        return
    assert re.fullmatch(r"[.\-_A-Za-z0-9]{1,64}", rule_name(seller))
