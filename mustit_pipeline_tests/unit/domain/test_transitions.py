"""Every machine, every state, every move: through the aggregate's own method, or the table where it has none."""

from collections.abc import Callable
from typing import Any

import pytest

from mustit_pipeline.domain.errors import DomainError
from mustit_pipeline.domain.values import CrawlingInterval
from mustit_pipeline_tests.unit.domain import builders
from mustit_pipeline_tests.unit.domain.builders import LATER, T0
from mustit_pipeline_tests.unit.domain.transition_table import MACHINES, MATRIX, RULES

BUILDERS: dict[str, Callable[..., Any]] = {
    "seller": builders.seller,
    "schedule": builders.schedule,
    "execution": builders.execution,
    "task": builders.task,
    "agent": builders.agent,
    "product_outbox": builders.product_outbox,
    "scheduler_outbox": builders.scheduler_outbox,
}

METHODS: dict[str, dict[str, Callable[[Any], object]]] = {
    "seller": {"activate": lambda o: o.activate(T0), "deactivate": lambda o: o.deactivate(T0)},
    "schedule": {
        "activate": lambda o: o.activate(T0),
        "deactivate": lambda o: o.deactivate(T0),
        "change_interval": lambda o: o.change_interval(CrawlingInterval.days(7), T0),
    },
    "execution": {
        "start": lambda o: o.start(3, T0),
        "pause": lambda o: o.pause(),
        "resume": lambda o: o.resume(),
        "complete": lambda o: o.complete(T0),
        "fail": lambda o: o.fail("no plan", T0),
        "cancel": lambda o: o.cancel(T0),
    },
    "task": {
        "complete": lambda o: o.complete(T0),
        "fail": lambda o: o.fail("timeout", T0),
        "retry": lambda o: o.retry(),
        "release": lambda o: o.release(T0),
        "exhaust": lambda o: o.exhaust("received too often", T0),
    },
    "agent": {
        "recover": lambda o: o.recover(LATER),
        "block": lambda o: o.block(),
        "unblock": lambda o: o.unblock(),
    },
}
for outbox in ("product_outbox", "scheduler_outbox"):
    METHODS[outbox] = {
        "complete": lambda o: o.complete(T0),
        "fail": lambda o: o.fail("500"),
        "retry": lambda o: o.retry(),
        "release": lambda o: o.release(),
    }

# An agent is suspended by the answers it gets. The others are moves of many rows at once, which SQL makes by the table.
WITHOUT_METHOD = {("agent", "suspend"), ("schedule", "fail")} | {("raw", move) for move in RULES["raw"]}
WITHOUT_METHOD |= {("task", move) for move in ("publish", "republish", "withdraw", "start", "cancel")}
WITHOUT_METHOD |= {(name, move) for name in ("product_outbox", "scheduler_outbox") for move in ("send", "supersede")}


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_has_exactly_the_specified_moves(name: str) -> None:
    assert set(MACHINES[name].table) == set(RULES[name])


@pytest.mark.parametrize("name", MACHINES)
def test_sources_and_targets_are_readable_for_sql(name: str) -> None:
    machine = MACHINES[name]
    for move, rule in RULES[name].items():
        assert machine.sources(move) == set(rule.sources.split())
        assert machine.target(move) == rule.target


@pytest.mark.parametrize(("name", "move", "state"), [row for row in MATRIX if row[:2] in WITHOUT_METHOD])
def test_the_table_allows_what_is_specified_and_refuses_the_rest(name: str, move: str, state: Any) -> None:
    rule = RULES[name][move]
    if state in rule.sources.split():
        assert MACHINES[name].move(state, move) == rule.target
    else:
        with pytest.raises(rule.error) as refused:
            MACHINES[name].move(state, move)
        assert_refusal(refused.value, name, move)


@pytest.mark.parametrize(("name", "move", "state"), [row for row in MATRIX if row[:2] not in WITHOUT_METHOD])
def test_an_aggregate_does_what_is_specified_and_refuses_the_rest(name: str, move: str, state: Any) -> None:
    rule = RULES[name][move]
    aggregate = BUILDERS[name](status=state)
    if state in rule.sources.split():
        METHODS[name][move](aggregate)
        assert aggregate.status == rule.target
        assert isinstance(aggregate.status, MACHINES[name].states)
    else:
        with pytest.raises(rule.error) as refused:
            METHODS[name][move](aggregate)
        assert_refusal(refused.value, name, move)
        assert aggregate.status == state


@pytest.mark.parametrize("name", BUILDERS)
def test_the_state_cannot_be_assigned_from_outside(name: str) -> None:
    aggregate = BUILDERS[name]()
    with pytest.raises(AttributeError):
        aggregate.status = aggregate.status


def test_an_unknown_move_is_a_programming_error() -> None:
    with pytest.raises(KeyError):
        MACHINES["task"].move(MACHINES["task"].states.WAITING, "teleport")


def assert_refusal(error: DomainError, name: str, move: str) -> None:
    rule = RULES[name][move]
    assert error.code == rule.code
    assert error.korean == (rule.korean or error.korean)
    assert error.korean
    assert error.english
