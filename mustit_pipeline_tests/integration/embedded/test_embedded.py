"""The embedded servers as their users see them: started, shared, stopped, with the data kept."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis
import sqlalchemy as sa

from mustit_pipeline import embedded
from mustit_pipeline.embedded import EmbeddedError, Servers

USER = """
import sys
from dataclasses import asdict
from json import dumps
from pathlib import Path
from mustit_pipeline.embedded import attach
print(dumps(asdict(attach(Path(sys.argv[1])))), flush=True)
sys.stdin.read()
"""
# The checkout, and the folder of the dependencies for an interpreter outside the environment.
PYTHONPATH = os.pathsep.join(str(path) for path in (Path(__file__).parents[2], Path(psutil.__file__).parents[1]))


class User:
    """A process that uses the servers until it is told to leave."""

    def __init__(self, home: Path, *, uid: int | None = None, python: str = sys.executable) -> None:
        self.process = subprocess.Popen(
            [python, "-c", USER, str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": PYTHONPATH, "HOME": "/nonexistent"},
            cwd="/",
            user=uid,
            group=uid,
            extra_groups=None if uid is None else [],
        )

    def servers(self) -> Servers:
        """The addresses that this user got; waits until it has them."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1].decode()
        return Servers(**json.loads(line))

    def leave(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(30) == 0
        self._close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)
        self._close()

    def _close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()


def processes_of(home: Path) -> list[psutil.Process]:
    """Every process that belongs to this home: keeper, servers and their helpers."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            keeper = "mustit_pipeline.embedded.keeper" in (line := process.cmdline()) and str(home) in line
            if (keeper or process.cwd().startswith(f"{home}/")) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def is_over(process: psutil.Process) -> bool:
    """Whether a process ended, collected by its parent or not."""
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def eventually(condition: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def execute(url: str, statement: str) -> list[Any]:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        result = connection.execute(sa.text(statement))
        return list(result.scalars()) if result.returns_rows else []


def remember(servers: Servers) -> None:
    for url in (servers.database_url, servers.dagster_database_url):
        execute(url, "CREATE TABLE kept AS SELECT '머스트잇' AS word")


def assert_remembered(servers: Servers) -> None:
    for url in (servers.database_url, servers.dagster_database_url):
        assert execute(url, "SELECT word FROM kept") == ["머스트잇"]


def ping_redis(url: str) -> bool:
    with redis.Redis.from_url(url) as client:
        return bool(client.ping())


@pytest.fixture(scope="session")
def initialised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose cluster is made, to be copied: initdb takes longer than most of these tests."""
    made = tmp_path_factory.mktemp("embedded") / "home"
    embedded.attach(made, redis=False)
    embedded.release(made)
    return made


@pytest.fixture
def empty_home(tmp_path: Path) -> Iterator[Path]:
    """A home that does not exist yet."""
    home = Path(os.path.realpath(tmp_path)) / "home"
    yield home
    embedded.stop(home)
    assert processes_of(home) == []


@pytest.fixture
def home(initialised: Path, empty_home: Path) -> Path:
    """A home that was used before."""
    subprocess.run(["cp", "-a", str(initialised), str(empty_home)], check=True)
    return empty_home


def test_data_survives_and_nothing_is_left_behind_by_a_command(empty_home: Path) -> None:
    home = empty_home
    first = User(home)
    servers = first.servers()
    remember(servers)
    assert ping_redis(servers.redis_url)
    first.leave()
    assert processes_of(home) == []
    assert not (home / "run" / "s").exists()

    second = User(home)
    assert_remembered(second.servers())
    second.leave()
    assert processes_of(home) == []


def test_the_server_is_postgresql_18_with_safe_settings_whatever_the_machine_is_set_to(home: Path) -> None:
    url = embedded.attach(home, redis=False).database_url
    names = ["fsync", "synchronous_commit", "timezone", "server_encoding", "jit", "listen_addresses", "max_connections"]
    values = [execute(url, f"SHOW {name}")[0] for name in names]
    assert values == ["on", "on", "UTC", "UTF8", "off", "", "200"]
    assert execute(url, "SHOW server_version")[0].startswith("18.")
    assert execute(url, "SELECT datlocale FROM pg_database WHERE datname = 'mustit'") == ["C.UTF-8"]
    embedded.release(home)


def test_two_processes_share_the_servers_and_the_last_one_stops_them(home: Path) -> None:
    first, second = User(home), User(home)
    assert first.servers() == second.servers()
    pids = embedded.status(home)
    first.leave()
    assert embedded.status(home) == pids
    assert pids.running
    assert pids.in_use
    second.leave()
    assert processes_of(home) == []


def test_many_starters_at_once_get_the_same_servers(empty_home: Path) -> None:
    home = empty_home
    users = [User(home) for _ in range(4)]
    assert len({user.servers() for user in users}) == 1
    keepers = [process for process in processes_of(home) if "mustit_pipeline.embedded.keeper" in process.cmdline()]
    assert len(keepers) == 1
    for user in users:
        user.leave()


def test_a_process_that_arrives_while_the_last_one_leaves_gets_working_servers(home: Path) -> None:
    user = User(home)
    remember(user.servers())
    for _ in range(3):
        successor = User(home)
        user.leave()
        servers = successor.servers()
        assert_remembered(servers)
        assert ping_redis(servers.redis_url)
        user = successor
    user.leave()


def test_a_process_uses_the_servers_once_and_its_forked_child_does_not_end_that(home: Path) -> None:
    servers = embedded.attach(home)
    assert embedded.attach(home) == servers
    before = embedded.status(home)
    child = os.fork()
    if child == 0:
        embedded.release(home)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert embedded.status(home) == before
    embedded.release(home)
    assert processes_of(home) == []


def test_a_forked_child_that_attaches_keeps_the_servers_when_its_parent_leaves(home: Path) -> None:
    servers = embedded.attach(home)
    talk, listen = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            embedded.attach(home)
            os.write(talk[1], b"x")
            os.read(listen[0], 1)
            code = 0 if execute(servers.database_url, "SELECT 1") == [1] else 1
            embedded.release(home)
        finally:
            os._exit(code)
    os.read(talk[0], 1)
    embedded.release(home)
    os.write(listen[1], b"x")
    assert os.waitpid(child, 0)[1] == 0
    eventually(lambda: processes_of(home) == [])
    for descriptor in (*talk, *listen):
        os.close(descriptor)


def test_stop_ends_the_servers_under_their_users_who_can_attach_again(home: Path) -> None:
    remember(embedded.attach(home))
    other = User(home)
    other.servers()
    embedded.stop(home)
    assert processes_of(home) == []
    assert_remembered(embedded.attach(home))
    other.leave()
    embedded.release(home)
    assert processes_of(home) == []


def test_status_of_a_home_that_is_not_there_makes_nothing(empty_home: Path) -> None:
    found = embedded.status(empty_home)
    assert not found.running
    assert not found.in_use
    assert (found.keeper_pid, found.postgres_pid, found.redis_pid, found.socket_dir) == (None, None, None, None)
    assert not empty_home.exists()


def test_redis_runs_only_once_it_is_asked_for(home: Path) -> None:
    embedded.attach(home, redis=False)
    assert embedded.status(home).redis_pid is None
    assert ping_redis(embedded.attach(home).redis_url)
    embedded.release(home)


def test_a_start_that_fails_shows_the_end_of_the_log_and_leaves_nothing(home: Path) -> None:
    (home / "pgdata" / "PG_VERSION").write_text("17\n")
    with pytest.raises(EmbeddedError, match=r"(?s)postgres\.log.*database files are incompatible with server"):
        embedded.attach(home)
    assert not embedded.status(home).in_use
    assert processes_of(home) == []


def test_a_home_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EmbeddedError, match=r"file/home cannot be used as MUSTIT_HOME"):
        embedded.attach(tmp_path / "file" / "home")


def test_the_keeper_imports_nothing_of_the_pipeline_but_itself_and_the_error_that_all_share() -> None:
    code = "import sys, mustit_pipeline.embedded.keeper; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    ours = {name for name in loaded if name.startswith("mustit_pipeline.")}
    shared = {name for name in ours if not name.startswith("mustit_pipeline.embedded")}
    assert shared == {"mustit_pipeline.environment_failure"}
    assert not {"sqlalchemy", "psycopg", "pydantic", "dagster", "redis"} & set(loaded)
