"""Somebody who is told: a real HTTP server on a free loopback port that keeps the messages it takes."""

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "s3cret-token"


@dataclass
class Inbox:
    """What has arrived; while `refusing`, everything is answered with 500."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    refusing: bool = False
    # Somebody is in the middle of sending: a test lets them go on.
    arrived: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)
    port: int = 0

    @property
    def url(self) -> str:
        return f"json://127.0.0.1:{self.port}/{TOKEN}"

    @property
    def titles(self) -> list[str]:
        return [message["title"] for message in self.messages]


@contextmanager
def opened_inbox() -> Generator[Inbox]:
    inbox = Inbox()
    inbox.go_on.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            inbox.arrived.set()
            inbox.go_on.wait(10)
            if not inbox.refusing:
                inbox.messages.append(json.loads(body))
            self.send_response(500 if inbox.refusing else 200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    inbox.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield inbox
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
