"""AWS as moto simulates it, in the process of the benchmark; moto takes seconds to import."""

import logging
from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from threading import Thread
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

REGION = "ap-northeast-2"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": REGION}


@contextmanager
def simulated_aws() -> Generator[tuple[str, Counter[str]]]:
    """Its address, and the calls that it has answered."""
    calls: Counter[str] = Counter()
    app = DomainDispatcherApplication(create_backend_app)

    def counting(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        calls[environ.get("HTTP_X_AMZ_TARGET", "").rpartition(".")[2]] += 1
        return app(environ, start_response)

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, counting, threaded=True)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", calls
    finally:
        server.shutdown()
        thread.join()
