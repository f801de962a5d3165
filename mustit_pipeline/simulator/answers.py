"""Answers, and the ways in which sending one can go wrong."""

import asyncio
import socket
import struct
from dataclasses import dataclass

import orjson
from aiohttp import web
from multidict import CIMultiDict

JSON = "application/json; charset=utf-8"
HTML = "text/html; charset=utf-8"

_LINGER_NONE = struct.pack("ii", 1, 0)
_DRIPS = 16


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer that is sent without a fault."""

    status: int
    body: bytes
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()

    def response(self) -> web.Response:
        """The answer as a response."""
        return web.Response(status=self.status, body=self.body, headers=self.all_headers())

    def all_headers(self) -> CIMultiDict[str]:
        """The content type and all other headers."""
        headers = CIMultiDict(self.headers)
        headers["Content-Type"] = self.content_type
        return headers


def json_answer(status: int, payload: object, *headers: tuple[str, str]) -> Answer:
    """Any JSON."""
    return Answer(status, orjson.dumps(payload), JSON, headers)


def error_answer(status: int, message: str, *headers: tuple[str, str]) -> Answer:
    """An error with a message."""
    return json_answer(status, {"status": status, "error": message}, *headers)


def reset(request: web.BaseRequest) -> web.StreamResponse:
    """Break the caller's connection at once, without an answer."""
    transport = request.transport
    if transport is not None:
        connection = transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
        transport.abort()
    return web.Response(status=503)


async def hang(request: web.BaseRequest, seconds: float) -> web.StreamResponse:
    """Send no answer for so long, then break the connection."""
    await asyncio.sleep(seconds)
    return reset(request)


async def drip(request: web.BaseRequest, answer: Answer, seconds: float) -> web.StreamResponse:
    """Send the whole answer slowly."""
    response = await _started(request, answer)
    size = len(answer.body) // _DRIPS + 1
    for start in range(0, len(answer.body), size):
        await asyncio.sleep(seconds / _DRIPS)
        await response.write(answer.body[start : start + size])
    await response.write_eof()
    return response


async def cut(request: web.BaseRequest, answer: Answer) -> web.StreamResponse:
    """Close the connection in the middle of the body."""
    response = await _started(request, answer)
    await response.write(answer.body[: len(answer.body) // 2])
    if request.transport is not None:
        request.transport.close()
    return response


async def _started(request: web.BaseRequest, answer: Answer) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, headers=answer.all_headers())
    response.content_length = len(answer.body)
    await response.prepare(request)
    return response
