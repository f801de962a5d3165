"""The embedded servers after kills, reboots and leftovers: the next command just works."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import psycopg
import pytest

from mustit_pipeline import embedded
from mustit_pipeline_tests.integration.embedded.test_embedded import (
    User,
    assert_remembered,
    empty_home,
    eventually,
    execute,
    home,
    initialised,
    is_over,
    ping_redis,
    processes_of,
    remember,
)

__all__ = ["empty_home", "home", "initialised"]


def pid_of(value: int | None) -> int:
    assert value is not None
    return value


def kill(pid: int | None) -> None:
    process = psutil.Process(pid_of(pid))
    process.kill()
    eventually(lambda: is_over(process))


def answers(url: str) -> bool:
    try:
        return execute(url, "SELECT 1") == [1]
    except Exception:  # any refusal means: not yet
        return False


def redis_answers(url: str) -> bool:
    try:
        return ping_redis(url)
    except Exception:  # any refusal means: not yet
        return False


def test_servers_stop_by_themselves_after_their_user_was_killed(home: Path) -> None:
    user = User(home)
    user.servers()
    user.kill()
    eventually(lambda: processes_of(home) == [])


def test_a_new_keeper_goes_on_with_the_servers_of_a_killed_one(home: Path) -> None:
    first = User(home)
    servers = first.servers()
    remember(servers)
    before = embedded.status(home)
    kill(before.keeper_pid)
    assert answers(servers.database_url)

    second = User(home)
    assert_remembered(second.servers())
    after = embedded.status(home)
    assert (after.postgres_pid, after.redis_pid) == (before.postgres_pid, before.redis_pid)
    assert after.keeper_pid not in (None, before.keeper_pid)
    second.leave()
    first.leave()
    eventually(lambda: processes_of(home) == [])


def test_the_last_user_stops_the_servers_that_a_killed_keeper_left(home: Path) -> None:
    user = User(home)
    user.servers()
    kill(embedded.status(home).keeper_pid)
    user.leave()
    assert processes_of(home) == []


def test_servers_that_die_are_started_again_under_their_users(home: Path) -> None:
    user = User(home)
    servers = user.servers()
    remember(servers)
    before = embedded.status(home)
    kill(before.postgres_pid)
    eventually(lambda: answers(servers.database_url))
    assert_remembered(servers)
    kill(before.redis_pid)
    eventually(lambda: redis_answers(servers.redis_url))
    assert embedded.status(home).keeper_pid == before.keeper_pid
    assert "PostgreSQL died" in (home / "logs" / "keeper.log").read_text()
    user.leave()
    assert processes_of(home) == []


def test_a_server_that_dies_again_and_again_takes_no_other_with_it(home: Path) -> None:
    """Its keeper once gave up after five deaths within a minute, and stopped the other server too."""
    user = User(home)
    servers = user.servers()
    before = embedded.status(home)
    for _ in range(6):
        eventually(lambda: embedded.status(home).redis_pid is not None and redis_answers(servers.redis_url))
        kill(embedded.status(home).redis_pid)
    eventually(lambda: redis_answers(servers.redis_url))
    assert (embedded.status(home).postgres_pid, answers(servers.database_url)) == (before.postgres_pid, True)
    assert "after a rest" in (home / "logs" / "keeper.log").read_text()
    user.leave()


def test_data_survives_when_every_process_is_killed(home: Path) -> None:
    user = User(home)
    remember(user.servers())
    kill(embedded.status(home).keeper_pid)
    for process in processes_of(home):
        process.kill()
    user.kill()
    eventually(lambda: processes_of(home) == [])

    survivor = User(home)
    assert_remembered(survivor.servers())
    survivor.leave()


@pytest.fixture
def stranger(home: Path) -> Iterator[int]:
    """A living process of the servers' own account: PostgreSQL takes any other's pid for a stale one by itself."""
    owner = (home / "pgdata").stat().st_uid
    with subprocess.Popen(["sleep", "600"], user=owner if os.geteuid() == 0 else None) as process:
        yield process.pid
        assert process.poll() is None
        process.kill()


def test_a_backend_that_outlived_its_killed_server_does_not_block_the_next_start(home: Path) -> None:
    user = User(home)
    servers = user.servers()
    remember(servers)
    with closing(psycopg.connect(servers.database_url.replace("+psycopg", ""))) as connection:
        orphan = psutil.Process(connection.info.backend_pid)
        connection.pgconn.send_query(b"SELECT count(*) FROM generate_series(1, 1000000000000)")
        before = embedded.status(home)
        kill(before.keeper_pid)
        # Frozen, it cannot notice that its postmaster died, as one deep in a computation does not.
        orphan.send_signal(signal.SIGSTOP)
        kill(before.postgres_pid)
        user.kill()

        survivor = User(home)
        assert_remembered(survivor.servers())
        assert is_over(orphan)
        survivor.leave()


def test_a_stale_pid_file_that_names_a_living_process_is_not_believed(home: Path, stranger: int) -> None:
    sockets = home / "run" / "s"
    pid_file = f"{stranger}\n{home}/pgdata\n1700000000\n5432\n{sockets}\n\n  2148656         9\nready   \n"
    state = {"keeper_pid": stranger, "socket_folder": str(sockets), "postgres_pid": stranger, "redis_pid": stranger}
    leftovers = {
        home / "pgdata" / "postmaster.pid": pid_file,
        home / "redis" / "redis.pid": f"{stranger}\n",
        sockets / ".s.PGSQL.5432.lock": pid_file,
        sockets / ".s.PGSQL.5432": "",
        sockets / "redis.sock": "",
        home / "run" / "keeper.lock": str(stranger),
        home / "run" / "servers.json": json.dumps(state),
    }

    def leave_behind() -> None:
        for path, text in leftovers.items():
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)

    leave_behind()
    found = embedded.status(home)
    assert (found.running, found.keeper_pid, found.postgres_pid, found.redis_pid) == (False, None, None, None)
    embedded.stop(home)

    leave_behind()
    user = User(home)
    servers = user.servers()
    assert answers(servers.database_url)
    assert ping_redis(servers.redis_url)
    user.leave()


def test_a_kill_while_the_cluster_is_being_made_leaves_no_half_of_one(empty_home: Path) -> None:
    home = empty_home
    user = User(home)
    eventually(lambda: list(home.glob("pgdata.new-*/PG_VERSION")))
    keeper = next(process for process in processes_of(home) if "mustit_pipeline.embedded.keeper" in process.cmdline())
    keeper.kill()
    user.kill()
    assert not (home / "pgdata").exists()

    survivor = User(home)
    remember(survivor.servers())
    survivor.leave()
    eventually(lambda: processes_of(home) == [])
    assert not list(home.glob("pgdata.new-*"))


def test_servers_whose_home_is_removed_end_and_a_new_home_starts_afresh(home: Path) -> None:
    user = User(home)
    user.servers()
    running = processes_of(home)
    shutil.rmtree(home, ignore_errors=True)
    eventually(lambda: all(is_over(process) for process in running))
    # What they still wrote while their home was being removed.
    shutil.rmtree(home, ignore_errors=True)
    fresh = User(home)
    assert answers(fresh.servers().database_url)
    fresh.leave()
    user.leave()


def test_sockets_that_were_cleaned_away_come_back(home: Path) -> None:
    user = User(home)
    servers = user.servers()
    shutil.rmtree(home / "run" / "s")
    eventually(lambda: answers(servers.database_url) and redis_answers(servers.redis_url))
    user.leave()
