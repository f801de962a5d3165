"""A state machine as a table of named moves, readable by aggregates and by SQL."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from mustit_pipeline.domain.errors import Conflict

S = TypeVar("S", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Move(Generic[S]):
    """One named change of state, and the message when it is refused."""

    sources: frozenset[S]
    target: S
    code: str
    korean: str
    english: str


@dataclass(frozen=True, slots=True)
class StateMachine(Generic[S]):
    """All moves of one aggregate's state."""

    states: type[S]
    table: Mapping[str, Move[S]]

    def sources(self, move: str) -> frozenset[S]:
        """The states that a move may start from."""
        return self.table[move].sources

    def target(self, move: str) -> S:
        """The state that a move ends in."""
        return self.table[move].target

    def move(self, current: S, move: str) -> S:
        """The state after the move; raises Conflict where the move is forbidden."""
        rule = self.table[move]
        if current not in rule.sources:
            raise Conflict(rule.code, korean=rule.korean, english=rule.english)
        return rule.target


def _listed(states: tuple[StrEnum, ...], last: str) -> str:
    *first, final = states
    return f"{', '.join(first)} {last} {final}" if first else str(final)


def only(sources: tuple[S, ...], target: S, code: str, korean: str, english: str) -> Move[S]:
    """A move whose refusal names the states it needs."""
    korean = f"{_listed(sources, '또는')} 상태에서만 {korean} 수 있습니다"
    english = f"{english} while {_listed(sources, 'or')}"
    return Move(frozenset(sources), target, code, korean, english)


def unless_already(sources: tuple[S, ...], target: S, code: str, thing: str) -> Move[S]:
    """A move that is refused only because it has happened already."""
    korean, english = f"이미 {target} 상태입니다", f"The {thing} is already {target}"
    return Move(frozenset(sources), target, code, korean, english)
