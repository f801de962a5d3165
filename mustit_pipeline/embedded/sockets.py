"""Checks whether a server answers on its socket."""

import socket
from pathlib import Path

ANSWER_SECONDS = 5


def accepts(path: Path) -> bool:
    """Whether a process listens on the socket."""
    return _ask(path, b"") is not None


def answers_ping(path: Path) -> bool:
    """Whether a Redis answers on the socket."""
    return _ask(path, b"PING\r\n") == b"+PONG\r\n"


def _ask(path: Path, question: bytes) -> bytes | None:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(ANSWER_SECONDS)
            connection.connect(str(path))
            if not question:
                return b""
            connection.sendall(question)
            return connection.recv(64)
    except OSError:
        return None
