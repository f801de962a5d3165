"""The marketplace's kinds of fault and how each of them answers."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

from aiohttp import web

from mustit_pipeline.simulator.answers import HTML, Answer, cut, drip, error_answer, reset
from mustit_pipeline.simulator.faults import Fault, FaultKind

API = frozenset({"listing", "detail", "options"})
ENDPOINTS = ("session", "listing", "detail", "options")
_ALL = frozenset(ENDPOINTS)

FAULTS: Mapping[str, FaultKind] = {
    "429": FaultKind(_ALL, status=429),
    "storm": FaultKind(_ALL, status=429, lasts=True),
    "5xx": FaultKind(_ALL, status=503),
    "status": FaultKind(_ALL, status=500),
    # Lies unread for so long, and is counted only then, whether or not the caller still waits.
    "late": FaultKind(_ALL, seconds=5.0, unread=True),
    "slow": FaultKind(_ALL, seconds=5.0),
    "drip": FaultKind(_ALL, seconds=5.0),
    "reset": FaultKind(_ALL),
    "cut": FaultKind(_ALL),
    "truncated": FaultKind(_ALL),
    "html": FaultKind(_ALL),
    "null": FaultKind(_ALL),
    "wrong_shape": FaultKind(_ALL),
    "wrong_seller": FaultKind(API),
    "count_zero": FaultKind(frozenset({"listing"})),
    # Count and pages leave out the last 40 %, which are on sale all the same.
    "count_short": FaultKind(frozenset({"listing"})),
    "empty_page": FaultKind(frozenset({"listing"})),
    "repeated_page": FaultKind(frozenset({"listing"})),
    "token_refused": FaultKind(API, status=401),
}

_MAINTENANCE = "<!doctype html><html><body><h1>서비스 점검 중입니다</h1></body></html>".encode()


async def faulty(request: web.BaseRequest, fault: Fault, usual: Callable[[], Answer]) -> web.StreamResponse:
    """What the caller gets instead of, or made out of, the usual answer."""
    instead = _instead(fault)
    if instead is not None:
        return instead.response()
    if fault.kind == "reset":
        return reset(request)
    if fault.kind == "slow":
        await asyncio.sleep(fault.seconds)
        return usual().response()
    answer = usual()
    if fault.kind == "drip":
        return await drip(request, answer, fault.seconds)
    if fault.kind == "cut":
        return await cut(request, answer)
    if fault.kind == "truncated":
        return replace(answer, body=answer.body[: len(answer.body) // 2], headers=()).response()
    return answer.response()


def _instead(fault: Fault) -> Answer | None:
    if fault.kind in ("429", "storm", "5xx", "status", "token_refused"):
        headers = () if fault.retry_after is None or fault.status not in (429, 503) else (fault.retry_after,)
        return error_answer(fault.status, "injected", *(("Retry-After", value) for value in headers))
    if fault.kind == "html":
        return Answer(200, _MAINTENANCE, HTML)
    if fault.kind == "null":
        return Answer(200, b"null")
    if fault.kind == "wrong_shape":
        return Answer(200, b'{"result":"OK","data":{"list":"none"}}')
    return None
