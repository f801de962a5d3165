"""What SQS has parked: looked at without harm, sent again or dropped by an operator, and told of by an alert."""

from functools import partial

import pytest
from sqlalchemy import text

from mustit_pipeline.aws.setup import make_queues
from mustit_pipeline.cli.findings import Health, watched
from mustit_pipeline.crawling import dead_letters, steering
from mustit_pipeline.crawling.results import ResultStore, TaskResult
from mustit_pipeline.crawling.sql import executions
from mustit_pipeline.crawling.sql.executions import StoredExecution
from mustit_pipeline.domain.errors import Conflict, NotFound
from mustit_pipeline.domain.states import ExecutionStatus
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.marketplace.endpoints import Endpoints
from mustit_pipeline.monitoring.alerting import observe
from mustit_pipeline.monitoring.exposition import Exposition
from mustit_pipeline.sellers import registry
from mustit_pipeline.settings import SettingsError
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.contract.task_queues import Queues, fetched, refused
from mustit_pipeline_tests.integration.aws.asking import Ask, asking
from mustit_pipeline_tests.integration.crawling.child import wait_until
from mustit_pipeline_tests.strict_aws import Fault, StrictAws

TASKS, DEAD = "mustit-crawler-tasks.fifo", "mustit-crawler-tasks-dlq.fifo"


@pytest.fixture
def queues(database: Database, make_settings: MakeSettings, strict: StrictAws) -> Queues:
    # One receive is enough for a message to be parked.
    made = partial(make_settings, task_transport="sqs", aws_endpoint_url=strict.endpoint, task_max_retries=0)
    make_queues(made())
    return Queues("sqs", database, made)


@pytest.fixture
def patient(queues: Queues) -> Queues:
    """The same, but SQS parks a message only after three receives: what lies there before that was sent."""
    make_queues(queues.make_settings(task_max_retries=2))
    return queues


@pytest.fixture
def ask(queues: Queues, monkeypatch: pytest.MonkeyPatch) -> Ask:
    return asking(queues.make_settings(), monkeypatch)


def park(queues: Queues, strict: StrictAws, tasks: int) -> None:
    """So many tasks whose worker died, and whose messages SQS has parked."""
    stored = queues.opened("s", new=tasks)
    assert len(queues.queue(stored, lease_seconds=0.1).claim(tasks)) == tasks
    other = queues.queue(stored)
    wait_until(lambda: other.claim(tasks) or strict.left("mustit-crawler-tasks-dlq.fifo") == tasks)


def test_dead_letters_are_listed_shown_redriven_and_dropped(queues: Queues, ask: Ask, strict: StrictAws) -> None:
    park(queues, strict, 3)
    listed = ask("dlq", "list")
    assert [(one["sellerId"], one["taskStatus"]) for one in listed] == [("s", "IN_PROGRESS")] * 3
    ids = [one["messageId"] for one in listed]
    strict.counts_late = True
    assert ask("dlq", "show", ids[0][:13])["body"] == listed[0]["body"]
    # Looking changes nothing.
    assert [one["messageId"] for one in ask("dlq", "list", "--limit", "2")] == ids[:2]

    assert ask("dlq", "redrive", ids[0]) == {"redriven": [ids[0]], "left": {}}
    assert queues.states() == {"PUBLISHED": 2, "WAITING": 1}
    assert ask("dlq", "drop", ids[1]) == {"dropped": ids[1]}
    assert queues.states() == {"PUBLISHED": 2, "WAITING": 1}
    assert ask("dlq", "redrive", "--all") == {"redriven": [ids[2]], "left": {}}
    assert ask("dlq", "list") == []

    with queues.database.reading() as connection:
        entries = connection.execute(text("SELECT action, target FROM audit_log ORDER BY id")).all()
    assert [tuple(one) for one in entries] == [
        ("dlq.redrive", f"dead letters {ids[0]}"),
        ("dlq.drop", f"dead letter {ids[1]}"),
        ("dlq.redrive", "dead letters (all)"),
    ]


def test_a_redriven_task_is_done_by_the_next_worker(queues: Queues, ask: Ask, strict: StrictAws) -> None:
    park(queues, strict, 2)
    ask("dlq", "redrive", "--all")

    queue = queues.queue(queues.opened("other"))
    claimed = queue.claim(2)

    assert queues.store().store([fetched(lease) for lease in claimed]).completed == 2


def fail_for_good(queues: Queues, stored: StoredExecution, *, settled: bool = True) -> None:
    """Every task of a crawl fails in its last attempt; not settled, its worker dies before it tells SQS."""
    failed: list[TaskResult] = []
    for lease in queues.queue(stored, lease_seconds=2.0).claim(10):
        lease.task.fail("the marketplace answered \x01 500", utc_now(), code="EXTERNAL_SERVER_ERROR")
        failed.append(TaskResult(lease))
    settings = queues.make_settings()
    unsettled = ResultStore(queues.database, settings, Endpoints.from_settings(settings))
    (queues.store() if settled else unsettled).store(failed)


@pytest.mark.parametrize("settled", [True, False], ids=["at once", "by the next worker"])
def test_a_task_without_an_attempt_left_leaves_its_message_with_the_reason(
    patient: Queues, ask: Ask, strict: StrictAws, settled: bool
) -> None:
    stored = patient.opened("s", new=2)
    fail_for_good(patient, stored, settled=settled)
    other = patient.queue(stored)
    wait_until(lambda: other.claim(2) or strict.left(TASKS) == 0)

    assert patient.states() == {"FAILED": 2}
    listed = ask("dlq", "list")
    assert [(one["taskStatus"], one["reason"]) for one in listed] == [
        ("FAILED", "the marketplace answered \ufffd 500")
    ] * 2
    assert dead_letters.depths(patient.make_settings()) == dead_letters.QueueDepths(visible=0, in_flight=0, dead=2)


@pytest.mark.parametrize("fault", [Fault.ERROR, Fault.LOST, Fault.HALF])
def test_a_message_is_deleted_only_after_it_is_parked_and_is_parked_once(
    patient: Queues, strict: StrictAws, fault: Fault
) -> None:
    stored = patient.opened("s", new=2)
    # The messages of the tasks; then botocore tries twice to send the letters.
    strict.go_wrong("SendMessageBatch", Fault.NONE, fault, fault)
    fail_for_good(patient, stored)
    assert strict.left(TASKS) > 0

    other = patient.queue(stored)
    wait_until(lambda: other.claim(2) or strict.left(TASKS) == 0)

    assert strict.left(DEAD) == 2


def test_a_permanent_failure_and_a_cancelled_task_leave_no_letter(patient: Queues, strict: StrictAws) -> None:
    made = Queues("sqs", patient.database, partial(patient.make_settings, task_max_retries=2))
    queue = made.queue(made.opened("s", new=1))
    [lease] = queue.claim(1)
    made.store().store([refused(lease, "[1]")])
    other = made.opened("other", new=1)
    queue = made.queue(other, lease_seconds=0.4)
    queue.claim(1)
    steering.cancel(made.database, other.id, utc_now())
    wait_until(lambda: queue.claim(1) or strict.left(TASKS) == 0)

    assert made.states() == {"FAILED": 2}
    assert strict.left(DEAD) == 0


def test_a_failed_call_is_planned_anew_in_another_crawl_of_its_seller(
    patient: Queues, ask: Ask, strict: StrictAws
) -> None:
    stored = patient.opened("s", new=2)
    fail_for_good(patient, stored)
    ids = [one["messageId"] for one in ask("dlq", "list")]
    assert ask("dlq", "redrive", "--all") == {"redriven": [], "left": dict.fromkeys(ids, "LATER")}

    with patient.database.transaction() as connection:
        connection.execute(text("UPDATE crawling_schedule_executions SET status = 'COMPLETED', ended_at = now()"))
    assert sorted(ask("dlq", "redrive", "--all")["redriven"]) == sorted(ids)
    assert patient.states() == {"FAILED": 2, "WAITING": 2}
    with patient.database.reading() as connection:
        opened = executions.find_open(connection, SellerId("s"))
    assert opened is not None
    assert (opened.triggered_by, opened.status, opened.is_swept) == ("dead letters", ExecutionStatus.RUNNING, True)

    claimed = patient.queue(opened).claim(2)
    assert patient.store().store([fetched(lease) for lease in claimed]).completed == 2
    assert (strict.left(DEAD), strict.left(TASKS)) == (0, 0)


def test_a_failed_page_is_asked_for_by_a_new_sweep_and_nothing_of_an_inactive_seller_is(
    patient: Queues, ask: Ask, strict: StrictAws
) -> None:
    stored = patient.opened("s", pages=1)
    fail_for_good(patient, stored)
    [letter] = ask("dlq", "list")
    steering.deactivate_seller(patient.database, SellerId("s"), utc_now())
    assert ask("dlq", "redrive", "--all") == {"redriven": [], "left": {letter["messageId"]: "INACTIVE"}}

    registry.activate(patient.database, SellerId("s"), utc_now())
    assert ask("dlq", "redrive", letter["messageId"])["redriven"] == [letter["messageId"]]
    with patient.database.reading() as connection:
        opened = executions.find_open(connection, SellerId("s"))
    assert opened is not None
    assert (opened.status, opened.is_swept) == (ExecutionStatus.PENDING, False)


def test_a_letter_whose_task_has_ended_stays_until_it_is_dropped(queues: Queues, ask: Ask, strict: StrictAws) -> None:
    park(queues, strict, 2)
    with queues.database.transaction() as connection:
        ended = "status = 'COMPLETED', lease_owner = NULL, lease_expires_at = NULL"
        connection.execute(text(f"UPDATE crawler_tasks SET {ended} WHERE item_no = 1"))
        connection.execute(text("DELETE FROM crawler_tasks WHERE item_no = 2"))
    listed = {one["taskStatus"]: one["messageId"] for one in ask("dlq", "list")}
    assert listed.keys() == {"COMPLETED", None}

    with pytest.raises(Conflict, match="has succeeded"):
        ask("dlq", "redrive", listed["COMPLETED"])
    with pytest.raises(Conflict, match="no task of this database"):
        ask("dlq", "redrive", listed[None])
    assert ask("dlq", "redrive", "--all") == {
        "redriven": [],
        "left": {listed["COMPLETED"]: "ENDED", listed[None]: "UNKNOWN"},
    }
    with pytest.raises(NotFound):
        ask("dlq", "show", "zzz")
    ask("dlq", "drop", listed[None])
    assert len(ask("dlq", "list")) == 1


def test_an_alert_tells_of_dead_letters_and_ends_when_they_are_gone_not_while_sqs_is_silent(
    queues: Queues, ask: Ask, strict: StrictAws
) -> None:
    settings = queues.make_settings(alert_calm_seconds=0)
    park(queues, strict, 1)

    def alerts() -> list[str]:
        observe(queues.database, settings, utc_now())
        with queues.database.reading() as connection:
            query = text("SELECT title FROM alerts WHERE kind = 'DEAD_LETTERS' AND ended_at IS NULL")
            return list(connection.execute(query).scalars())

    assert alerts() == ["1 messages of tasks are parked"]
    assert dead_letters.depths(settings) == dead_letters.QueueDepths(visible=0, in_flight=0, dead=1)
    metrics = Exposition(queues.database, settings)
    assert "\nmustit_dead_letters 1.0\n" in metrics.text("")[0].decode()
    metrics.close()
    said = [one for one in watched(settings, queues.database) if one.subject == "task queue"]
    assert [(one.health, one.detail) for one in said] == [(Health.WARNING, "1 messages are parked")]
    strict.go_wrong("GetQueueAttributes", *[Fault.ERROR] * 2)
    assert len(alerts()) == 1
    strict.go_wrong("GetQueueAttributes", *[Fault.ERROR] * 2)
    metrics = Exposition(queues.database, settings)
    told = metrics.text("")[0].decode()
    metrics.close()
    assert "\nmustit_task_queue_up 0.0\n" in told
    assert "mustit_dead_letters" not in told
    ask("dlq", "redrive", "--all")
    assert alerts() == []


def test_without_sqs_there_is_nothing_to_look_at(queues: Queues, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    assert dead_letters.depths(queues.make_settings(task_transport="postgres")) is None
    monkeypatch.setenv("MUSTIT_TASK_TRANSPORT", "postgres")
    with pytest.raises(SettingsError, match="MUSTIT_TASK_TRANSPORT"):
        ask("dlq", "list")
