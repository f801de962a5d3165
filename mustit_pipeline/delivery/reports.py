"""What the product server says it holds of one product, read as untrusted input."""

import asyncio
import random
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast
from urllib.parse import quote

import orjson

from mustit_pipeline.delivery.product_server import Answer, ProductServer, Reply, Verdict
from mustit_pipeline.domain.backoff import backoff_seconds

PRODUCTS_PATH = "/api/v1/products"
# No server has this path: what comes back is the server's answer to a call that it does not have.
NO_SUCH_PATH = "/api/v1/mustit-asks-for-what-no-server-has"
NO_ROUTE = frozenset({405, 501})
NOT_THERE = frozenset({404, 410})
REFUSED = frozenset({401, 403})
# Half of what a product's version is stored as: room for all that may ever come after it.
VERSIONS = range(2**30)
TRIES = 4
LONGEST_PAUSE_SECONDS = 5.0


class Finding(StrEnum):
    """What kind of answer came back."""

    HELD = "HELD"
    NOT_HELD = "NOT_HELD"
    NO_ROUTE = "NO_ROUTE"
    REFUSED = "REFUSED"
    DENIED = "DENIED"
    UNREACHABLE = "UNREACHABLE"
    UNANSWERED = "UNANSWERED"
    UNREADABLE = "UNREADABLE"


@dataclass(frozen=True, slots=True)
class Report:
    """What the server answered about one product."""

    finding: Finding
    version: int = 0
    data: dict[str, Any] | None = None
    reason: str = ""
    # What a "not there" looks like without the numbers and names in it.
    look: str = ""


UNREADABLE = Report(Finding.UNREADABLE, reason="its answer holds no version and productData")


async def ask(server: ProductServer, seller_id: str, item_no: int, *, pause_seconds: float) -> Report:
    """Ask until there is a word about the product, or no tries are left."""
    path = f"{PRODUCTS_PATH}/{quote(seller_id, safe='')}/{item_no}"
    report = Report(Finding.UNANSWERED)
    for attempt in range(1, TRIES + 1):
        report = read(await server.look(path))
        if report.finding not in (Finding.UNANSWERED, Finding.UNREACHABLE):
            return report
        if attempt < TRIES:
            await asyncio.sleep(backoff_seconds(attempt, pause_seconds, LONGEST_PAUSE_SECONDS, random.random()))
    return report


async def knows_the_call(server: ProductServer, not_held: Report) -> bool:
    """Whether "not there" is said about the product, and not about the address."""
    path = f"{NO_SUCH_PATH}/{random.randrange(10**9)}"
    return read(await server.look(path)).look != not_held.look


def read(reply: Reply | Answer) -> Report:
    """What an answer to a question for a product means."""
    if isinstance(reply, Answer):
        gone = reply.verdict in (Verdict.UNREACHABLE, Verdict.DROPPED)
        finding = Finding.UNREACHABLE if gone else Finding.UNANSWERED
        return Report(finding, reason=reply.reason or "")
    if reply.status in NOT_THERE:
        return Report(Finding.NOT_HELD, look=f"{reply.status} {_look(reply.body)}")
    if reply.status in NO_ROUTE:
        return Report(Finding.NO_ROUTE, reason=f"HTTP {reply.status}")
    if 200 <= reply.status < 300:
        return _held(reply.body)
    if reply.status in REFUSED:
        return Report(Finding.REFUSED, reason=f"HTTP {reply.status}")
    retried = reply.status in (408, 429) or reply.status >= 500
    # Anything else is said about this product alone.
    return Report(Finding.UNANSWERED if retried else Finding.DENIED, reason=f"HTTP {reply.status}")


def _held(body: bytes) -> Report:
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        return UNREADABLE
    if not isinstance(said, dict):
        return UNREADABLE
    product = cast("dict[str, Any]", said)
    version, data = product.get("version"), product.get("productData")
    if isinstance(version, bool) or not isinstance(version, int) or not (data is None or isinstance(data, dict)):
        return UNREADABLE
    if version not in VERSIONS:
        return Report(Finding.UNREADABLE, reason=f"version {version} is none of ours")
    if data is None:
        return Report(Finding.NOT_HELD, version, look="null")
    return Report(Finding.HELD, version, cast("dict[str, Any]", data))


def _look(body: bytes) -> str:
    """The body without what differs from call to call: its address, in whatever spelling, times and numbers."""
    said = re.sub(r"""/api/v1/[^"'\s<]*""", "", body[:4096].decode(errors="replace"))
    return re.sub(r"[0-9]+", "", said)
