"""Where an operator decides: held deletions approved or rejected, failed events sent again."""

from uuid import uuid4

import pytest
from sqlalchemy import text

from mustit_pipeline.agents import roster
from mustit_pipeline.agents.sql import agents
from mustit_pipeline.crawling.steering import give_up, open_or_join
from mustit_pipeline.delivery.relay import relay
from mustit_pipeline.domain.errors import Conflict, NotFound
from mustit_pipeline.domain.limits import HEALTH_RECOVERED
from mustit_pipeline.domain.states import AgentStatus
from mustit_pipeline.domain.user_agent import UserAgent
from mustit_pipeline.domain.values import SellerId, UserAgentId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.e2e.asking import ask, explained, settings_of
from mustit_pipeline_tests.e2e.conftest import World
from mustit_pipeline_tests.integration.crawls import crawl


@pytest.fixture(scope="module")
def settings(world: World) -> Settings:
    return settings_of(world)


def test_held_deletions_are_looked_at_approved_once_and_reach_the_product_server(
    world: World, settings: Settings
) -> None:
    seller = "held"
    world.register(seller, 5)
    for _ in range(2):
        crawl(world.database, settings, seller)
    relay(world.database, settings)
    gone = world.market.remove(seller, count=2)
    crawl(world.database, settings, seller)

    [hold] = ask(world, "deletions", "list", "--seller", seller, "--json").document
    shown = ask(world, "deletions", "show", hold["holdId"][:8])
    warned = next(f for f in ask(world, "doctor", "--json").document if f["subject"] == "held deletions")
    approved = ask(world, "deletions", "approve", hold["holdId"][:8], "--json")
    with pytest.raises(Conflict, match="CONFLICT_DELETION_HOLD_DECIDED"):
        ask(world, "deletions", "reject", hold["holdId"])
    relay(world.database, settings)

    assert (hold["status"], hold["heldCount"], hold["liveCount"], hold["share"]) == ("OPEN", 2, 5, 40)
    assert all(str(item) in shown.out for item in gone)
    assert f"mustit deletions approve {hold['holdId'][:8]}" in shown.out
    assert (warned["health"], warned["remedy"]) == ("warning", "See `mustit deletions list`, then approve or reject.")
    assert "2 of held" in warned["detail"]
    assert (approved.code, approved.document["status"]) == (0, "APPROVED")
    assert approved.document["deleted"] == sorted(gone)
    deleted = [e.item_no for e in world.receiver.log() if (e.seller_id, e.event_type) == (seller, "PRODUCT_DELETED")]
    assert sorted(deleted) == sorted(gone)
    assert "normal way" in ask(world, "deletions", "list", "--status", "open", "--seller", seller).out


def test_a_rejected_hold_deletes_nothing(world: World, settings: Settings) -> None:
    seller = "kept"
    world.register(seller, 3)
    crawl(world.database, settings, seller)
    world.market.fault("count_zero", "listing", sellerId=seller)
    crawl(world.database, settings, seller)
    world.market.clear_faults()
    [hold] = ask(world, "deletions", "list", "--seller", seller, "--json").document

    rejected = ask(world, "deletions", "reject", hold["holdId"])

    assert (rejected.code, rejected.out) == (0, "Rejected: 3 products of kept stay.\n")
    assert ask(world, "changes", "--seller", seller, "--type", "DELETED", "--json").document == []


def test_failed_events_are_listed_inspected_and_sent_again(world: World, settings: Settings) -> None:
    seller = "refused"
    world.register(seller, 2)
    crawl(world.database, settings, seller)
    items = [product["itemNo"] for product in world.market.products(seller)]
    faults = [world.receiver.fault("status", "events", status=400, itemNo=item) for item in items]
    relayed = explained(world, "relay")
    for fault in faults:
        world.receiver.clear_faults(fault)

    listed = ask(world, "outbox", "list", "--status", "FAILED", "--seller", seller, "--json").document
    first = listed[0]["outboxId"]
    shown = ask(world, "outbox", "show", first[:8])
    one = ask(world, "outbox", "retry", first[:8], "--json")
    with pytest.raises(Conflict, match="CONFLICT_OUTBOX_RETRY"):
        ask(world, "outbox", "retry", first)
    rest = ask(world, "outbox", "retry", "--status", "FAILED", "--seller", seller, "--json")

    assert relayed.code == 1
    assert "mustit outbox list --status FAILED" in relayed.err
    assert sorted(event["itemNo"] for event in listed) == sorted(items)
    assert {(event["lastStatus"], event["retryCount"]) for event in listed} == {(400, 1)}
    assert "HTTP 400" in shown.out
    assert f"mustit outbox retry {first[:8]}" in shown.out
    assert (one.code, one.document) == (0, {"retried": 1, "superseded": 0})
    assert rest.document == {"retried": 1, "superseded": 0}
    relay(world.database, settings)
    assert sorted(effect.item_no for effect in world.receiver.log() if effect.seller_id == seller) == sorted(items)
    assert "nothing to retry" in ask(world, "outbox", "retry", "--status", "FAILED", "--seller", seller).out


def test_all_blocked_agents_are_unblocked_at_once(world: World) -> None:
    with world.database.transaction() as connection:
        blocked = [row.agent_id for row in roster.list_agents(connection)[:2]]
        for agent_id in blocked:
            roster.block(connection, agent_id)

    told = ask(world, "agents", "unblock", "--all", "--json")
    again = ask(world, "agents", "unblock", "--all")

    freed = [{"agentId": str(agent_id), "reason": "blocked by an admin"} for agent_id in blocked]
    assert (told.code, told.document) == (0, {"unblocked": freed, "endedPauseUntil": None})
    assert (again.code, again.out) == (0, "No agent is blocked.\n")
    with world.database.reading() as connection:
        now = {row.agent_id: (row.status, row.health) for row in roster.list_agents(connection)}
    assert {now[agent_id] for agent_id in blocked} == {(AgentStatus.AVAILABLE, HEALTH_RECOVERED)}


def test_crawls_and_agents_are_steered_by_the_first_digits_of_their_ids(world: World) -> None:
    world.register("steered", 1)
    stored = open_or_join(world.database, SellerId("steered"), triggered_by="test", now=utc_now()).stored
    give_up(world.database, stored.execution.id, "EXTERNAL_NETWORK", "no connection could be opened", utc_now())
    begins = str(stored.execution.id)[:8]
    with world.database.reading() as connection:
        agent_id = str(roster.list_agents(connection)[0].agent_id)

    states = [ask(world, "execution", action, begins).out for action in ("resume", "pause", "cancel")]
    agents = [ask(world, "agents", action, agent_id[:8]).out for action in ("block", "unblock")]

    steered = [f"{stored.execution.id} is {state}.\n" for state in ("RUNNING", "PAUSED", "CANCELLED")]
    assert states == steered
    assert agents == [f"{agent_id} is BLOCKED.\n", f"{agent_id} is AVAILABLE.\n"]


def test_an_id_that_two_crawls_or_agents_begin_with_is_not_guessed(world: World) -> None:
    alike = [f"abcdef01-0000-4000-8000-00000000000{number}" for number in (1, 2)]
    with world.database.transaction() as connection:
        for number, agent_id in enumerate(alike):
            world.register(f"alike {number}", 1)
            agents.insert_agents(connection, [UserAgent(id=UserAgentId(agent_id), user_agent=f"alike {number}")])
    for number, execution_id in enumerate(alike):
        opened = open_or_join(world.database, SellerId(f"alike {number}"), triggered_by="test", now=utc_now())
        with world.database.transaction() as connection:
            renamed = text("UPDATE crawling_schedule_executions SET execution_id = :id WHERE execution_id = :now")
            connection.execute(renamed, {"id": execution_id, "now": opened.stored.home.execution_id})

    for arguments in (("execution", "cancel"), ("agents", "block")):
        with pytest.raises(NotFound, match=r"More than one .* begins with abcdef01"):
            ask(world, *arguments, "abcdef01")
        assert alike[1] in ask(world, *arguments, alike[1]).out


def test_unblocking_wants_an_id_or_all(world: World) -> None:
    for arguments in ((), (str(uuid4()), "--all")):
        assert ask(world, "agents", "unblock", *arguments).code == 2
