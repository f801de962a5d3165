"""Run one simulated server until it is stopped."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import orjson
from aiohttp import web

from mustit_pipeline.simulator.answers import Answer, error_answer, json_answer
from mustit_pipeline.simulator.control_input import BadInputError, UnknownPathError, decoded, query_parameters
from mustit_pipeline.simulator.product_data import ProductDataError
from mustit_pipeline.simulator.world import ExistsError, MissingError

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
Control = Callable[[str, Sequence[str], dict[str, str], bytes], Awaitable[Any]]

_CONTROL = "/_control/"
_GRACE_SECONDS = 0.2


async def serve(handler: Handler, control: Control, host: str, port: int, *, watch_stdin: bool) -> None:
    """Listen, print the address, and serve until a signal or, if watched, the end of stdin."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        path, _, query = request.raw_path.partition("?")
        if path.startswith(_CONTROL):
            return (await _controlled(control, request.method, path, query, await request.read())).response()
        return await handler(request)

    # Without the cancellation a caller that gave up would stay "in flight" until its slow answer is ready.
    server = web.Server(handle, handler_cancellation=True, access_log=None)
    runner = web.ServerRunner(server, shutdown_timeout=_GRACE_SECONDS)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        bound = runner.addresses[0]
        shown = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
        sys.stdout.write(orjson.dumps({"url": f"http://{shown}:{bound[1]}"}).decode() + "\n")
        sys.stdout.flush()
        await _told_to_stop(watch_stdin=watch_stdin)
    finally:
        await runner.cleanup()


async def _controlled(control: Control, method: str, path: str, query: str, body: bytes) -> Answer:
    try:
        segments = [decoded(segment) for segment in path.removeprefix(_CONTROL).split("/")]
        return json_answer(200, await control(method, segments, query_parameters(query), body))
    except (BadInputError, ProductDataError) as error:
        return error_answer(400, str(error))
    except (UnknownPathError, MissingError) as error:
        return error_answer(404, str(error))
    except ExistsError as error:
        return error_answer(409, str(error))


async def _told_to_stop(*, watch_stdin: bool) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if not watch_stdin:
        await stop.wait()
        return
    # The process that started us holds the other end of stdin: it closes however that process ends, kill -9 included.
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    watching = asyncio.create_task(reader.read())
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({watching, stopping}, return_when=asyncio.FIRST_COMPLETED)
    watching.cancel()
    stopping.cancel()
    transport.close()
