"""What the watch over UI and daemon counts: an answer that fails is as bad as one that does not come."""

from collections.abc import Generator, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from mustit_pipeline_tests.faults.many_sellers_watch import BACKFILLING, CRAWLS, SILENCE, Watch

GOOD = (200, b'{"data": {"runsOrError": {"results": []}}}')
WITHOUT_DATABASE = (200, b'{"data": {"runsOrError": {}}, "errors": [{"message": "no database"}]}')


class Runs:
    """Dagster's database while nothing goes on."""

    def number(self, query: str) -> int:
        assert query in (CRAWLS, BACKFILLING, SILENCE)
        return 0


@pytest.fixture
def answers() -> list[tuple[int, bytes]]:
    return []


@pytest.fixture
def url(answers: list[tuple[int, bytes]]) -> Generator[str]:
    """A UI that gives these answers, one after the other, and then hangs up."""
    given: Iterator[tuple[int, bytes]] = iter(answers)

    class Ui(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            answer = next(given, None)
            if answer is None:
                self.connection.close()
                return
            self.send_response(answer[0])
            self.end_headers()
            self.wfile.write(answer[1])

        def log_message(self, format: str, *args: object) -> None:
            """Ignored."""

    with HTTPServer(("127.0.0.1", 0), Ui) as server:
        Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_ui_that_fails_has_not_answered_since_it_was_asked_first() -> None:
    watch = Watch()
    watch.asked(100.0)
    watch.answered(100.5)
    for at in (101.0, 111.0, 121.0):
        watch.asked(at)
        watch.refused()
    watch.asked(131.0)
    watch.answered(132.0)
    watch.asked(133.0)
    watch.answered(133.1)

    assert (watch.slowest, watch.answers) == (31.0, 3)


def test_a_ui_that_never_answers_again_counts_until_the_end() -> None:
    watch = Watch()
    watch.asked(100.0)
    watch.answered(100.5)
    watch.asked(101.0)
    watch.refused()
    watch.ended(161.0)

    assert watch.slowest == 60.0


def test_a_ui_that_is_still_starting_is_not_slow() -> None:
    watch = Watch()
    for at in (100.0, 110.0):
        watch.asked(at)
        watch.refused()
    watch.asked(120.0)
    watch.answered(121.0)

    assert watch.slowest == 1.0


@pytest.mark.parametrize("bad", [(500, b"{}"), WITHOUT_DATABASE, (200, b"<html>"), None], ids=str)
def test_errors_of_every_kind_are_no_answers(
    answers: list[tuple[int, bytes]], url: str, bad: tuple[int, bytes] | None
) -> None:
    answers += [GOOD, *([bad] if bad else [])]
    watch, runs = Watch(), Runs()

    watch.look(runs, url)  # pyright: ignore[reportArgumentType]
    assert (watch.answers, watch.unanswered_since) == (1, None)
    watch.look(runs, url)  # pyright: ignore[reportArgumentType]

    assert watch.answers == 1
    assert watch.unanswered_since is not None
