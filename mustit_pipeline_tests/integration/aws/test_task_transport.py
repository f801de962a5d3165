"""Crawl tasks through SQS: whatever SQS does to messages, each task is worked on once and none is lost."""

import asyncio
import json
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from uuid import UUID, uuid4

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import OperationalError

from mustit_pipeline.aws import clients
from mustit_pipeline.aws.clients import AwsRefused
from mustit_pipeline.aws.fifo_queue import FifoQueue
from mustit_pipeline.aws.setup import make_queues
from mustit_pipeline.crawling import steering
from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.queue import TaskQueue, shared_queue
from mustit_pipeline.crawling.recovery import recover_tasks
from mustit_pipeline.crawling.result_buffer import WorkReport
from mustit_pipeline.crawling.results import ResultStore
from mustit_pipeline.crawling.sql.messages import WaitingTask
from mustit_pipeline.crawling.sqs_queue import SqsExecutionQueue
from mustit_pipeline.crawling.standalone_worker import serve
from mustit_pipeline.crawling.steering import open_or_join
from mustit_pipeline.crawling.task_messages import message_of
from mustit_pipeline.domain.states import ExecutionKind, ExecutionStatus, TaskType
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.marketplace.endpoints import Endpoints
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.contract.task_queues import Queues, fetched, ids
from mustit_pipeline_tests.integration.crawling.checks import check_outcomes, number
from mustit_pipeline_tests.integration.crawling.child import wait_until
from mustit_pipeline_tests.integration.crawls import crawl, register
from mustit_pipeline_tests.strict_aws import Fault, StrictAws

TASKS, DEAD = "mustit-crawler-tasks.fifo", "mustit-crawler-tasks-dlq.fifo"
SEND, RECEIVE, DELETE = "SendMessageBatch", "ReceiveMessage", "DeleteMessageBatch"
# botocore makes a second try by itself.
FOR_GOOD = 2
UNHARMED = "SELECT count(*) FROM crawler_tasks WHERE retry_count + release_count = 0"


@pytest.fixture
def make(make_settings: MakeSettings, strict: StrictAws) -> MakeSettings:
    """Settings with SQS as the transport; messages of a silent worker come again after a second."""
    made = partial(make_settings, task_transport="sqs", aws_endpoint_url=strict.endpoint, lease_seconds=0.4)
    make_queues(made())
    return made


@pytest.fixture
def queues(database: Database, make: MakeSettings) -> Queues:
    return Queues("sqs", database, make)


def work_off(queues: Queues, queue: TaskQueue) -> list[UUID]:
    """Claim and store until every task has ended; says which tasks were worked on, as often as they were."""
    store, done = queues.store(), list[UUID]()

    def ended() -> bool:
        queue.rest()
        claimed = queue.claim(20)
        done.extend(ids(claimed))
        store.store([fetched(lease) for lease in claimed])
        return queues.states().keys() == {"COMPLETED"}

    wait_until(ended)
    return done


def publish_unread(queues: Queues, queue: TaskQueue, strict: StrictAws, tasks: int) -> None:
    """Send tasks that no worker receives: SQS answers the call that would bring them with errors."""
    strict.go_wrong(RECEIVE, Fault.NONE, *[Fault.ERROR] * FOR_GOOD)
    wait_until(lambda: queue.claim(tasks) or "PUBLISHED" in queues.states())
    assert "PUBLISHED" in queues.states()


def miss_published(queues: Queues) -> None:
    """As if so much time had gone by that the messages of published tasks must be lost."""
    with queues.database.transaction() as connection:
        connection.execute(text("UPDATE crawler_tasks SET published_at = published_at - interval '1 hour'"))


@pytest.mark.parametrize(
    ("operation", "faults"),
    [
        (SEND, [Fault.ERROR] * FOR_GOOD),
        (SEND, [Fault.THROTTLED] * FOR_GOOD),
        (SEND, [Fault.LOST] * FOR_GOOD),
        (SEND, [Fault.HALF, Fault.HALF, Fault.ERROR, Fault.ERROR]),
        (RECEIVE, [Fault.ERROR] * FOR_GOOD),
        (DELETE, [Fault.ERROR] * FOR_GOOD),
        (DELETE, [Fault.HALF]),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(fault.name for fault in value),
)
def test_every_task_is_worked_on_once_whatever_call_fails(
    queues: Queues, strict: StrictAws, operation: str, faults: list[Fault]
) -> None:
    stored = queues.opened("s", new=12)
    strict.go_wrong(operation, *faults)

    done = work_off(queues, queues.queue(stored, lease_seconds=0.4))

    assert len(done) == len(set(done)) == 12
    assert number(queues.database, UNHARMED) == 12
    check_outcomes(queues.database, stored.execution.id)
    # Messages that were not deleted come again, and are then.
    last = shared_queue(queues.database, queues.make_settings())
    wait_until(lambda: last.claim(20) == [] and strict.left(TASKS) == 0)


def test_calls_that_are_done_after_their_caller_has_given_up_cost_no_task_anything(
    queues: Queues, strict: StrictAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "READ_SECONDS", 0.2)
    late = Counter[str]()

    def hang(operation: str) -> None:
        late[operation] += 1
        if late[operation] <= FOR_GOOD:
            time.sleep(0.3)

    stored = queues.opened("s", new=12)
    queue = queues.queue(stored, lease_seconds=0.4)
    strict.on_call = hang

    done = work_off(queues, queue)

    assert min(late[operation] for operation in (SEND, RECEIVE, DELETE)) >= FOR_GOOD
    assert len(done) == len(set(done)) == 12
    assert number(queues.database, UNHARMED) == 12


def test_a_task_is_published_only_when_sqs_has_accepted_its_message(queues: Queues, strict: StrictAws) -> None:
    stored = queues.opened("s", new=10)
    strict.go_wrong(SEND, *[Fault.THROTTLED] * FOR_GOOD)
    assert queues.queue(stored).claim(10) == []
    assert queues.states() == {"WAITING": 10}

    strict.go_wrong(SEND, Fault.HALF)
    publish_unread(queues, queues.queue(stored), strict, 10)
    assert (queues.states(), strict.left(TASKS)) == ({"PUBLISHED": 5, "WAITING": 5}, 5)


def test_a_message_whose_acceptance_was_never_heard_of_still_brings_its_task_to_a_worker(
    queues: Queues, strict: StrictAws
) -> None:
    stored = queues.opened("s", new=4)
    strict.go_wrong(SEND, *[Fault.LOST] * FOR_GOOD)
    queues.queue(stored).claim(4)
    assert (queues.states(), strict.left(TASKS)) == ({"WAITING": 4}, 4)

    assert len(queues.queue(stored).claim(4)) == 4
    # The same messages: SQS has taken the second sending of them for a repetition.
    assert strict.left(TASKS) == 4


def test_a_published_task_whose_message_is_lost_comes_back(queues: Queues, strict: StrictAws) -> None:
    stored = queues.opened("s", new=3)
    queue = queues.queue(stored, lease_seconds=0.4)
    publish_unread(queues, queue, strict, 3)
    client = strict.client("sqs")
    client.purge_queue(QueueUrl=client.get_queue_url(QueueName=TASKS)["QueueUrl"])
    assert queues.states() == {"PUBLISHED": 3}

    recover_tasks(queues.database, queues.make_settings(lease_seconds=60), utc_now())
    assert queues.states() == {"PUBLISHED": 3}, "they are not missed yet"
    miss_published(queues)

    done = work_off(queues, queue)
    assert len(done) == len(set(done)) == 3
    assert number(queues.database, UNHARMED) == 3


def test_messages_that_are_delivered_ten_times_late_and_out_of_order_change_nothing(
    queues: Queues, strict: StrictAws
) -> None:
    strict.repeats = 9
    stored = queues.opened("s", new=12, pages=2)

    done = work_off(queues, queues.queue(stored))

    assert len(done) == len(set(done)) == 14
    check_outcomes(queues.database, stored.execution.id)


def test_a_worker_killed_after_its_effect_and_before_its_ack_leaves_nothing_to_do_again(
    queues: Queues, strict: StrictAws
) -> None:
    stored = queues.opened("s", new=3)
    settings = queues.make_settings()
    # Without the call that deletes the messages.
    store = ResultStore(queues.database, settings, Endpoints.from_settings(settings))
    store.store([fetched(lease) for lease in queues.queue(stored, lease_seconds=0.4).claim(3)])
    assert (queues.states(), strict.left(TASKS)) == ({"COMPLETED": 3}, 3)

    other = queues.queue(stored)
    wait_until(lambda: other.claim(3) or strict.left(TASKS) == 0)

    assert queues.states() == {"COMPLETED": 3}
    assert number(queues.database, "SELECT max(lease_no) FROM crawler_tasks") == 1


def test_a_worker_killed_between_receive_and_lease_harms_no_task(queues: Queues, strict: StrictAws) -> None:
    stored = queues.opened("s", new=3)

    def die(_: object, __: object, statement: str, *___: object) -> None:
        if "lease_owner = %" in statement:
            raise KeyboardInterrupt

    event.listen(queues.database.engine, "before_cursor_execute", die)
    with suppress(KeyboardInterrupt):
        queues.queue(stored, lease_seconds=0.4).claim(3)
    event.remove(queues.database.engine, "before_cursor_execute", die)
    assert (queues.states(), strict.left(TASKS)) == ({"WAITING": 3}, 3)

    done = work_off(queues, queues.queue(stored, lease_seconds=0.4))

    assert len(done) == len(set(done)) == 3
    assert number(queues.database, UNHARMED) == 3


def test_a_task_that_kills_every_worker_is_parked_and_fails(
    database: Database, make: MakeSettings, strict: StrictAws
) -> None:
    queues = Queues("sqs", database, partial(make, task_max_releases=3))
    stored = queues.opened("s", new=2)
    store = queues.store()

    def failed() -> bool:
        # A worker of its own each time: it dies with the first task and finishes the second.
        queue = queues.queue(stored, lease_seconds=0.4)
        queue.rest()
        for lease in queue.claim(2):
            if lease.item_no == 2:
                store.store([fetched(lease)])
        return "FAILED" in queues.states()

    wait_until(failed)

    assert queues.states() == {"COMPLETED": 1, "FAILED": 1}
    assert number(queues.database, "SELECT count(*) FROM crawler_tasks WHERE error_code = 'RELEASED_TOO_OFTEN'") == 1
    last = queues.queue(stored)
    wait_until(lambda: last.claim(2) or strict.left(DEAD) == 1)
    assert (queues.states()["FAILED"], strict.left(TASKS)) == (1, 0)


def test_messages_that_are_not_ours_are_parked_and_hold_up_nothing(queues: Queues, strict: StrictAws) -> None:
    stored = queues.opened("s", new=2)
    unknown = WaitingTask(uuid4(), "s", TaskType.PRODUCT_DETAIL, 1, None, "https://elsewhere", 0, 0)
    url = FifoQueue(queues.make_settings(), TASKS).url
    for number_, body in enumerate(["not JSON", "{}", message_of(unknown).body]):
        strict.client("sqs").send_message(
            QueueUrl=url, MessageBody=body, MessageGroupId=f"g{number_}", MessageDeduplicationId=f"d{number_}"
        )

    assert len(work_off(queues, queues.queue(stored, lease_seconds=0.4))) == 2
    queue = queues.queue(stored, lease_seconds=0.4)
    wait_until(lambda: queue.claim(9) or strict.left(DEAD) == 3)
    assert strict.left(TASKS) == 0


def test_the_messages_of_a_crawl_that_is_paused_or_gives_way_are_taken_out_and_sent_again_when_it_goes_on(
    queues: Queues, strict: StrictAws
) -> None:
    stored = queues.opened("s", new=3, kind=ExecutionKind.LIGHT)
    queue = queues.queue(stored)

    def expect_taken_out() -> None:
        wait_until(lambda: queue.claim(3) == [] and queues.states() == {"WAITING": 3})
        assert strict.left(TASKS) == 0

    publish_unread(queues, queue, strict, 3)
    steering.pause(queues.database, stored.id)
    expect_taken_out()
    steering.resume(queues.database, stored.id)
    publish_unread(queues, queue, strict, 3)
    due = queues.opened("due")
    expect_taken_out()
    sent = strict.calls[SEND]
    assert (queue.claim(3), strict.calls[SEND]) == ([], sent)
    steering.cancel(queues.database, due.id, utc_now())

    assert len(work_off(queues, queue)) == 3
    assert number(queues.database, UNHARMED) == 3
    assert strict.left(DEAD) == 0


def test_the_heartbeat_keeps_a_message_from_others_for_as_long_as_its_lease(queues: Queues, strict: StrictAws) -> None:
    stored = queues.opened("s", new=2)
    holder = queues.queue(stored, lease_seconds=0.4)
    held = holder.claim(2)
    end = time.monotonic() + 2.0
    other = queues.queue(stored)
    while time.monotonic() < end:
        holder.renew(held)
        assert other.claim(2) == []
        time.sleep(0.1)

    assert queues.store().store([fetched(lease) for lease in held]).completed == 2
    assert strict.left(TASKS) == 0


def test_a_second_message_of_a_task_in_good_hands_is_never_a_dead_letter(
    database: Database, make: MakeSettings, strict: StrictAws
) -> None:
    """It is received again and again while the task is worked on, and SQS parks what is received too often."""
    queues = Queues("sqs", database, partial(make, task_max_retries=1))
    make_queues(queues.make_settings())
    stored = queues.opened("s", new=1)
    holder = queues.queue(stored)
    [held] = holder.claim(1)
    again = {"taskId": str(held.task_id), "sellerId": "s", "taskType": "PRODUCT_OPTION", "requestUrl": "https://x"}
    client = strict.client("sqs")
    url = client.get_queue_url(QueueName=TASKS)["QueueUrl"]
    client.send_message(QueueUrl=url, MessageBody=json.dumps(again), MessageGroupId="g", MessageDeduplicationId="d")
    with database.transaction() as connection:
        # So that the other one is soon due again.
        connection.execute(text("UPDATE crawler_tasks SET lease_expires_at = now() + interval '0.5 s'"))

    other = queues.queue(stored)
    other.claim(1)
    holder.renew([held])
    wait_until(lambda: other.claim(1) or strict.left(TASKS) + strict.left(DEAD) == 1)

    assert (strict.left(TASKS), strict.left(DEAD)) == (1, 0)
    assert queues.store().store([fetched(held)]).completed == 1


def test_what_is_received_is_leased_in_time_however_long_sending_takes(queues: Queues, strict: StrictAws) -> None:
    """Otherwise others receive it as well, until SQS parks it."""
    stored = queues.opened("s", new=100)
    publish_unread(queues, queues.queue(stored), strict, 10)
    strict.on_call = lambda operation: time.sleep(0.5 if operation == SEND else 0)
    queue = queues.queue(stored, lease_seconds=1.4)

    started = time.monotonic()
    claimed = queue.claim(100)

    assert time.monotonic() - started < 2, "for so long what was received first is ours"
    assert 10 <= len(claimed) < 100


def test_messages_are_left_alone_while_postgresql_does_not_answer(queues: Queues, strict: StrictAws) -> None:
    stored = queues.opened("s", new=1)
    queue = queues.queue(stored)

    def refuse(*_: object) -> None:
        raise OperationalError("gone", None, Exception())

    event.listen(queues.database.engine, "before_cursor_execute", refuse)
    with pytest.raises(OperationalError):
        queue.claim(1)
    event.remove(queues.database.engine, "before_cursor_execute", refuse)

    assert strict.calls[RECEIVE] == strict.calls[SEND] == 0


def test_a_queue_that_does_not_exist_says_how_to_make_it(
    database: Database, make_settings: MakeSettings, strict: StrictAws
) -> None:
    queue = shared_queue(database, make_settings(task_transport="sqs", aws_endpoint_url=strict.endpoint))
    with pytest.raises(AwsRefused, match="mustit aws setup"):
        queue.claim(1)


def test_tasks_of_one_transport_are_carried_by_the_other_after_a_change_of_the_setting(
    queues: Queues, make_settings: MakeSettings
) -> None:
    stored = queues.opened("s", new=4)
    over_sqs = queues.queue(stored).claim(1)
    queues.store().store([fetched(lease) for lease in over_sqs])

    postgres = shared_queue(queues.database, make_settings())
    postgres.rest()
    leased = postgres.claim(2)
    assert len(leased) == 2
    queues.store().store([fetched(lease) for lease in leased])
    assert queues.states() == {"COMPLETED": 3, "PUBLISHED": 1}
    miss_published(queues)

    assert len(work_off(queues, queues.queue(stored, lease_seconds=0.4))) == 1


def test_a_run_sends_what_its_own_step_is_about_and_works_on_what_others_have_sent(
    queues: Queues, strict: StrictAws
) -> None:
    mine, other = queues.opened("a", new=1, pages=1), queues.opened("b", new=1)
    settings = queues.make_settings(lease_seconds=60)
    sweeping = SqsExecutionQueue(queues.database, settings, mine, [TaskType.MINISHOP])
    assert [lease.task_type for lease in sweeping.claim(9)] == [TaskType.MINISHOP]
    assert queues.states() == {"IN_PROGRESS": 1, "WAITING": 2}

    publish_unread(queues, queues.queue(other), strict, 9)
    fetching = SqsExecutionQueue(queues.database, settings, mine, [TaskType.PRODUCT_OPTION])
    leased = fetching.claim(9)
    assert {lease.home for lease in leased} == {mine.home, other.home}

    # It ends with its own crawl, whatever the others have to do.
    assert fetching.rest() is not None
    queues.store().store([fetched(lease) for lease in leased if lease.home == mine.home])
    assert fetching.rest() is None
    assert SqsExecutionQueue(queues.database, settings, other, list(TaskType)).rest() is not None


@pytest.mark.parametrize("seller", ["dmont", "머스트잇", "a b", "x" * 200])
def test_any_seller_and_any_page_has_a_group_that_sqs_takes(seller: str) -> None:
    task = WaitingTask(uuid4(), seller, TaskType.PRODUCT_DETAIL, 118005032, None, "/item/118005032/detail/top", 1, 3)
    page = WaitingTask(uuid4(), seller, TaskType.MINISHOP, None, 17, "/searchmini-shop-search", 0, 0)

    sent, sent_page = message_of(task), message_of(page)

    assert all(sign.isascii() and sign.isprintable() and sign != " " for sign in sent.group + sent_page.group)
    assert len(sent_page.group) <= 128
    assert (sent.group.rpartition(":")[2], sent_page.group.rpartition(":")[2]) == ("8", "page-1")
    assert sent.deduplication == f"{task.task_id}:1:3"
    if seller == "dmont":
        assert sent.group == "dmont:8"
        assert sent.body == (
            f'{{"taskId":"{task.task_id}","sellerId":"dmont","taskType":"PRODUCT_DETAIL",'
            '"requestUrl":"/item/118005032/detail/top"}'
        )


def test_a_whole_crawl_over_sqs_holds_what_the_marketplace_shows_and_asks_for_everything_once(
    database: Database, make: MakeSettings, strict: StrictAws, marketplace: RunningSimulator, market: MarketplaceControl
) -> None:
    market.add_seller("s", 30)
    register(database, "s")
    strict.repeats = 2

    outcome = crawl(database, make(base_url=marketplace.url, page_size=10, lease_seconds=5), "s")

    assert outcome.stored.status is ExecutionStatus.COMPLETED
    check_outcomes(database, outcome.stored.id)
    with database.reading() as connection:
        rows = connection.execute(text("SELECT item_no, product_data FROM product_change_sets")).all()
    assert {item: json.loads(data) for item, data in rows} == {one["itemNo"]: one for one in market.products("s")}
    asked = {url: times for url, times in market.requested_urls().items() if url != "/"}
    assert (len(asked), set(asked.values())) == (1 + 3 + 2 * 30, {1})
    assert outcome.stored.requests == len(asked)


def test_a_worker_on_another_host_takes_its_share_over_sqs(
    database: Database, make: MakeSettings, marketplace: RunningSimulator, market: MarketplaceControl
) -> None:
    market.add_seller("s", 30)
    register(database, "s")
    settings = make(base_url=marketplace.url, page_size=10, lease_seconds=5)
    done: list[int] = []

    def follow(report: WorkReport) -> None:
        done.append(report.completed)

    async def both() -> None:
        worker = asyncio.create_task(serve(database, settings, 60, follow))
        opened = open_or_join(database, SellerId("s"), triggered_by="test", now=utc_now())
        await asyncio.to_thread(Crawl(database, settings, opened.stored).sweep, 60)
        # The run leaves the products to the worker until it has taken some.
        await asyncio.to_thread(wait_until, lambda: done)
        await asyncio.to_thread(crawl, database, settings, "s")
        worker.cancel()
        with suppress(asyncio.CancelledError):
            await worker

    asyncio.run(both())

    assert number(database, "SELECT count(*) FROM crawler_tasks WHERE status = 'COMPLETED'") == 3 + 2 * 30
    assert done
    assert number(database, "SELECT count(*) FROM products WHERE complete") == 30
