"""Questions to product servers, and one whose answers a test writes itself."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from mustit_pipeline.delivery.reconcile import Reconciliation, reconcile
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.integration.catalog.shelf import Shelf, utc_now


def look(shelf: Shelf, settings: Settings, *, resend: bool = False) -> Reconciliation:
    """Compare the products of a test's seller."""
    return reconcile(shelf.database, settings, seller_id=SellerId(shelf.seller_id), resend=resend, now=utc_now)


@contextmanager
def a_server_that_says(status: int, body: bytes, *, only: str = "") -> Generator[str]:
    """To everything, or only to addresses that begin so; it has no others."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            said = body.replace(b"PATH", self.path.encode()) if self.path.startswith(only) else b""
            self.send_response(status if self.path.startswith(only) else 404)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, format: str, *args: object) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.server_port}"
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()
