"""The simulated world of `up` and `demo` is found where it was the last time."""

import os
import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mustit_pipeline.cli.world import simulated_world
from mustit_pipeline.settings import load_settings


@contextmanager
def world(home: Path) -> Generator[tuple[str, str]]:
    """One start of the servers, by a process that knows nothing of an earlier one; their addresses."""
    with pytest.MonkeyPatch.context() as patch:
        # Set by the world itself, so that they must be put back; without them it starts servers of its own.
        for name in ("MUSTIT_BASE_URL", "MUSTIT_PRODUCT_SERVER_URL"):
            patch.setenv(name, "")
            del os.environ[name]
        patch.setenv("MUSTIT_HOME", str(home))
        load_settings.cache_clear()
        with simulated_world({"s": 1}, announce=False) as made:
            assert made.marketplace is not None
            assert made.product_server is not None
            yield made.marketplace.url, made.product_server.url


def test_both_servers_keep_their_ports_from_start_to_start(tmp_path: Path) -> None:
    with world(tmp_path / "home") as first:
        pass
    with world(tmp_path / "home") as second:
        assert second == first


def test_a_port_that_another_process_has_taken_meanwhile_is_replaced(tmp_path: Path) -> None:
    with world(tmp_path / "home") as (first, receiver):
        pass
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", int(first.rpartition(":")[2])))
        other.listen()
        with world(tmp_path / "home") as second:
            assert second[0] != first
            assert second[1] == receiver
