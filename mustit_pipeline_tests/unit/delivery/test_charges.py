"""Who a failed delivery is charged to: the row, the product server or our credential; and how long a row then waits."""

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from mustit_pipeline.delivery.charges import Charge, Ended, charge, pause_seconds
from mustit_pipeline.delivery.product_server import NOT_SENT, Answer, Verdict, judge
from mustit_pipeline.delivery.sql.breakers import Breaker
from mustit_pipeline.domain.states import LifeCycle, ProductEventType
from mustit_pipeline.outbox.sql.outbox import ClaimedEvent

NOW = datetime(2026, 11, 16, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HANGS = Answer(Verdict.RETRY, None, "no answer")
NO_CONNECTION = Answer(Verdict.UNREACHABLE, None, "no connection", sent=False)
BREAKS = Answer(Verdict.DROPPED, None, "connection dropped")
ROW, SERVER, CREDENTIAL, UNCHARGED = Charge.ROW, Charge.SERVER, Charge.CREDENTIAL, Charge.UNCHARGED


def said(status: int) -> Answer:
    return Answer(judge(status), status, f"HTTP {status}")


def ended(
    answer: Answer,
    *,
    row_id: UUID | None = None,
    failures: int = 0,
    failing_since: datetime | None = None,
    doubted_since: datetime | None = None,
    accompanied: bool = False,
) -> Ended:
    event = ClaimedEvent(
        row_id=row_id or uuid4(),
        lease_no=1,
        seller_id="dmont",
        item_no=1,
        version=1,
        event_type=ProductEventType.PRODUCT_CREATED,
        event_id=str(uuid4()),
        idempotency_key="dmont:1:1",
        occurred_at="2026-11-16T00:00:00.000Z",
        created_at=NOW,
        retry_count=failures,
        last_error=None,
        life_cycle=LifeCycle.CREATED,
        product_data="{}",
        changes="[]",
        delivered_version=0,
        delivered_data=None,
        tried_before=False,
        may_be_deleted=False,
        due_at=NOW,
        failing_since=failing_since,
        doubted_since=doubted_since,
        attempts=1,
        sent_before=False,
    )
    return Ended(event, answer, accompanied)


def charges(*statuses: int, known: Breaker | None = None) -> list[Charge]:
    return charge([ended(said(status)) for status in statuses], known or Breaker(), None)


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ((503,), [SERVER]),
        ((429, 502, 504), [SERVER, SERVER, SERVER]),
        ((401, 403), [CREDENTIAL, CREDENTIAL]),
        ((503, 200), [ROW, ROW]),
        ((401, 409), [ROW, ROW]),
        ((503, 422), [ROW, ROW]),
        ((200, 503), [ROW, SERVER]),
        ((200, 503, 200, 503), [ROW, ROW, ROW, SERVER]),
        ((503, 500), [SERVER, ROW]),
        ((500, 408, 425, 422, 400, 301), [ROW] * 6),
    ],
)
def test_an_answer_of_the_server_is_the_rows_own_where_another_row_is_answered_well_after_it(
    statuses: tuple[int, ...], expected: list[Charge]
) -> None:
    assert charges(*statuses) == expected


@pytest.mark.parametrize("answer", [said(503), said(401), BREAKS])
def test_a_row_that_fails_alone_while_others_are_served_is_charged(answer: Answer) -> None:
    one = ended(answer, accompanied=True)
    assert charge([one], Breaker(), None) == [ROW]
    assert charge([one, ended(said(503))], Breaker(), None) != [ROW, ROW]
    assert charge([one], Breaker(failed_rows=frozenset({uuid4()})), None) != [ROW]
    assert charge([one], Breaker(failed_rows=frozenset({one.row_id})), None) == [ROW]


@pytest.mark.parametrize(
    ("failures", "failing", "doubted", "answered", "expected"),
    [
        (1, NOW, None, NOW + MINUTE, ROW),
        (1, NOW, None, NOW - MINUTE, SERVER),
        (1, NOW, None, None, SERVER),
        (0, None, NOW, NOW + MINUTE, ROW),
        (0, None, NOW, NOW - MINUTE, SERVER),
        # A replay by hand: what was before it counts no more.
        (0, NOW, None, NOW + MINUTE, SERVER),
    ],
)
def test_a_row_that_goes_on_failing_is_charged_once_another_was_served_since(
    failures: int, failing: datetime | None, doubted: datetime | None, answered: datetime | None, expected: Charge
) -> None:
    one = ended(said(503), failures=failures, failing_since=failing, doubted_since=doubted)
    assert charge([one], Breaker(answered_at=answered), None) == [expected]


def test_without_a_connection_no_row_is_charged_although_others_are_served() -> None:
    assert charge([ended(NO_CONNECTION, accompanied=True), ended(said(200))], Breaker(), None)[0] is SERVER


@pytest.mark.parametrize(
    ("answer", "expected"),
    [(HANGS, SERVER), (said(503), SERVER), (BREAKS, SERVER), (said(401), CREDENTIAL), (said(500), ROW)],
)
def test_a_trial_asks_for_all_and_is_charged_only_for_what_it_is_told_about_itself(
    answer: Answer, expected: Charge
) -> None:
    one = ended(answer, failures=1, failing_since=NOW, accompanied=True)
    assert charge([one], Breaker(answered_at=NOW + MINUTE), one.row_id) == [expected]
    assert charge([ended(HANGS)], Breaker(), one.row_id) == [ROW]


def test_what_was_given_back_is_not_charged() -> None:
    assert charge([ended(NOT_SENT), ended(said(200))], Breaker(), None) == [UNCHARGED, ROW]


def test_five_tries_span_about_seven_minutes() -> None:
    pauses = [pause_seconds(attempt, 10, 300, 0.5) for attempt in (1, 2, 3, 4)]
    assert pauses == pytest.approx([10, 30, 90, 270])
    assert pause_seconds(1, 10, 300, 0.0) == pytest.approx(8)
    assert pause_seconds(1, 10, 300, 0.999) == pytest.approx(12, abs=0.01)
    assert pause_seconds(5000, 10, 300, 0.5) == pytest.approx(300)
