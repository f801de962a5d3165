"""A crawl in a process of its own, for tests that kill or stop it."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from mustit_pipeline.foundation.database import open_database
from mustit_pipeline.settings import Settings, load_settings
from mustit_pipeline_tests.integration.crawls import crawl

PATIENCE_SECONDS = 60.0


@contextmanager
def crawling(settings: Settings, seller_id: str) -> Generator[subprocess.Popen[bytes]]:
    """A child that crawls the seller with these settings; it is gone at the end, whatever happened to it."""
    given = {f"MUSTIT_{name.upper()}": str(value) for name, value in settings.model_dump(exclude_none=True).items()}
    for secret in ("token_key", "jwt_secret"):
        given[f"MUSTIT_{secret.upper()}"] = getattr(settings, secret).get_secret_value()
    command = [sys.executable, "-m", __name__, seller_id]
    process = subprocess.Popen(command, env=os.environ | given, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_until(condition: Callable[[], object]) -> None:
    """Until it is so; a test that waits a minute has failed."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.005)


if __name__ == "__main__":
    configured = load_settings()
    crawl(open_database(configured), configured, sys.argv[1])
