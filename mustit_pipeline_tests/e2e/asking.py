"""Commands asked in this process or on a screen of some width, and crawls without a process of their own."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any, Protocol
from unittest.mock import patch

from typer.testing import CliRunner

from mustit_pipeline.cli.app import app, run
from mustit_pipeline.settings import Settings, load_settings
from mustit_pipeline_tests.e2e.conftest import COMMAND, Answer, Mustit, World

# Several commands one after the other: a process for each would import them all again.
ONE_AFTER_THE_OTHER = """
import json, sys
from mustit_pipeline.cli.app import run
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["mustit", *arguments]
    try:
        run()
    except SystemExit as end:
        assert not end.code, arguments
    print("\\f", flush=True)
"""
COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def ask(world: World, *arguments: str, **changed: str) -> Answer:
    """Run a command in this process; an error that the command would explain is raised."""
    environment = {**world.mustit.environment, "MUSTIT_HOME": str(world.mustit.home), **changed}
    load_settings.cache_clear()
    try:
        result = CliRunner().invoke(app, list(arguments), env=environment)
    finally:
        load_settings.cache_clear()
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Answer(result.exit_code, result.stdout, result.stderr)


class Home(Protocol):
    """A world, or what else a command line belongs to."""

    @property
    def mustit(self) -> Mustit:
        """The command line."""
        ...


def explained(home: Home | Mustit, *arguments: str, stdin: str = "", **changed: str) -> Answer:
    """The same with its errors explained, as `mustit` does it."""
    environment = (home if isinstance(home, Mustit) else home.mustit).variables(**changed)
    out, err = StringIO(), StringIO()
    load_settings.cache_clear()
    with (
        patch.dict(os.environ, environment, clear=True),
        patch.object(sys, "argv", [COMMAND, *arguments]),
        patch.object(sys, "stdin", StringIO(stdin)),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            run()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        finally:
            load_settings.cache_clear()
    return Answer(code, out.getvalue(), err.getvalue())


def on_screens(world: World, columns: int, *commands: tuple[str, ...]) -> list[list[str]]:
    """What a terminal of that width shows of each command, line by line, without its colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {**os.environ, "MUSTIT_HOME": str(world.mustit.home), "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    environment.pop("NO_COLOR", None)
    python = [sys.executable, "-c", ONE_AFTER_THE_OTHER, json.dumps(commands)]
    with subprocess.Popen(python, env=environment, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        try:
            while chunk := os.read(ours, 65536):
                shown += chunk
        except OSError:
            pass  # Linux says so when the other end of a terminal is closed.
        finally:
            os.close(ours)
    assert process.returncode == 0, shown.decode()
    screens = shown.decode().split("\f")[:-1]
    assert all(COLOUR.search(screen) for screen in screens)
    return [
        [line.rstrip() for line in COLOUR.sub("", screen).replace("\r", "").strip("\n").splitlines()]
        for screen in screens
    ]


def settings_of(world: World, **changed: str) -> Settings:
    """What the commands of this world run with, for crawls and relays without the seconds that a process takes."""
    environment = world.mustit.environment
    values: dict[str, Any] = {
        "home": world.mustit.home,
        "base_url": environment["MUSTIT_BASE_URL"],
        "product_server_url": environment["MUSTIT_PRODUCT_SERVER_URL"],
        "requests_per_hour": 100_000,
        "min_request_gap_seconds": 0,
        "retry_base_seconds": 0.05,
        "recrawl": "everything",
        "outbox_retry_base_seconds": 0.05,
    }
    values.update(changed)
    return Settings(**values)
