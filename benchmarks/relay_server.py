"""A product server that does as little as it can: it counts what it is sent and answers, at once or after a pause."""

import asyncio
import json
import sys
from collections import Counter
from typing import cast
from urllib.parse import parse_qs, urlsplit

import httptools
import uvloop


class Received:
    """What has arrived since the counts were reset, and how long each answer takes."""

    def __init__(self) -> None:
        self.reset(0.0)

    def reset(self, delay_seconds: float) -> None:
        """Count anew."""
        self.delay_seconds = delay_seconds
        self.events: Counter[bytes] = Counter()
        self.body_bytes = self.open = self.most_open = 0

    def document(self) -> dict[str, int]:
        """The counts."""
        return {
            "events": self.events.total(),
            "keys": len(self.events),
            "bodyBytes": self.body_bytes,
            "mostInFlight": self.most_open,
        }


class Call(asyncio.Protocol):
    """One connection, one request at a time on it."""

    def __init__(self, received: Received) -> None:
        self._received = received
        self._parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._url, self._key, self._length = b"", b"", 0

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"idempotency-key":
            self._key = value

    def on_body(self, body: bytes) -> None:
        self._length += len(body)

    def on_message_complete(self) -> None:
        if self._parser.get_method() == b"POST" and self._key:
            self._event()
        else:
            self._control()

    def _event(self) -> None:
        received = self._received
        received.events[self._key] += 1
        received.body_bytes += self._length
        received.open += 1
        received.most_open = max(received.most_open, received.open)
        if received.delay_seconds:
            asyncio.get_running_loop().call_later(received.delay_seconds, self._answer_event)
        else:
            self._answer_event()

    def _answer_event(self) -> None:
        self._received.open -= 1
        self._answer(b'{"duplicate":false}')

    def _control(self) -> None:
        address = urlsplit(self._url.decode())
        if address.path == "/reset":
            self._received.reset(float(parse_qs(address.query)["delay"][0]))
        self._answer(json.dumps(self._received.document()).encode())

    def _answer(self, body: bytes) -> None:
        self._transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        )


async def _serve() -> None:
    """Listen until the one who started it closes our standard input."""
    received = Received()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Call(received), "127.0.0.1", 0, backlog=1024)
    host, port = server.sockets[0].getsockname()
    print(json.dumps({"url": f"http://{host}:{port}"}), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(_serve())
