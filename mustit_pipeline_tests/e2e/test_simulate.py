"""`mustit simulate`: a server of its own for trying things out."""

import json
import signal

import httpx
import pytest

from mustit_pipeline_tests.e2e.conftest import World

SERVERS = {"marketplace": ["--sellers", "tried:3"], "product-server": []}


@pytest.mark.parametrize(("server", "as_json"), [("marketplace", True), ("product-server", False)])
def test_a_simulated_server_says_where_it_listens_and_ends_with_ctrl_c(
    world: World, server: str, as_json: bool
) -> None:
    with world.mustit.start("simulate", server, *SERVERS[server], *(["--json"] if as_json else [])) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            url = json.loads(said)["url"] if as_json else said.split()[-1]
            assert httpx.get(f"{url}/_control/audit", trust_env=False).is_success
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
            assert process.stdout.read() == ""
        finally:
            process.kill()
