"""Real receivers of alerts."""

from collections.abc import Generator

import pytest

from mustit_pipeline_tests.integration.monitoring.inbox import Inbox, opened_inbox


@pytest.fixture
def inbox() -> Generator[Inbox]:
    with opened_inbox() as opened:
        yield opened


@pytest.fixture
def other_inbox() -> Generator[Inbox]:
    with opened_inbox() as opened:
        yield opened
