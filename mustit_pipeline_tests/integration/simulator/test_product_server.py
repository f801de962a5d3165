"""The simulated product server keeps the contract's rules, whatever is switched on to disturb it."""

import copy
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx
import pytest

from mustit_pipeline.simulator.control import ControlError, Effect, ProductServerControl
from mustit_pipeline.simulator.process import RunningSimulator, start_product_server
from mustit_pipeline_tests.integration.product_data import product_data

ITEM_NO = 118005032
PRODUCT = product_data("dmont", ITEM_NO)


class Sender:
    """Posts events of one seller as the contract says, unless told otherwise."""

    def __init__(self, url: str, seller_id: str = "dmont", timeout: float = 10.0) -> None:
        self.http = httpx.Client(base_url=url, timeout=timeout, trust_env=False, verify=False)
        self.seller_id = seller_id

    def product(self, **fields: Any) -> dict[str, Any]:
        """Correct productData."""
        return copy.deepcopy(PRODUCT) | {"sellerId": self.seller_id} | fields

    def event(self, version: int = 1, kind: str = "PRODUCT_CREATED", **fields: Any) -> dict[str, Any]:
        """A correct event."""
        return {
            "eventId": str(uuid4()),
            "eventType": kind,
            "sellerId": self.seller_id,
            "itemNo": ITEM_NO,
            "version": version,
            "occurredAt": "2026-11-16T00:00:00Z",
            "changes": [],
            "productData": None if kind == "PRODUCT_DELETED" else self.product(**fields),
        }

    def post(self, body: dict[str, Any], **headers: str) -> httpx.Response:
        key = f"{quote(body['sellerId'], safe='')}:{body['itemNo']}:{body['version']}"
        return self.http.post("/api/v1/product-events", json=body, headers={"Idempotency-Key": key} | headers)

    def send(self, version: int = 1, kind: str = "PRODUCT_CREATED", **fields: Any) -> httpx.Response:
        return self.post(self.event(version, kind, **fields))

    def read(self) -> httpx.Response:
        return self.http.get(f"/api/v1/products/{quote(self.seller_id, safe='')}/{ITEM_NO}")

    def effects(self, control: ProductServerControl) -> list[Effect]:
        return [effect for effect in control.log() if effect.seller_id == self.seller_id]


@pytest.fixture
def sender(product_server: RunningSimulator, request: pytest.FixtureRequest) -> Iterator[Sender]:
    sender = Sender(product_server.url, request.node.name)
    yield sender
    sender.http.close()


def test_an_event_is_applied_once_and_can_be_read_back(sender: Sender, server_control: ProductServerControl) -> None:
    sender.seller_id = "dmont"
    body = sender.event()
    answer = sender.post(body)
    assert (answer.status_code, answer.json()["duplicate"]) == (200, False)
    repeated = sender.post(body)
    assert (repeated.status_code, repeated.json()["duplicate"]) == (200, True)
    assert sender.read().json() == {"version": 1, "productData": PRODUCT}
    (effect,) = sender.effects(server_control)
    assert (effect.key, effect.event_type, effect.version) == ("dmont:118005032:1", "PRODUCT_CREATED", 1)
    assert (effect.event_id, effect.item_no) == (body["eventId"], ITEM_NO)
    assert effect.at.endswith("Z")
    audit = server_control.audit()
    assert (audit["applied"], audit["repeated"], audit["stale"], audit["rejected"]) == (1, 1, 0, 0)
    assert audit["maxInFlightPerProduct"] == 1


def test_a_stale_version_is_a_conflict_but_a_known_key_is_a_repetition(
    sender: Sender, server_control: ProductServerControl
) -> None:
    for version, kind in ((1, "PRODUCT_CREATED"), (3, "PRODUCT_UPDATED")):
        assert sender.send(version, kind, stock=version).status_code == 200
    stale = sender.send(2, "PRODUCT_UPDATED")
    assert (stale.status_code, stale.json()["currentVersion"]) == (409, 3)
    assert sender.send(1, stock=1).json()["duplicate"] is True
    assert server_control.audit()["repeatsWithOtherContent"] == 0
    assert sender.send(1, stock=9).json()["duplicate"] is True
    assert server_control.audit()["repeatsWithOtherContent"] == 1
    assert sender.read().json()["productData"]["stock"] == 3
    assert [effect.version for effect in sender.effects(server_control)] == [1, 3]


def test_a_deleted_product_is_gone_but_its_version_is_remembered(
    sender: Sender, server_control: ProductServerControl
) -> None:
    sender.send(1)
    assert sender.send(2, "PRODUCT_DELETED").status_code == 200
    assert sender.read().status_code == 404
    (held,) = server_control.state(sender.seller_id)
    assert (held.version, held.deleted, held.product_data) == (2, True, None)
    assert sender.send(2, "PRODUCT_UPDATED").json()["duplicate"] is True
    assert server_control.products(sender.seller_id) == {}
    assert sender.send(4).status_code == 200
    assert sender.send(3, "PRODUCT_DELETED").status_code == 409
    assert server_control.products(sender.seller_id) == {ITEM_NO: sender.product()}


@pytest.mark.parametrize("seller_id", ["명품 가게", "a/b", "50%&c", "%2F", "a:b"])
def test_odd_seller_ids_are_kept_apart_and_found_again(
    sender: Sender, server_control: ProductServerControl, seller_id: str
) -> None:
    sender.seller_id = seller_id
    assert sender.send().status_code == 200
    assert sender.read().json()["productData"]["sellerId"] == seller_id
    assert [held.seller_id for held in server_control.state(seller_id)] == [seller_id]
    server_control.fault("status", "events", sellerId=seller_id, status=500)
    assert sender.send(2).status_code == 500
    sender.seller_id = f"not {seller_id}"
    assert sender.read().status_code == 404
    assert sender.send(2).status_code == 200


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"eventId": "1"}, "eventId must be a UUID"),
        ({"eventType": "PRODUCT_SOLD"}, "eventType must be one of"),
        ({"version": 0}, "version must be a positive"),
        ({"version": True}, "version must be a positive"),
        ({"occurredAt": "yesterday"}, "occurredAt must be an ISO 8601 time"),
        ({"occurredAt": "2026-11-16T00:00:00"}, "time zone"),
        ({"changes": None}, "changes must be a list"),
        ({"changes": [{"type": "PRICE", "field": "stock", "old": 1, "new": 2}]}, "PRODUCT_CREATED must be empty"),
        ({"productData": None}, "productData must be an object"),
        ({"productData": PRODUCT | {"extra": 1}}, "unknown extra"),
        ({"productData": PRODUCT | {"stock": "3"}}, "productData.stock"),
        ({"productData": PRODUCT | {"soldOut": None}}, "productData.soldOut"),
        ({"productData": PRODUCT | {"options": PRODUCT["options"] * 2}}, "productData.options"),
        ({"productData": {k: v for k, v in PRODUCT.items() if k != "name"}}, "lacks name"),
        ({"productData": PRODUCT | {"itemNo": 5}}, "another product's"),
        ({"eventType": "PRODUCT_DELETED"}, "must be null"),
        ({"eventType": "PRODUCT_UPDATED", "changes": [{"type": "PRICE"}]}, "a change must have"),
        ({"eventType": "PRODUCT_UPDATED", "changes": [{"type": "?", "field": "a", "old": 1, "new": 2}]}, "known type"),
    ],
)
def test_an_event_outside_the_contract_is_refused_with_the_reason(
    sender: Sender, changed: dict[str, Any], reason: str
) -> None:
    body = sender.event() | changed
    if body["productData"]:
        body["productData"] = body["productData"] | {"sellerId": sender.seller_id}
    answer = sender.post(body)
    assert answer.status_code == 400
    assert reason in answer.json()["error"]
    assert sender.read().status_code == 404


def test_headers_are_part_of_the_contract(sender: Sender, server_control: ProductServerControl) -> None:
    sender.seller_id = "가"
    for key in ("", f"%EA%B0%80:{ITEM_NO}:2", "%EA%B0%80:1:1"):
        answer = sender.post(sender.event(), **{"Idempotency-Key": key})
        assert answer.status_code == 400
        assert f"Idempotency-Key must be %EA%B0%80:{ITEM_NO}:1" in answer.json()["error"]
    assert sender.post(sender.event(), **{"Content-Type": "text/plain"}).status_code == 400
    broken = sender.http.post("/api/v1/product-events", content=b"{", headers={"Content-Type": "application/json"})
    assert "not JSON" in broken.json()["error"]
    assert sender.effects(server_control) == []
    assert server_control.audit()["rejected"] == 5


def test_with_a_token_every_caller_must_show_it(tmp_path: Path) -> None:
    with start_product_server(state=tmp_path, token="s3cret") as running:
        sender = Sender(running.url)
        assert sender.send().status_code == 401
        assert sender.read().status_code == 401
        assert sender.post(sender.event(), Authorization="Bearer other").status_code == 401
        assert sender.post(sender.event(), Authorization="Bearer s3cret").status_code == 200
        sender.http.close()


@pytest.mark.parametrize(
    ("kind", "applied"),
    [("timeout_before", False), ("timeout_after", True), ("drop_before", False), ("drop_after", True), ("down", False)],
)
def test_a_send_without_an_answer_may_or_may_not_have_been_applied(
    sender: Sender, server_control: ProductServerControl, kind: str, applied: bool
) -> None:
    sender.http.timeout = 1.0
    server_control.fault(kind, "events")
    with pytest.raises((httpx.ReadTimeout, httpx.ReadError, httpx.RemoteProtocolError)):
        sender.send()
    assert len(sender.effects(server_control)) == applied
    server_control.clear_faults()
    sender.http.timeout = 10
    assert sender.send().json()["duplicate"] is applied
    assert len(sender.effects(server_control)) == 1


def test_errors_and_delays_can_be_switched_on_for_a_share(sender: Sender, server_control: ProductServerControl) -> None:
    server_control.fault("status", "events", status=422, share=0.5)
    statuses = [sender.send(version).status_code for version in range(1, 9)]
    assert sorted(set(statuses)) == [200, 422]
    assert statuses.count(422) == 4
    server_control.clear_faults()
    server_control.fault("status", status=429, retryAfter="3", count=1)
    assert sender.send(20).headers["Retry-After"] == "3"
    server_control.fault("slow", "events", seconds=0.2, count=1)
    started = time.monotonic()
    assert sender.send(20).status_code == 200
    assert time.monotonic() - started >= 0.2
    with pytest.raises(ControlError, match="cannot happen to products"):
        server_control.fault("drop_after", "products")


def test_a_late_event_is_applied_although_its_sender_has_given_up(
    sender: Sender, server_control: ProductServerControl
) -> None:
    sender.http.timeout = 0.3
    server_control.fault("late", seconds=1.3, count=1)
    with pytest.raises(httpx.ReadTimeout):
        sender.send(1)
    assert sender.effects(server_control) == []
    sender.http.timeout = 10
    assert sender.send(2).status_code == 200
    deadline = time.monotonic() + 5
    while server_control.audit()["stale"] == 0:
        assert time.monotonic() < deadline, "the late event was never judged"
        time.sleep(0.02)
    assert [effect.version for effect in sender.effects(server_control)] == [2]


def test_two_events_of_one_product_at_once_are_seen(sender: Sender, server_control: ProductServerControl) -> None:
    server_control.fault("slow", seconds=0.8)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(sender.send, (1, 2)))
    assert server_control.audit()["maxInFlightPerProduct"] == 2


def test_state_and_log_outlive_a_kill_and_a_line_torn_by_it(tmp_path: Path) -> None:
    with start_product_server(state=tmp_path) as running, ProductServerControl(running.url) as control:
        sender = Sender(running.url)
        for version in range(1, 6):
            sender.send(version, stock=version)
        state, log = control.state(), control.log()
        running.kill()
        with (tmp_path / "product-server.jsonl").open("ab") as journal:
            journal.write(b'{"seq":6,"key":"dmont:1180')
        running.restart()
        assert control.state() == state
        assert control.log() == log
        assert sender.send(5, stock=5).json()["duplicate"] is True
        assert sender.send(6, "PRODUCT_DELETED").status_code == 200
        running.kill()
        running.restart()
        assert [effect.seq for effect in control.log()] == [1, 2, 3, 4, 5, 6]
        assert sender.send(4, "PRODUCT_UPDATED").json()["duplicate"] is True
        assert control.products("dmont") == {}
        sender.http.close()
