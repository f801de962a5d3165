"""The keeper's message to the users: which servers are ready, and their addresses."""

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from mustit_pipeline.embedded.layout import Layout


@dataclass(frozen=True)
class State:
    """The ready servers."""

    keeper_pid: int
    socket_folder: str
    postgres_pid: int | None
    redis_pid: int | None
    notes: list[str] = field(default_factory=list[str])

    @property
    def sockets(self) -> Path:
        return Path(self.socket_folder)


def publish(layout: Layout, state: State) -> None:
    """Replace the state atomically, so that no user reads a partial file."""
    fresh = layout.state.with_name(f"{layout.state.name}.{os.getpid()}")
    fresh.write_text(json.dumps(asdict(state)))
    layout.give_to_home_owner(fresh)
    fresh.replace(layout.state)


def withdraw(layout: Layout) -> None:
    """Remove the state: no server is ready."""
    layout.state.unlink(missing_ok=True)


def read(layout: Layout) -> State | None:
    """The published state, if any; a killed keeper leaves its state behind."""
    try:
        return State(**json.loads(layout.state.read_text()))
    except (OSError, ValueError, TypeError):
        return None
