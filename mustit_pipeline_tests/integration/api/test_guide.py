"""Every example of the API guide is run as it stands there, against a real server."""

import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Self

import pytest
from fastapi import FastAPI
from sqlalchemy import text

from mustit_pipeline.access import users
from mustit_pipeline.api.live import Hub
from mustit_pipeline.domain.access import Password, Role, UserName
from mustit_pipeline.foundation.database import Database
from mustit_pipeline_tests.conftest import JWT_SECRET, NO_JQ, TOKEN_KEY, dagster_beside
from mustit_pipeline_tests.integration.api.served import served
from mustit_pipeline_tests.integration.api.test_holds import held_changes, held_deletions

GUIDE = Path(__file__).parents[3] / "docs" / "api.md"
BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)
NAME, PASSWORD = "kim", "correct horse battery"
DONE = "-- the block has ended --"


class Pipeline:
    """What the pipeline does beside the examples: opened crawls start, and a watched one comes to its end."""

    def __init__(self, database: Database, hub: Hub) -> None:
        self._database, self._hub = database, hub

    def start_crawls(self) -> None:
        self._set("status = 'RUNNING', started_at = now() WHERE status = 'PENDING'")

    def end_when_watched(self, over: threading.Event) -> None:
        while not self._hub.streams and not over.wait(0.02):
            pass
        self._set("status = 'COMPLETED', ended_at = now() WHERE status = 'RUNNING'")

    def _set(self, what: str) -> None:
        with self._database.transaction() as connection:
            connection.execute(text(f"UPDATE crawling_schedule_executions SET {what}"))


class Shell:
    """A shell that keeps its variables from block to block and ends with the first command that fails."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash", "-euo", "pipefail"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, block: str) -> str:
        """What a block shows."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{block}\necho; echo '{DONE}'\n")
        self._process.stdin.flush()
        shown = ""
        while not shown.endswith(f"{DONE}\n"):
            line = self._process.stdout.readline()
            assert line, f"{block}\nended with {self._process.wait()}:\n{shown}"
            shown += line
        return shown


def test_every_example_of_the_guide_works(app: FastAPI, database: Database, database_url: str, tmp_path: Path) -> None:
    if not (shutil.which("curl") and shutil.which("jq")):
        pytest.skip(NO_JQ)
    users.add(database, UserName(NAME), Role.ADMIN, Password(PASSWORD, UserName(NAME)))
    held_deletions(database)
    held_changes(database)
    pipeline, over = Pipeline(database, app.state.hub), threading.Event()
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "NAME": NAME,
        "PASSWORD": PASSWORD,
        "MUSTIT_HOME": str(tmp_path),
        "MUSTIT_DATABASE_URL": database_url,
        "MUSTIT_DAGSTER_DATABASE_URL": dagster_beside(database_url),
        "MUSTIT_TOKEN_KEY": TOKEN_KEY,
        "MUSTIT_JWT_SECRET": JWT_SECRET,
    }
    streams = 0
    with served(app) as address, Shell(environment | {"API": address}) as shell:
        for block in BLOCK.findall(GUIDE.read_text()):
            pipeline.start_crawls()
            if "/events" not in block:
                shell.run(block)
                continue
            ending = threading.Thread(target=pipeline.end_when_watched, args=(over,))
            ending.start()
            try:
                assert '"reason":"FINISHED","status":"COMPLETED"' in shell.run(block)
            finally:
                over.set()
                ending.join()
            streams += 1
    assert streams == 1
