"""What an answer is about: a row that fails alone is charged, an outage and a refused token cost no row anything."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from mustit_pipeline.delivery.charges import Ended
from mustit_pipeline.delivery.endings import Endings, RelayReport
from mustit_pipeline.delivery.product_server import Answer, Verdict
from mustit_pipeline.delivery.relay import relay
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.monitoring.alerting import observe
from mustit_pipeline.outbox.sql import outbox
from mustit_pipeline.outbox.sql.outbox import ClaimedEvent
from mustit_pipeline.settings import Settings
from mustit_pipeline.simulator.control import ProductServerControl
from mustit_pipeline.simulator.process import start_product_server
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.catalog.shelf import Shelf

Effects = Callable[[], list[tuple[int, int, str]]]
LET_A_TRIAL_BE_DUE = "UPDATE circuit_breakers SET open_until = now() - interval '1 second'"
LET_ALL_BE_DUE = "UPDATE product_outbox SET next_attempt_at = now() - interval '1 second' WHERE status = 'WAITING'"
ROWS = 20
# Five in a row stop the sending, and so many are under way by then.
MOST_CALLS = 5 + 20
TOKEN = "the-token-of-today"


def sends(server: ProductServerControl) -> int:
    return server.audit()["requests"].get("events", 0)


def states(shelf: Shelf) -> set[tuple[str, int]]:
    return {(row["status"], row["retry_count"]) for row in shelf.rows("SELECT status, retry_count FROM product_outbox")}


def stopped_for(shelf: Shelf) -> float:
    (row,) = shelf.rows("SELECT extract(epoch FROM open_until - now()) AS seconds FROM circuit_breakers")
    return -1.0 if row["seconds"] is None else float(row["seconds"])


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_server_that_answers_so_to_everything_costs_few_calls_and_no_try(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects, status: int
) -> None:
    """Twenty seconds of 503 made every due event FAILED, after five calls for each."""
    narrow = settings.model_copy(update={"relay_concurrent_sends": 2})
    server.fault("status", "events", status=status, retryAfter=None)
    shelf.crawl(*range(1, ROWS + 1))

    for _ in range(5):
        relay(shelf.database, narrow)
        shelf.change(LET_ALL_BE_DUE)
    calls = sends(server)
    assert calls <= 5 + 2
    assert states(shelf) == {("WAITING", 0)}
    assert 0 < stopped_for(shelf) <= 60

    for trials in (1, 2):
        shelf.change(LET_A_TRIAL_BE_DUE)
        relay(shelf.database, settings)
        shelf.change(LET_ALL_BE_DUE)
        assert sends(server) == calls + trials
    assert states(shelf) == {("WAITING", 0)}

    server.clear_faults()
    shelf.change(LET_A_TRIAL_BE_DUE)
    report = relay(shelf.database, settings)
    assert (report.sent, report.failed, report.waiting) == (ROWS, 0, 0)
    assert len(effects()) == ROWS


@pytest.mark.parametrize("status", [401, 503])
def test_an_outage_that_answers_uses_up_the_patience_of_a_relay(
    shelf: Shelf, settings: Settings, server: ProductServerControl, status: int
) -> None:
    """Each trial's answer renewed it: `mustit relay` would have gone on for as long as the outage."""
    pauses = {"product_server_credential_seconds": 0.1, "product_server_breaker_seconds": 0.1}
    short = settings.model_copy(update={"relay_run_seconds": 6.0, **pauses})
    server.fault("status", "events", status=status, retryAfter=None)
    shelf.crawl(*range(1, ROWS + 1))

    relay(shelf.database, short, patience_seconds=0.5)

    assert sends(server) <= MOST_CALLS + 6


def http_date(away: timedelta) -> str:
    return format_datetime(datetime.now(UTC) + away, usegmt=True)


@pytest.mark.parametrize(
    ("asked", "least", "most"),
    [
        ("600", 590, 600),
        ("999999999999", 3590, 3600),
        ("99999999999999999999999999999999", 3590, 3600),
        (timedelta(seconds=900), 800, 900),
        (timedelta(seconds=-900), 1, 30),
        ("-5", 1, 30),
        ("0", 1, 30),
        ("soon", 1, 30),
    ],
    ids=["seconds", "long", "huge", "date", "past date", "negative", "zero", "garbage"],
)
def test_with_the_breaker_open_everybody_waits_as_long_as_the_server_asks_and_at_most_an_hour(
    shelf: Shelf, settings: Settings, server: ProductServerControl, asked: str | timedelta, least: float, most: float
) -> None:
    header = http_date(asked) if isinstance(asked, timedelta) else asked
    server.fault("status", "events", status=429, retryAfter=header)
    shelf.crawl(*range(1, ROWS + 1))

    relay(shelf.database, settings)

    assert least <= stopped_for(shelf) <= most
    assert states(shelf) == {("WAITING", 0)}
    calls = sends(server)
    shelf.crawl(*range(1, ROWS + 1), 100)
    relay(shelf.database, settings)
    assert sends(server) == calls


def test_a_row_that_is_asked_alone_to_come_back_later_does(
    shelf: Shelf, settings: Settings, server: ProductServerControl
) -> None:
    server.fault("status", "events", status=503, itemNo=1, retryAfter="120")
    shelf.crawl(*range(1, ROWS + 1))

    report = relay(shelf.database, settings)

    assert (report.sent, report.waiting) == (ROWS - 1, 1)
    (row,) = shelf.rows(
        "SELECT retry_count, extract(epoch FROM next_attempt_at - now()) AS due FROM product_outbox WHERE item_no = 1"
    )
    assert row["retry_count"] == 1
    assert 115 < row["due"] <= 120
    assert stopped_for(shelf) == -1


@pytest.mark.parametrize("status", [503, 429])
def test_one_row_of_many_that_is_always_answered_so_ends_failed_after_five_tries(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects, status: int
) -> None:
    server.fault("status", "events", status=status, itemNo=7, retryAfter=None)
    shelf.crawl(*range(1, 101))

    report = relay(shelf.database, settings, patience_seconds=5)

    assert (report.sent, report.failed, report.waiting) == (99, 1, 0)
    (row,) = shelf.outbox(7)
    assert (row["status"], row["attempts"], row["retry_count"], row["last_status"]) == ("FAILED", 5, 5, status)
    assert stopped_for(shelf) == -1
    assert len(effects()) == 99


def test_a_row_whose_failure_is_written_with_the_good_answers_after_it_is_charged_again_when_it_fails_alone(
    shelf: Shelf, settings: Settings
) -> None:
    """Both were written at one moment, so that its next failures were taken for the server's and stopped all calls."""
    failing = Answer(Verdict.OVERLOADED, 429, None)
    shelf.crawl(1, 2)
    endings = Endings(shelf.database, settings, report=RelayReport(), progress=None)
    one, other = _claimed(shelf)

    endings.write([Ended(one, failing), Ended(other, Answer(Verdict.DONE, 200, None))], None)
    for _ in range(4):
        shelf.change(LET_ALL_BE_DUE)
        (again,) = _claimed(shelf)
        endings.write([Ended(again, failing)], None)

    assert {row["status"] for row in shelf.outbox(one.item_no)} == {"FAILED"}
    assert stopped_for(shelf) == -1


def _claimed(shelf: Shelf) -> list[ClaimedEvent]:
    with shelf.database.transaction() as connection:
        outbox.lock_claims(connection)
        return outbox.claim(connection, owner="us", limit=10, lease_seconds=60)[0]


def test_a_row_that_failed_beside_good_ones_loses_no_further_try_to_an_outage_that_follows(
    shelf: Shelf, settings: Settings, server: ProductServerControl
) -> None:
    for item in (1, 2, 3):
        server.fault("status", "events", status=503, itemNo=item, retryAfter=None)
    shelf.crawl(*range(1, ROWS + 1))
    relay(shelf.database, settings)
    assert states(shelf) == {("WAITING", 1), ("COMPLETED", 0)}
    server.fault("status", "events", status=503, retryAfter=None)

    for _ in range(20):
        shelf.change(LET_ALL_BE_DUE)
        relay(shelf.database, settings)

    assert states(shelf) == {("WAITING", 1), ("COMPLETED", 0)}
    server.clear_faults()
    shelf.change(LET_A_TRIAL_BE_DUE)
    assert relay(shelf.database, settings, patience_seconds=5).sent == 3


def test_the_pauses_of_a_failing_row_grow_threefold_until_its_fifth_failure(
    shelf: Shelf, make_settings: MakeSettings, settings: Settings, server: ProductServerControl
) -> None:
    usual = settings.model_copy(update={"outbox_retry_base_seconds": 10.0})
    server.fault("status", "events", status=500, itemNo=1)
    shelf.crawl(1)

    for pause in (10, 30, 90, 270):
        relay(shelf.database, usual)
        (row,) = shelf.rows("SELECT extract(epoch FROM next_attempt_at - now()) AS due FROM product_outbox")
        assert 0.75 * pause < row["due"] <= 1.2 * pause
        shelf.change(LET_ALL_BE_DUE)
    assert relay(shelf.database, usual).failed == 1


def test_a_trial_that_hangs_burns_no_try_and_leaves_the_breaker_open(
    shelf: Shelf, settings: Settings, server: ProductServerControl
) -> None:
    impatient = settings.model_copy(update={"product_server_read_seconds": 0.2})
    server.fault("status", "events", status=503, retryAfter=None)
    shelf.crawl(*range(1, ROWS + 1))
    relay(shelf.database, impatient)
    server.clear_faults()
    server.fault("timeout_before", "events", seconds=30)

    shelf.change(LET_ALL_BE_DUE)
    shelf.change(LET_A_TRIAL_BE_DUE)
    calls = sends(server)
    relay(shelf.database, impatient)

    assert sends(server) == calls + 1
    assert states(shelf) == {("WAITING", 0)}
    assert stopped_for(shelf) > 0


def alerts(shelf: Shelf, settings: Settings) -> set[tuple[str, bool]]:
    observe(shelf.database, settings.model_copy(update={"alert_calm_seconds": 0}), utc_now())
    return {(row["kind"], row["over"]) for row in shelf.rows("SELECT kind, ended_at IS NOT NULL AS over FROM alerts")}


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_token_stops_the_relay_and_fails_no_row(
    shelf: Shelf, settings: Settings, server: ProductServerControl, effects: Effects, status: int
) -> None:
    """An expired token made the whole backlog FAILED at once."""
    server.fault("status", "events", status=status)
    shelf.crawl(*range(1, ROWS + 1))

    report = relay(shelf.database, settings)

    assert (report.sent, report.failed, report.waiting) == (0, 0, ROWS)
    assert states(shelf) == {("WAITING", 0)}
    assert 240 < stopped_for(shelf) <= 300
    assert alerts(shelf, settings) == {("CREDENTIAL_REFUSED", False)}
    calls = sends(server)
    assert calls <= MOST_CALLS
    relay(shelf.database, settings)
    assert sends(server) == calls

    shelf.change(LET_A_TRIAL_BE_DUE)
    relay(shelf.database, settings)
    assert sends(server) == calls + 1
    assert 240 < stopped_for(shelf) <= 300

    server.clear_faults()
    shelf.change(LET_A_TRIAL_BE_DUE)
    assert relay(shelf.database, settings).sent == ROWS
    assert len(effects()) == ROWS
    assert alerts(shelf, settings) == {("CREDENTIAL_REFUSED", True)}


def test_a_token_that_changes_is_tried_at_once_by_one_row_and_is_stored_nowhere(
    shelf: Shelf, make_settings: MakeSettings, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with (
        start_product_server(state=tmp_path_factory.mktemp("guarded"), token=TOKEN) as running,
        ProductServerControl(running.url) as guarded,
    ):
        expired, wrong, right = (
            make_settings(product_server_url=running.url, product_server_token=token)
            for token in ("the-token-of-yesterday", "a-token-with-a-typo", TOKEN)
        )
        shelf.crawl(*range(1, ROWS + 1))
        relay(shelf.database, expired)
        calls = sends(guarded)

        for _ in range(2):
            relay(shelf.database, wrong)
            assert sends(guarded) == calls + 1
        assert states(shelf) == {("WAITING", 0)}
        stored = str(shelf.rows("SELECT * FROM circuit_breakers")) + str(shelf.rows("SELECT * FROM product_outbox"))
        assert "token" not in stored.replace("the bearer token is missing", "")

        report = relay(shelf.database, right)

        assert (report.sent, report.failed, report.waiting) == (ROWS, 0, 0)


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("at_once", [1, 20])
@pytest.mark.parametrize("item", [1, 50])
def test_one_row_that_is_refused_among_others_fails_at_once_and_stops_no_other(
    shelf: Shelf, settings: Settings, server: ProductServerControl, status: int, at_once: int, item: int
) -> None:
    server.fault("status", "events", status=status, itemNo=item)
    shelf.crawl(*range(1, 101))

    report = relay(shelf.database, settings.model_copy(update={"relay_concurrent_sends": at_once}))

    assert (report.sent, report.failed, report.waiting) == (99, 1, 0)
    (row,) = shelf.outbox(item)
    assert (row["status"], row["attempts"], row["last_status"]) == ("FAILED", 1, status)
    assert stopped_for(shelf) == -1


def test_a_row_that_was_refused_last_of_all_fails_once_another_is_served(
    shelf: Shelf, settings: Settings, server: ProductServerControl
) -> None:
    """Alone it looks like a refused token; the next event shows that it is not."""
    server.fault("status", "events", status=403, itemNo=1)
    shelf.crawl(1)
    relay(shelf.database, settings)
    assert states(shelf) == {("WAITING", 0)}
    shelf.crawl(1, 2)

    shelf.change(LET_A_TRIAL_BE_DUE)
    report = relay(shelf.database, settings)

    assert (report.sent, report.failed, report.waiting) == (1, 1, 0)
    assert shelf.outbox(1)[0]["status"] == "FAILED"
