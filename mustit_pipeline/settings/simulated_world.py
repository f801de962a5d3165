"""The simulated servers that a running `mustit up` announces to every other command of the same HOME."""

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from pydantic_settings import PydanticBaseSettingsSource


def simulated_world_file(home: Path) -> Path:
    """The file in which `mustit up` announces its simulated servers; it holds a lock on it while they run."""
    return home / "run" / "simulated.json"


def read_simulated_world(home: Path) -> dict[str, Any]:
    """The announced servers; empty if no process holds the file's lock."""
    try:
        with simulated_world_file(home).open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return json.load(file)
    except (OSError, ValueError):
        return {}
    return {}


class SimulatedWorldSource(PydanticBaseSettingsSource):
    """The announced servers as settings; the environment wins over them."""

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        # Unlike Path.expanduser this does not raise for an unknown account: the field's own check does.
        home = os.path.expanduser(os.environ.get("MUSTIT_HOME") or ".mustit")
        return read_simulated_world(Path(home))
