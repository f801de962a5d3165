"""The web application on a real port, for what a client in the same process cannot show."""

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from mustit_pipeline.api.connections import Connection


@contextmanager
def served(app: FastAPI) -> Generator[str]:
    """The address of a server that listens until the end."""
    server = uvicorn.Server(
        uvicorn.Config(app, port=0, log_level="error", http=Connection, timeout_graceful_shutdown=5)
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()
