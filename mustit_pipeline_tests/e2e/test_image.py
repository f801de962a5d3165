"""The image's steps in a plain folder: what they build starts, and works on a database."""

import os
import re
import shlex
import shutil
import site
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import Marker
from packaging.version import Version

from mustit_pipeline_tests.architecture.deployments import ROOT, instructions
from mustit_pipeline_tests.conftest import JWT_SECRET, TOKEN_KEY, dagster_beside

# Folders of the image; in the test they lie in a folder of its own.
FOLDERS = ("/opt/mustit", "/var/lib", "/src")
# For root alone: the account, and whose files are whose.
ONLY_ROOT = ("useradd", "chown")


def moved(text: str, folder: Path) -> str:
    """A text with the image's folders as they are called here."""
    for name in FOLDERS:
        text = re.sub(rf"(?<![\w.]){re.escape(name)}\b", f"{folder}{name}", text)
    return text


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the Dockerfile's steps were done, but for the download of locked wheels.

    In its place the new environment sees this one's packages; another test looks whether they are the locked ones.
    """
    folder = tmp_path_factory.mktemp("image")
    here = folder
    for word, rest in instructions():
        if word == "WORKDIR":
            here = Path(moved(rest, folder))
            here.mkdir(parents=True, exist_ok=True)
        elif word == "COPY" and "--from" not in rest:
            *sources, target = [part for part in rest.split() if not part.startswith("--")]
            _copy(sources, here / moved(target, folder), many=target.endswith("/"))
        elif word == "RUN" and not rest.startswith(ONLY_ROOT):
            _run(_without_download(moved(rest, folder)), here)
    return folder


def _copy(sources: list[str], target: Path, *, many: bool) -> None:
    for source in sources:
        path = ROOT / source
        if path.is_dir():
            shutil.copytree(path, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            place = target / path.name if many else target
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)


def _without_download(command: str) -> str:
    """The same step, but where it would install locked wheels: the image's environment sees ours."""
    if "--require-hashes" not in command:
        return command
    if (found := re.search(r"--python (\S+)/bin/python", command)) is None:
        return "true"
    packages = Path(found[1]) / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    return f"echo {shlex.quote(site.getsitepackages()[0])} > {shlex.quote(str(packages))}/ours.pth"


def _run(command: str, folder: Path) -> None:
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(
        ["sh", "-c", command], cwd=folder, env={**variables, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, f"{command}\n{ended.stdout}{ended.stderr}"


def started(image: Path, command: list[str], variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """A command in the image's environment."""
    given = {"PATH": f"{image}/opt/mustit/.venv/bin:/usr/bin:/bin", "MUSTIT_HOME": f"{image}/var/lib/mustit"}
    return subprocess.run(
        command, cwd=image, env={**given, **variables}, capture_output=True, text=True, check=False, timeout=120
    )


def test_the_steps_make_a_mustit_of_this_code_that_works_on_a_database(image: Path, database_url: str) -> None:
    variables = {
        "MUSTIT_DATABASE_URL": database_url,
        "MUSTIT_DAGSTER_DATABASE_URL": dagster_beside(database_url),
        "MUSTIT_REDIS_URL": "off",
        "MUSTIT_TOKEN_KEY": TOKEN_KEY,
        "MUSTIT_JWT_SECRET": JWT_SECRET,
    }
    code = (
        "import mustit_pipeline, mustit_pipeline.cli.dagster_home as home; print(mustit_pipeline.__file__, home.BASE)"
    )

    healthy = started(image, ["mustit", "db", "status"], variables)
    where = started(image, ["python", "-c", code], variables)

    assert healthy.returncode == 0, healthy.stdout + healthy.stderr
    [package, base] = where.stdout.split()
    installed = image / "opt/mustit/.venv"
    assert installed in Path(package).parents
    assert Path(base).read_text() == (ROOT / "dagster.yaml").read_text()
    assert sorted(path.name for path in (image / "var/lib/dagster").iterdir()) == ["dagster.yaml", "workspace.yaml"]


def test_a_database_that_is_not_there_is_no_health(image: Path) -> None:
    variables = {
        "MUSTIT_DATABASE_URL": "postgresql://mustit:x@127.0.0.1:9/mustit",
        "MUSTIT_DAGSTER_DATABASE_URL": "postgresql://mustit:x@127.0.0.1:9/mustit_dagster",
        "MUSTIT_TOKEN_KEY": TOKEN_KEY,
        "MUSTIT_JWT_SECRET": JWT_SECRET,
    }
    assert started(image, ["mustit", "db", "status"], variables).returncode == 1


def test_the_packages_that_these_tests_use_are_those_of_the_image() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    other: dict[str, Any] = {}
    for name, pinned, condition in re.findall(r"^([\w.-]+)(?:\[.*?\])?==([^ \\]+)(?: ; ([^\\]+))?", lock, re.MULTILINE):
        if (not condition or Marker(condition.strip()).evaluate()) and Version(version(name)) != Version(pinned):
            other[name] = (version(name), pinned)
    assert other == {}
