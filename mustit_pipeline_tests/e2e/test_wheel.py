"""The wheel alone is enough: what `mustit` makes DAGSTER_HOME of travels inside it."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
LOOK = """
from mustit_pipeline.cli.dagster_home import ROOT, WORKSPACE, make_dagster_home
from mustit_pipeline.settings import load_settings
print(ROOT, WORKSPACE, make_dagster_home(load_settings()), sep="\\n")
"""


def test_a_wheel_away_from_the_checkout_makes_its_dagster_home(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [wheel] = (tmp_path / "dist").iterdir()
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path / "site")
    environment = {
        **os.environ,
        "PYTHONPATH": str(tmp_path / "site"),
        "MUSTIT_HOME": str(tmp_path / "home"),
        "MUSTIT_RUN_LAUNCHER": "celery",
    }

    made = subprocess.run(
        [sys.executable, "-c", LOOK], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    )

    root, workspace, home = map(Path, made.stdout.split())
    assert root == tmp_path / "site" / "mustit_pipeline" / "deployed"
    assert workspace.read_text() == (ROOT / "workspace.yaml").read_text()
    composed = yaml.safe_load((home / "dagster.yaml").read_text())
    assert composed["run_queue"]["tag_concurrency_limits"][1] == {"key": "dagster/backfill", "limit": 3}
    assert composed["run_launcher"]["class"] == "CeleryRuns"
    assert {one.relative_to(ROOT) for one in (ROOT / "deploy").rglob("*.*")} == {
        one.relative_to(root) for one in (root / "deploy").rglob("*.*")
    }
