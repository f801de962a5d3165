"""A recipient of notifications: a real HTTP server on a free loopback port that keeps the messages it takes."""

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from mustit_pipeline_tests.own_servers import QuietHandler, serving

TOKEN = "s3cret-token"


@dataclass
class Inbox:
    """What has arrived; while `refusing`, everything is answered with 500."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    refusing: bool = False
    # A sender is in the middle of its call: a test lets it go on.
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

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            body = self.body()
            inbox.arrived.set()
            inbox.go_on.wait(10)
            if not inbox.refusing:
                inbox.messages.append(json.loads(body))
            self.answer(500 if inbox.refusing else 200)

    with serving(Handler) as url:
        inbox.port = int(url.rpartition(":")[2])
        yield inbox
