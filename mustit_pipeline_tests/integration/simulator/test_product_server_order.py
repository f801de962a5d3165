"""The simulated product server can answer in another order than it was asked in."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from mustit_pipeline.simulator.control import ProductServerControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline_tests.integration.simulator.test_product_server import Sender


def test_shuffled_calls_overtake_each_other_and_are_all_applied(
    product_server: RunningSimulator, server_control: ProductServerControl, request: pytest.FixtureRequest
) -> None:
    fault = server_control.fault("shuffled", "events", seconds=0.5)
    senders = [Sender(product_server.url, f"{request.node.name} {number}") for number in range(12)]
    answered: list[int] = []

    def send(number: int) -> None:
        assert senders[number].send().status_code == 200
        answered.append(number)

    with ThreadPoolExecutor(len(senders)) as pool:
        for done in [pool.submit(send, number) for number in range(len(senders))]:
            done.result()
    server_control.clear_faults(fault)

    log = [effect for effect in server_control.log() if request.node.name in effect.seller_id]
    applied = [int(effect.seller_id.rpartition(" ")[2]) for effect in log]
    assert sorted(applied) == sorted(answered) == list(range(12))
    assert answered != applied
    for sender in senders:
        sender.http.close()
