"""Tells a product server that fails now and then from an event that it will never take."""

from mustit_pipeline.delivery.product_server import Answer, Verdict
from mustit_pipeline.store.settlements import Deliveries

FEWEST_RECOVERIES = 3
LEAST_SHARE = 0.05


def is_flaky(since: Deliveries) -> bool:
    """Whether enough of what went through had failed first.

    Hopeless events never recover, and a server that refuses everything delivers nothing: both end at the usual limit.
    The share of recoveries is about the share of calls that fail. At 5 % one event in three million meets five failures
    in a row by chance, at a third one in 243: only there do five in a row say nothing about the event.
    """
    return since.recovered >= max(FEWEST_RECOVERIES, LEAST_SHARE * since.delivered)


def may_be_chance(answer: Answer) -> bool:
    """Whether the failure could be the server's; a 422 is about the event, and another 4xx more so."""
    return answer.verdict is not Verdict.REFUSED and answer.status != 422
