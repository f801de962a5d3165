"""The embedded servers after kills, reboots and leftovers: the next command just works."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import psutil

from mustit_pipeline import embedded
from mustit_pipeline_tests.integration.test_embedded import (
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


def test_a_backend_that_outlived_its_killed_server_does_not_block_the_next_start(home: Path) -> None:
    user = User(home)
    servers = user.servers()
    remember(servers)
    busy = os.fork()
    if busy == 0:
        try:
            execute(servers.database_url, "SELECT count(*) FROM generate_series(1, 1000000000000)")
        finally:
            os._exit(0)
    query = "SELECT pid FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT count%'"
    eventually(lambda: execute(servers.database_url, query))
    orphan = psutil.Process(execute(servers.database_url, query)[0])
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
    os.kill(busy, signal.SIGKILL)
    os.waitpid(busy, 0)


def test_a_stale_pid_file_that_names_a_living_process_is_not_believed(home: Path) -> None:
    user = User(home)
    remember(user.servers())
    user.leave()
    sockets = home / "run" / "s"
    sockets.mkdir()
    owner = (home / "pgdata").stat().st_uid
    # A process of the servers' own account: PostgreSQL takes any other's pid for a stale one by itself.
    stranger = subprocess.Popen(["sleep", "600"], user=owner if os.geteuid() == 0 else None)
    pid_file = f"{stranger.pid}\n{home}/pgdata\n1700000000\n5432\n{sockets}\n\n  2148656         9\nready   \n"
    (home / "pgdata" / "postmaster.pid").write_text(pid_file)
    (home / "redis" / "redis.pid").write_text(f"{stranger.pid}\n")
    (sockets / ".s.PGSQL.5432.lock").write_text(pid_file)
    for name in (".s.PGSQL.5432", "redis.sock"):
        (sockets / name).touch()
    (home / "run" / "keeper.lock").write_text(str(stranger.pid))
    (home / "run" / "servers.json").write_text(
        f'{{"keeper_pid": {stranger.pid}, "socket_folder": "{sockets}", "postgres_pid": 1, "redis_pid": 1}}'
    )
    assert not embedded.status(home).running
    embedded.stop(home)

    (home / "pgdata" / "postmaster.pid").write_text(pid_file)
    sockets.mkdir()
    (sockets / ".s.PGSQL.5432.lock").write_text(pid_file)
    again = User(home)
    servers = again.servers()
    assert_remembered(servers)
    assert ping_redis(servers.redis_url)
    again.leave()
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


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
