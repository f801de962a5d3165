"""Outboxes: five failures, event types and payloads."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustit_pipeline.domain.errors import InvariantViolated, ValidationFailed
from mustit_pipeline.domain.states import OutboxStatus, ProductEventType
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline_tests.unit.domain.builders import LATER, product_outbox, scheduler_outbox

BOTH = pytest.mark.parametrize("build", [product_outbox, scheduler_outbox])
Build = Callable[..., Any]


def sent_again(row: Any) -> Any:
    """The row as its next sender claims it; the claim itself is SQL."""
    return replace(row, status=OutboxStatus.SENDING)


@BOTH
def test_the_fifth_failure_is_final(build: Build) -> None:
    row = build()
    for failure in (1, 2, 3, 4, 5):
        row = sent_again(row)
        row.fail("503")
        assert row.retry_count == failure
        assert row.can_retry() is (failure < 5)
        if row.can_retry():
            row.retry()
    with pytest.raises(InvariantViolated) as refused:
        row.retry()
    assert refused.value.code == "INVARIANT_OUTBOX_RETRIES_EXCEEDED"
    assert refused.value.korean == "최대 재시도 횟수(5)를 초과했습니다"
    assert (row.status, row.last_error) == (OutboxStatus.FAILED, "503")


@given(st.integers(0, 50), st.sampled_from([product_outbox, scheduler_outbox]))
def test_a_row_is_sent_as_often_as_its_limit_says_and_at_least_once(limit: int, build: Build) -> None:
    row = build(max_retries=limit)
    sends = 0
    while row.status is OutboxStatus.WAITING:
        row = sent_again(row)
        row.fail("503")
        sends += 1
        if row.can_retry():
            row.retry()
    assert sends == max(1, limit)


@BOTH
@pytest.mark.parametrize("status", OutboxStatus)
def test_only_a_failed_row_can_retry(build: Build, status: OutboxStatus) -> None:
    assert build(status=status).can_retry() is (status is OutboxStatus.FAILED)


@BOTH
def test_a_permanent_failure_waits_for_a_person(build: Build) -> None:
    row = build(status=OutboxStatus.SENDING)
    row.fail("400", permanent=True)
    assert not row.can_retry()
    with pytest.raises(InvariantViolated) as refused:
        row.retry()
    assert refused.value.code == "INVARIANT_OUTBOX_PERMANENT"
    assert row.status is OutboxStatus.FAILED


@BOTH
def test_an_ownerless_row_goes_back_without_spending_a_try(build: Build) -> None:
    row = build(status=OutboxStatus.SENDING, retry_count=2)
    row.release()
    assert (row.status, row.retry_count) == (OutboxStatus.WAITING, 2)


@BOTH
def test_a_completed_row_knows_when_and_forgets_its_error(build: Build) -> None:
    row = build(status=OutboxStatus.SENDING, last_error="503")
    row.complete(LATER)
    assert (row.completed_at, row.last_error) == (LATER, None)


@pytest.mark.parametrize(
    ("seller", "key"),
    [
        ("dmont", "dmont:118005032:2"),
        ("a b/c:d", "a%20b%2Fc%3Ad:118005032:2"),
        ("디", "%EB%94%94:118005032:2"),
    ],
)
def test_the_idempotency_key_is_made_of_seller_item_and_version(seller: str, key: str) -> None:
    assert product_outbox(seller_id=SellerId(seller)).idempotency_key == key


@pytest.mark.parametrize("status", OutboxStatus)
@pytest.mark.parametrize("before", ProductEventType)
@pytest.mark.parametrize("after", ProductEventType)
def test_a_row_being_sent_may_go_out_as_created_or_updated_but_a_deletion_stays_one(
    status: OutboxStatus, before: ProductEventType, after: ProductEventType
) -> None:
    row = product_outbox(status=status, event_type=before)
    deletions = [before, after].count(ProductEventType.PRODUCT_DELETED)
    if status is OutboxStatus.SENDING and deletions != 1:
        row.send_as(after)
        assert row.event_type is after
    else:
        with pytest.raises(InvariantViolated) as refused:
            row.send_as(after)
        assert refused.value.code == "INVARIANT_OUTBOX_EVENT_TYPE"
        assert row.event_type is before


@pytest.mark.parametrize("payload", ["{}", '{"ruleName": "mustit-crawler-dmont"}', "[]", "null", "1.5"])
def test_a_json_payload_is_accepted(payload: str) -> None:
    assert scheduler_outbox(payload=payload).payload == payload


@pytest.mark.parametrize("payload", ["", "{", "{'a': 1}", "ruleName", '{"a": NaN}', "[Infinity]", "{} {}"])
def test_a_payload_that_is_not_json_is_refused(payload: str) -> None:
    with pytest.raises(ValidationFailed) as refused:
        scheduler_outbox(payload=payload)
    assert refused.value.code == "VALIDATION_OUTBOX_PAYLOAD"
    assert refused.value.korean == "Payload는 유효한 JSON 형식이어야 합니다"
