"""One suite for whatever carries crawl tasks: each goes to one worker at a time, and only its holder may end it."""

import asyncio
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from uuid import UUID

import pytest
from sqlalchemy import event, text

from mustit_pipeline.aws.setup import make_queues
from mustit_pipeline.crawling import steering
from mustit_pipeline.crawling.result_buffer import ResultBuffer, WorkReport
from mustit_pipeline.crawling.results import Receipt, TaskResult
from mustit_pipeline.crawling.sql.leases import LeasedTask
from mustit_pipeline.domain.states import ExecutionKind
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.marketplace.parsing import parse_listing
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.contract.task_queues import ADAPTERS, SHARED, Queues, fetched, ids, refused
from mustit_pipeline_tests.integration.crawling.checks import check_outcomes, number
from mustit_pipeline_tests.unit.marketplace import bodies

SOON = 0.05
COSTS = "SELECT count(*) FROM crawler_tasks WHERE retry_count + release_count > 0"


@pytest.fixture(params=ADAPTERS)
def queues(request: pytest.FixtureRequest, database: Database, make_settings: MakeSettings) -> Queues:
    return _queues(request, database, make_settings)


@pytest.fixture(params=SHARED)
def shared(request: pytest.FixtureRequest, database: Database, make_settings: MakeSettings) -> Queues:
    return _queues(request, database, make_settings)


def _queues(request: pytest.FixtureRequest, database: Database, make_settings: MakeSettings) -> Queues:
    if request.param.startswith("sqs"):
        aws = request.getfixturevalue("strict")
        make_settings = partial(make_settings, task_transport="sqs", aws_endpoint_url=aws.endpoint)
        make_queues(make_settings())
    return Queues(request.param, database, make_settings)


def test_many_claimers_at_once_get_every_task_once(queues: Queues) -> None:
    stored = queues.opened("s", new=120)

    def take(_: int) -> list[UUID]:
        queue, taken, store = queues.queue(stored), list[UUID](), queues.store()
        while claimed := queue.claim(7):
            taken += ids(claimed)
            store.store([fetched(lease) for lease in claimed])
        return taken

    with ThreadPoolExecutor(8) as threads:
        taken = [task for share in threads.map(take, range(8)) for task in share]

    # A claimer that met only tasks that others were taking stopped early; nothing may be left after that.
    taken += take(8)
    assert len(taken) == len(set(taken)) == 120
    assert queues.states() == {"COMPLETED": 120}


def test_pages_come_first_then_probes_then_new_products_then_known_ones(queues: Queues) -> None:
    stored = queues.opened("s", known=6, new=6, pages=2, probes=[509, 511])
    queue = queues.queue(stored)

    at_once = [_kind(lease) for lease in queue.claim(5)]
    one_by_one = [_kind(lease) for _ in range(11) for lease in queue.claim(1)]

    assert at_once == ["page", "page", "probe", "probe", "new"]
    assert one_by_one == ["new"] * 5 + ["known"] * 6


def _kind(lease: LeasedTask) -> str:
    if lease.task.item_no is None:
        return "page"
    return "probe" if lease.probe else "known" if lease.task.item_no.value <= 6 else "new"


def test_a_task_to_be_tried_later_is_not_given_before_its_time(queues: Queues) -> None:
    stored = queues.opened("s", new=1)
    queue = queues.queue(stored)
    [leased] = queue.claim(1)
    leased.task.fail("broken", utc_now())
    leased.task.retry()
    queues.store().store([TaskResult(leased, delay=600.0)])

    assert queue.claim(1) == []
    assert queues.states() == {"RETRY": 1}

    with queues.database.transaction() as connection:
        connection.execute(text("UPDATE crawler_tasks SET available_at = now()"))
    assert [lease.task.retry_count for lease in queue.claim(1)] == [1]


def test_a_lease_that_is_not_renewed_ends_and_its_task_goes_to_the_next_one(queues: Queues) -> None:
    stored = queues.opened("s", new=3)
    silent = queues.queue(stored, lease_seconds=SOON).claim(3)

    again = queues.come_back(stored)

    assert sorted(ids(again)) == sorted(ids(silent))
    assert {lease.lease_no for lease in again} == {2}
    assert {(lease.task.release_count, lease.task.retry_count) for lease in again} == {(1, 0)}


def test_a_task_that_lost_its_worker_waits_behind_those_that_did_not(queues: Queues) -> None:
    """A crawl that was killed every other second once failed its first tasks: each new run met the same ones."""
    stored = queues.opened("s", new=6)
    lost = ids(queues.queue(stored, lease_seconds=2).claim(2))
    with queues.database.transaction() as connection:
        connection.execute(
            text("UPDATE crawler_tasks SET lease_expires_at = now() - interval '1 ms' WHERE lease_no = 1")
        )
    queue = queues.queue(stored)
    queue.rest()

    others = [task for _ in range(4) for task in ids(queue.claim(1))]

    assert len({*others, *lost}) == 6
    assert set(ids(queues.come_back(stored))) == set(lost)


def test_a_lease_that_is_renewed_stays_with_its_holder(queues: Queues) -> None:
    stored = queues.opened("s", new=3)
    holder = queues.queue(stored, lease_seconds=SOON)
    held = holder.claim(3)
    queues.queue(stored, lease_seconds=600).renew(held[:2])
    time.sleep(2 * SOON)

    again = queues.come_back(stored)

    assert ids(again) == ids(held[2:])
    outcome = queues.store().store([fetched(lease) for lease in held[:2]])
    assert (outcome.completed, outcome.lost) == (2, 0)


def test_nothing_that_a_late_writer_brings_is_stored(queues: Queues) -> None:
    stored = queues.opened("s", new=2, pages=1)
    page_body = bodies.encoded(bodies.listing(bodies.listing_item(itemNo=77), count=500)).decode()
    late = queues.queue(stored, lease_seconds=SOON).claim(3)
    # Another worker has them now: their worker was silent for too long.
    queues.come_back(stored)
    results = [fetched(lease, "late") for lease in late[1:]]
    late[0].task.complete(utc_now())
    results.append(TaskResult(late[0], body=page_body, page=parse_listing(page_body.encode())))

    outcome = queues.store().store(results)

    assert (outcome.completed, outcome.failed, outcome.lost) == (0, 0, 3)
    assert queues.states() == {"IN_PROGRESS": 3}
    assert queues.bodies() == []
    assert (queues.counted("completed_tasks"), queues.counted("total_tasks")) == (0, 3)
    assert number(queues.database, "SELECT count(*) FROM products") == 0
    # The requests were made, under whatever lease.
    assert queues.counted("requests") == 2


def test_a_late_writer_takes_back_its_own_body_and_no_other(queues: Queues) -> None:
    stored = queues.opened("s", new=4)
    late = queues.queue(stored, lease_seconds=SOON).claim(2)
    others = queues.queue(stored).claim(2)
    honest = queues.come_back(stored)
    store = queues.store()
    assert store.store([fetched(lease, "honest") for lease in honest]).completed == 2

    outcome = store.store([fetched(late[0], "late"), fetched(others[0], "other"), fetched(late[1], "late")])

    assert (outcome.completed, outcome.lost) == (1, 2)
    assert queues.bodies() == ["honest", "honest", "other"]
    store.store([fetched(others[1], "other")])
    check_outcomes(queues.database, stored.execution.id)


def test_a_refused_body_is_stored_with_its_failed_task_and_a_late_writers_is_not(queues: Queues) -> None:
    stored = queues.opened("s", new=1, pages=1)
    late = queues.queue(stored, lease_seconds=SOON).claim(2)
    honest = queues.come_back(stored)
    store = queues.store()

    outcome = store.store([refused(lease, '"late"') for lease in late])
    assert (outcome.failed, outcome.lost, queues.bodies()) == (0, 2, [])

    results = [refused(lease, '"honest"') for lease in honest]
    outcomes = [store.store(results), store.store(results)]
    assert [(outcome.failed, outcome.lost) for outcome in outcomes] == [(2, 0), (0, 2)]
    assert queues.bodies() == ['"honest"', '"honest"']
    kept = "SELECT count(*) FROM product_raw_data WHERE status = 'FAILED' AND error_text = 'items takes a list'"
    assert number(queues.database, kept) == 2
    check_outcomes(queues.database, stored.execution.id)


def test_a_refused_page_that_waits_to_be_stored_counts_as_a_page(queues: Queues) -> None:
    """Few pages are held at once, because each is as large as many other bodies."""
    stored = queues.opened("s", new=1, pages=2)
    results = [refused(lease, "{}") for lease in queues.queue(stored).claim(3)]

    async def hold() -> tuple[int, int]:
        room = ResultBuffer(queues.store(), WorkReport(), None, asyncio.Event())
        room.add(results)
        return room.unstored, room.pages

    assert asyncio.run(hold()) == (3, 2)


@pytest.mark.parametrize("newest_first", [True, False])
def test_of_two_leases_of_one_task_in_one_batch_only_the_newer_one_counts(queues: Queues, newest_first: bool) -> None:
    """Both once counted as ours, and then the task had two bodies."""
    stored = queues.opened("s", new=1)
    [late] = queues.queue(stored, lease_seconds=SOON).claim(1)
    [ours] = queues.come_back(stored)
    results = [fetched(late, "late"), fetched(ours, "ours")]

    outcome = queues.store().store(results[::-1] if newest_first else results)

    assert (outcome.completed, outcome.lost) == (1, 1)
    assert queues.bodies() == ["ours"]
    check_outcomes(queues.database, stored.execution.id)


def test_a_batch_stored_twice_counts_once(queues: Queues) -> None:
    """A worker that loses the connection while a batch is committed cannot know, and stores it again."""
    stored = queues.opened("s", new=5)
    store, receipt = queues.store(), Receipt()
    results = [fetched(lease, requests=2, throttled=1) for lease in queues.queue(stored).claim(5)]

    first, second = store.store(results, receipt), store.store(results, receipt)

    assert first == second
    assert (first.completed, first.lost) == (5, 0)
    assert (queues.counted("requests"), queues.counted("throttled")) == (5 * 2, 5 * 1)
    check_outcomes(queues.database, stored.execution.id)


def test_a_batch_that_was_rolled_back_is_stored_the_second_time(queues: Queues) -> None:
    stored = queues.opened("s", new=5)
    store, receipt = queues.store(), Receipt()
    results = [fetched(lease, requests=2, throttled=1) for lease in queues.queue(stored).claim(5)]

    def refuse(_: object) -> None:
        raise ConnectionError

    event.listen(queues.database.engine, "commit", refuse)
    with pytest.raises(ConnectionError):
        store.store(results, receipt)
    event.remove(queues.database.engine, "commit", refuse)
    assert queues.states() == {"IN_PROGRESS": 5}

    assert store.store(results, receipt).completed == 5

    assert (queues.counted("requests"), queues.counted("throttled")) == (5 * 2, 5 * 1)
    check_outcomes(queues.database, stored.execution.id)


def test_a_task_that_is_handed_back_has_lost_nothing_however_often(queues: Queues) -> None:
    stored = queues.opened("s", new=3)
    queue, store = queues.queue(stored), queues.store()
    for _ in range(7):
        held = queue.claim(3)
        assert len(held) == 3
        store.store([TaskResult(lease, handed_back=True) for lease in held])
        assert queues.states() == {queues.unclaimed: 3}
    assert number(queues.database, COSTS) == 0
    assert number(queues.database, "SELECT count(*) FROM crawler_tasks WHERE lease_owner IS NOT NULL") == 0


def test_a_task_whose_attempt_was_broken_off_is_given_again_at_once_and_one_release_is_counted(queues: Queues) -> None:
    stored = queues.opened("s", new=1)
    queue = queues.queue(stored)
    [broken_off] = queue.claim(1)
    broken_off.task.release(utc_now())
    queues.store().store([TaskResult(broken_off)])

    assert [(lease.lease_no > 1, lease.task.release_count) for lease in queue.claim(1)] == [(True, 1)]


def test_handing_back_a_lease_that_was_lost_leaves_the_new_holder_alone(queues: Queues) -> None:
    stored = queues.opened("s", new=1)
    late = queues.queue(stored, lease_seconds=SOON).claim(1)
    [ours] = queues.come_back(stored)
    store = queues.store()

    store.store([TaskResult(late[0], handed_back=True)])

    assert queues.states() == {"IN_PROGRESS": 1}
    assert store.store([fetched(ours)]).completed == 1


def test_a_crawl_that_is_paused_or_cancelled_gives_nothing(queues: Queues) -> None:
    stored = queues.opened("s", new=6)
    queue, execution_id = queues.queue(stored), stored.execution.id
    held = queue.claim(2)

    steering.pause(queues.database, execution_id)
    assert queue.claim(9) == []
    steering.resume(queues.database, execution_id)
    held += queue.claim(2)
    assert len(held) == 4
    steering.cancel(queues.database, execution_id, utc_now())

    assert queue.claim(9) == []
    outcome = queues.store().store([fetched(lease) for lease in held])
    assert (outcome.completed, outcome.lost) == (0, 4)
    rows = check_outcomes(queues.database, execution_id)
    assert {row.error_code for row in rows.values()} == {"CANCELLED"}


def test_a_light_crawl_gives_nothing_while_one_that_is_due_is_open(queues: Queues) -> None:
    stored = queues.opened("s", new=4, kind=ExecutionKind.LIGHT)
    queue = queues.queue(stored)
    held = queue.claim(2)

    due = queues.opened("other")
    assert queue.claim(9) == []
    assert (queue.rest() is None) == (queues.adapter not in SHARED)
    assert queues.store().store([fetched(lease) for lease in held]).completed == 2
    assert queues.states() == {"COMPLETED": 2, queues.unclaimed: 2}

    steering.cancel(queues.database, due.execution.id, utc_now())
    assert len(queue.claim(9)) == 2
    assert number(queues.database, COSTS) == 0


def test_a_batch_is_claimed_in_one_transaction_and_stored_in_one(queues: Queues) -> None:
    stored = queues.opened("s", new=20)
    queue, store = queues.queue(stored), queues.store()
    commits: list[object] = []
    event.listen(queues.database.engine, "commit", commits.append)

    held = queue.claim(16)
    assert (len(held), len(commits)) == (16, 1)
    queue.renew(held)
    assert len(commits) == 2
    store.store([fetched(lease) for lease in held])

    assert len(commits) == 3
    assert queues.states() == {"COMPLETED": 16, queues.unclaimed: 4}


def test_an_empty_queue_says_when_to_look_again(queues: Queues) -> None:
    stored = queues.opened("s", new=1)
    queue = queues.queue(stored)
    held = queue.claim(1)

    # A worker may fall silent, so there may be something again.
    rest = queue.rest()
    assert rest is not None
    assert 0 < rest <= 60
    queues.store().store([fetched(lease) for lease in held])

    assert queue.claim(1) == []
    assert (queue.rest() is None) == (queues.adapter not in SHARED)


def test_a_seller_with_ten_thousand_tasks_does_not_starve_one_with_ten(shared: Queues) -> None:
    big = shared.opened("big", new=10_000)
    shared.opened("small", new=10)
    queue = shared.queue(big)

    first, second = queue.claim(12), queue.claim(12)

    assert _shares(first) == {"big": 6, "small": 6}
    # In turns: whatever of it can be sent before the agents are used up is fair too.
    assert _shares(first[:6]) == {"big": 3, "small": 3}
    assert _shares(second) == {"big": 6, "small": 4}
    shared.store().store([fetched(lease) for lease in (*first, *second)])
    assert _shares(queue.claim(12)) == {"big": 12}


def test_among_more_crawls_than_tasks_are_wanted_every_one_gets_its_turn(shared: Queues) -> None:
    opened = [shared.opened(f"s{number}", new=60) for number in range(20)]
    queue, store = shared.queue(opened[0]), shared.store()

    # Each claim leaves out half of them by chance: that one is left out 30 times does not happen.
    claims: list[Counter[str]] = []
    for _ in range(30):
        claimed = queue.claim(10)
        claims.append(_shares(claimed))
        store.store([fetched(lease) for lease in claimed])

    assert {count for shares in claims for count in shares.values()} == {1}
    assert len({seller for shares in claims for seller in shares}) == 20


def test_the_most_urgent_of_each_seller_goes_first(shared: Queues) -> None:
    first = shared.opened("a", known=6, new=6)
    shared.opened("b", known=6, pages=2)

    claimed = shared.queue(first).claim(6)

    kinds = [(lease.home.seller_id, _kind(lease)) for lease in claimed]
    assert Counter(kinds) == {("a", "new"): 3, ("b", "page"): 2, ("b", "known"): 1}


def test_no_more_pages_are_given_than_are_wanted_and_the_rest_passes_them(queues: Queues) -> None:
    queue = queues.queue(queues.opened("s", new=20, pages=12))

    some, none = queue.claim(10, pages=2), queue.claim(10, pages=0)

    assert [lease.page_no for lease in some if lease.page_no is not None] == [0, 1]
    assert [lease.page_no for lease in none] == [None] * 10
    # Those that were not given are still there.
    assert [lease.page_no for lease in queue.claim(10)] == list(range(2, 12))


def test_pages_of_several_sellers_are_given_in_turns(shared: Queues) -> None:
    first = shared.opened("a", pages=9)
    shared.opened("b", pages=9)

    claimed = shared.queue(first).claim(18, pages=4)

    assert sorted((lease.home.seller_id, lease.page_no) for lease in claimed) == [
        ("a", 0),
        ("a", 1),
        ("b", 0),
        ("b", 1),
    ]


def _shares(leases: list[LeasedTask]) -> Counter[str]:
    return Counter(lease.home.seller_id for lease in leases)
