"""Questions to product servers, and one whose answers a test writes itself."""

from collections.abc import Generator
from contextlib import contextmanager

from mustit_pipeline.delivery.reconcile import Reconciliation, reconcile
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.integration.catalog.shelf import Shelf, utc_now
from mustit_pipeline_tests.own_servers import QuietHandler, serving


def look(shelf: Shelf, settings: Settings, *, resend: bool = False) -> Reconciliation:
    """Compare the products of a test's seller."""
    return reconcile(shelf.database, settings, seller_id=SellerId(shelf.seller_id), resend=resend, now=utc_now)


@contextmanager
def a_server_that_says(status: int, body: bytes, *, only: str = "") -> Generator[str]:
    """To everything, or only to addresses that begin so; it has no others."""

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            if self.path.startswith(only):
                self.answer(status, body.replace(b"PATH", self.path.encode()))
            else:
                self.answer(404)

    with serving(Handler) as url:
        yield url
