"""Every state change of tasks that SQL does, on rows in every state, against the domain's own table."""

from collections.abc import Callable
from uuid import UUID

import pytest
from sqlalchemy import Connection, text

from mustit_pipeline.crawling.recovery import release_expired
from mustit_pipeline.crawling.sql import leases, messages, tasks
from mustit_pipeline.crawling.sql.leases import LeasedTask
from mustit_pipeline.crawling.sql.messages import WaitingTask
from mustit_pipeline.crawling.sql.tasks import TaskHome
from mustit_pipeline.domain.states import TASK, ExecutionStatus, TaskStatus, TaskType
from mustit_pipeline.domain.task import CrawlerTask
from mustit_pipeline.domain.values import ExecutionId, ItemNo, SellerId, TaskId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.rows import SELLER, Ground, add_execution, add_task, ground

TYPES = [TaskType.PRODUCT_OPTION]


@pytest.fixture
def running(database: Database) -> Ground:
    return ground(database)


def one_of_each(running: Ground, *, expires: str = "1 minute") -> dict[UUID, TaskStatus]:
    with running.database.transaction() as connection:
        return {
            add_task(connection, running.home, status, number, expires=expires): status
            for number, status in enumerate(TaskStatus, 1)
        }


def expected(before: dict[UUID, TaskStatus], move: str) -> dict[UUID, str]:
    return {
        task: (TASK.target(move) if status in TASK.sources(move) else status).value for task, status in before.items()
    }


def now_stored(running: Ground) -> dict[UUID, str]:
    return running.statuses("crawler_tasks", "task_id")


def held(home: TaskHome, task_id: UUID, moves: Callable[[CrawlerTask], object] = lambda _: None) -> LeasedTask:
    """The task as a worker holds it that leased it under lease_no 1, after what it did to it."""
    task = CrawlerTask(
        id=TaskId(task_id),
        execution_id=ExecutionId(home.execution_id),
        seller_id=SellerId(SELLER),
        task_type=TaskType.PRODUCT_OPTION,
        request_url="/auction_products/1/options",
        created_at=utc_now(),
        item_no=ItemNo(1),
        status=TaskStatus.IN_PROGRESS,
    )
    moves(task)
    return LeasedTask(task, home, None, probe=False, lease_no=1)


def failed_and_retried(task: CrawlerTask) -> None:
    task.fail("no", utc_now())
    task.retry()


def test_a_claim_starts_exactly_the_states_that_may_start(running: Ground) -> None:
    before = one_of_each(running)
    with running.database.transaction() as connection:
        claimed = leases.claim(connection, running.home, TYPES, owner="me", limit=100, lease_seconds=30, max_retries=2)
    assert now_stored(running) == expected(before, "start")
    assert {lease.task.id.value for lease in claimed} == {t for t, s in before.items() if s in TASK.sources("start")}


def test_nothing_is_claimed_from_an_execution_that_is_not_running(running: Ground) -> None:
    before = one_of_each(running)
    for status in set(ExecutionStatus) - {ExecutionStatus.RUNNING}:
        with running.database.transaction() as connection:
            connection.execute(text("UPDATE crawling_schedule_executions SET status = :s"), {"s": status.value})
            assert not leases.claim(
                connection, running.home, TYPES, owner="me", limit=9, lease_seconds=9, max_retries=2
            )
    assert now_stored(running) == {task: status.value for task, status in before.items()}


def test_an_accepted_or_received_message_publishes_exactly_the_states_that_may_be_published(running: Ground) -> None:
    for accepted in (True, False):
        before = one_of_each(running)
        sent = [WaitingTask(task, SELLER, TYPES[0], 1, None, "/", 0, lease_no=1) for task in before]
        with running.database.transaction() as connection:
            messages.publish(connection, sent if accepted else [], [] if accepted else list(before))
        assert now_stored(running) == expected(before, "publish") | {
            task: TASK.target("republish").value
            for task, status in before.items()
            if status in TASK.sources("republish")
        }
        clear(running)


def test_a_message_of_an_earlier_publication_publishes_nothing(running: Ground) -> None:
    before = one_of_each(running)
    with running.database.transaction() as connection:
        messages.publish(
            connection, [WaitingTask(t, SELLER, TYPES[0], 1, None, "/", 0, lease_no=0) for t in before], []
        )
    assert now_stored(running) == {task: status.value for task, status in before.items()}


def test_a_received_message_starts_exactly_the_states_that_may_start(running: Ground) -> None:
    before = one_of_each(running)
    with running.database.transaction() as connection:
        leases.claim_these(connection, list(before), owner="me", lease_seconds=30, max_retries=2, max_releases=5)
    assert now_stored(running) == expected(before, "start")


def test_withdrawing_and_losing_a_message_lets_exactly_the_published_state_wait_under_another_number(
    running: Ground,
) -> None:
    withdrawals: list[Callable[[Connection, dict[UUID, TaskStatus]], object]] = [
        lambda connection, before: messages.withdraw(connection, [(task, 1) for task in before]),
        lambda connection, before: messages.withdraw_lost(connection, seconds=30, limit=100),
    ]
    for withdraw in withdrawals:
        before = one_of_each(running)
        with running.database.transaction() as connection:
            connection.execute(text("UPDATE crawler_tasks SET published_at = now() - interval '31 s'"))
            messages.withdraw(connection, [(task, 0) for task in before])
            messages.withdraw_lost(connection, seconds=32, limit=100)
        assert now_stored(running) == {task: status.value for task, status in before.items()}
        with running.database.transaction() as connection:
            withdraw(connection, before)
        assert now_stored(running) == expected(before, "withdraw")
        assert running.scalar("SELECT count(*) FROM crawler_tasks WHERE lease_no = 2") == len(TASK.sources("withdraw"))
        clear(running)


def test_the_postgresql_queue_adopts_exactly_what_waits_for_another_transport(running: Ground) -> None:
    before = one_of_each(running)
    with running.database.transaction() as connection:
        assert messages.adopt(connection, limit=100) == len(TASK.sources("publish"))
    assert now_stored(running) == expected(before, "publish")


def clear(running: Ground) -> None:
    with running.database.transaction() as connection:
        connection.execute(text("DELETE FROM crawler_tasks"))


@pytest.mark.parametrize(
    ("move", "acts", "target"),
    [
        ("complete", lambda task: task.complete(utc_now()), TASK.target("complete")),
        ("fail", lambda task: task.fail("no", utc_now()), TASK.target("fail")),
        ("fail", failed_and_retried, TASK.target("retry")),
        ("release", lambda task: task.release(utc_now()), TASK.target("release")),
    ],
    ids=["complete", "fail", "fail and retry", "release"],
)
def test_a_saved_outcome_reaches_only_the_states_that_the_move_allows(
    running: Ground, move: str, acts: Callable[[CrawlerTask], None], target: TaskStatus
) -> None:
    before = one_of_each(running)
    with running.database.transaction() as connection:
        ours = leases.save(connection, [(held(running.home, task, acts), 0.0) for task in before])
    allowed = {task for task, status in before.items() if status in TASK.sources(move)}
    assert ours == allowed
    assert now_stored(running) == {t: (target if t in allowed else s).value for t, s in before.items()}


def test_a_lease_is_handed_back_only_while_it_is_held_and_costs_the_task_nothing(running: Ground) -> None:
    before = one_of_each(running)
    with running.database.transaction() as connection:
        leases.hand_back(connection, [held(running.home, task) for task in before])
    assert now_stored(running) == expected(before, "release")
    assert running.scalar("SELECT sum(release_count + retry_count) FROM crawler_tasks") == 0


def test_cancelling_ends_exactly_the_open_states_with_their_reason_and_counts_them(running: Ground) -> None:
    before = one_of_each(running)
    with running.database.transaction() as connection:
        tasks.cancel_open(connection, running.home)
    assert now_stored(running) == expected(before, "cancel")
    ended = running.scalar("SELECT count(*) FROM crawler_tasks WHERE error_code = 'CANCELLED'")
    assert ended == len(TASK.sources("cancel"))
    query = "SELECT total_tasks - completed_tasks - failed_tasks FROM crawling_schedule_executions"
    assert running.scalar(query) == 0


def test_expired_leases_are_released_from_exactly_the_leased_state(
    running: Ground, make_settings: MakeSettings
) -> None:
    before = one_of_each(running, expires="-1 second")
    assert release_expired(running.database, make_settings(), utc_now()) == len(TASK.sources("release"))
    assert now_stored(running) == expected(before, "release")


def test_a_lease_that_has_not_expired_is_left_alone(running: Ground, make_settings: MakeSettings) -> None:
    before = one_of_each(running)
    assert release_expired(running.database, make_settings(), utc_now()) == 0
    assert now_stored(running) == {task: status.value for task, status in before.items()}


def test_the_fifth_release_in_a_row_fails_the_task_and_counts_it(running: Ground, make_settings: MakeSettings) -> None:
    with running.database.transaction() as connection:
        add_task(connection, running.home, TaskStatus.IN_PROGRESS, 1, expires="-1 second")
    lapse = text("""
        UPDATE crawler_tasks SET status = 'IN_PROGRESS', lease_owner = 'x', lease_expires_at = now() - interval '1 s'
        WHERE status = 'PUBLISHED'
    """)
    seen: list[tuple[str, int]] = []
    for _ in range(5):
        release_expired(running.database, make_settings(), utc_now())
        seen.append(
            (next(iter(now_stored(running).values())), running.scalar("SELECT release_count FROM crawler_tasks"))
        )
        with running.database.transaction() as connection:
            connection.execute(lapse)
    assert seen == [("PUBLISHED", 1), ("PUBLISHED", 2), ("PUBLISHED", 3), ("PUBLISHED", 4), ("FAILED", 0)]
    assert running.scalar("SELECT error_code FROM crawler_tasks") == "RELEASED_TOO_OFTEN"
    assert running.scalar("SELECT failed_tasks FROM crawling_schedule_executions") == 1


def test_how_many_workers_a_task_may_lose_is_a_setting(running: Ground, make_settings: MakeSettings) -> None:
    with running.database.transaction() as connection:
        add_task(connection, running.home, TaskStatus.IN_PROGRESS, 1, expires="-1 second")
        add_task(connection, running.home, TaskStatus.PUBLISHED, 2)
    release_expired(running.database, make_settings(task_max_releases=1), utc_now())
    assert running.scalar("SELECT error_code FROM crawler_tasks WHERE status = 'FAILED'") == "RELEASED_TOO_OFTEN"
    with running.database.transaction() as connection:
        [lease] = leases.claim(
            connection, running.home, TYPES, owner="me", limit=9, lease_seconds=9, max_retries=2, max_releases=1
        )
    assert not lease.task.can_release()


def test_a_heartbeat_keeps_only_leases_that_still_are_ours(running: Ground) -> None:
    before = one_of_each(running, expires="-1 second")
    taken = [held(running.home, task) for task in before]
    stale = [LeasedTask(lease.task, lease.home, None, probe=False, lease_no=0) for lease in taken]
    with running.database.transaction() as connection:
        assert leases.heartbeat(connection, stale, 30) == set()
        kept = leases.heartbeat(connection, taken, 30)
    assert kept == {task for task, status in before.items() if status in TASK.sources("release")}
    assert running.scalar("SELECT lease_expires_at > now() FROM crawler_tasks WHERE status = 'IN_PROGRESS'") is True


def test_a_late_writer_with_an_older_lease_writes_nothing(running: Ground) -> None:
    with running.database.transaction() as connection:
        task_id = add_task(connection, running.home, TaskStatus.IN_PROGRESS, 1)
        connection.execute(text("UPDATE crawler_tasks SET lease_no = 2"))
        late = held(running.home, task_id, lambda task: task.complete(utc_now()))
        assert leases.save(connection, [(late, 0.0)]) == set()
        leases.hand_back(connection, [late])
    assert now_stored(running) == {task_id: "IN_PROGRESS"}
    assert running.scalar("SELECT completed_tasks FROM crawling_schedule_executions") == 0


def test_one_execution_is_released_and_cancelled_without_touching_another(
    running: Ground, make_settings: MakeSettings
) -> None:
    with running.database.transaction() as connection:
        other = TaskHome(add_execution(connection, ExecutionStatus.FAILED), SELLER, running.home.task_month)
        theirs = add_task(connection, other, TaskStatus.IN_PROGRESS, 1, expires="-1 second")
        add_task(connection, running.home, TaskStatus.IN_PROGRESS, 1, expires="-1 second")
    settings = make_settings()
    assert release_expired(running.database, settings, utc_now(), execution_id=running.home.execution_id) == 1
    with running.database.transaction() as connection:
        tasks.cancel_open(connection, running.home)
    assert now_stored(running)[theirs] == "IN_PROGRESS"
