"""Changing the marketplace through its control API, and what stays after a kill."""

from pathlib import Path

import httpx
import pytest

from mustit_pipeline.simulator.control import ControlError, MarketplaceControl
from mustit_pipeline.simulator.process import RunningSimulator, SimulatorStartError, start_marketplace
from mustit_pipeline_tests.integration.simulator.visitor import Visitor

KINDS = ("PRICE", "STOCK", "OPTION", "IMAGE", "DESCRIPTION", "PRODUCT_INFO")


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_is_of_its_type_alone_and_is_visible_outside(
    control: MarketplaceControl, visitor: Visitor, kind: str
) -> None:
    seller = f"changing {kind}"
    control.add_seller(seller, 40)
    before = {p["itemNo"]: p for p in control.products(seller)}
    applied = control.random_changes(seller, 25, [kind])
    after = {p["itemNo"]: p for p in control.products(seller)}
    assert len({change.item_no for change in applied}) == 25
    assert {n for n in before if before[n] != after[n]} == {change.item_no for change in applied}
    for change in applied:
        assert change.kind == kind
        assert change.changes
        assert {field["type"] for field in change.changes} == {kind}
        assert all(field["old"] != field["new"] for field in change.changes)
        for field in change.changes:
            if field["field"] in after[change.item_no]:
                assert before[change.item_no][field["field"]] == field["old"]
                assert after[change.item_no][field["field"]] == field["new"]
    number = applied[0].item_no
    assert visitor.product_data(seller, number) == after[number]


def test_fields_can_be_set_to_given_values(control: MarketplaceControl, visitor: Visitor) -> None:
    control.add_seller("set", 1)
    number = control.products("set")[0]["itemNo"]
    old = control.product("set", number)
    change = control.set_fields("set", number, discountPrice=12_300, shipping={"fee": 4_000, "feeType": "PAID"})
    assert {"type": "PRICE", "field": "discountPrice", "old": old["discountPrice"], "new": 12_300} in change.changes
    control.set_fields("set", number, description='<img src="https://a.example/1.jpg"><IMG SRC=b.png>', options=[])
    control.set_fields("set", number, name="이름 한글", tags=["나", "가"], category={"small": None})
    new = control.product("set", number)
    assert new["shipping"] == {**old["shipping"], "fee": 4_000, "feeType": "PAID", "free": False}
    assert new["descriptionImages"] == ["https://a.example/1.jpg", "b.png"]
    assert (new["options"], new["name"], new["tags"]) == ([], "이름 한글", ["가", "나"])
    assert visitor.product_data("set", number) == new


def test_products_come_go_and_return_to_their_place(control: MarketplaceControl, visitor: Visitor) -> None:
    control.add_seller("moving", 6)
    first = visitor.item_nos("moving")
    added = control.add_products("moving", 2)
    assert visitor.item_nos("moving") == [*reversed(added), *first]
    gone = control.remove("moving", [first[2], added[0]])
    chosen = control.remove("moving", count=1)
    assert control.sellers()["moving"] == 5
    for number in (*gone, *chosen):
        assert visitor.detail(number).status_code == 404
        assert visitor.options(number).status_code == 404
        assert number not in visitor.item_nos("moving")
    assert control.restore("moving", [first[2]]) == [first[2]]
    assert visitor.detail(first[2]).status_code == 200
    control.restore("moving")
    assert visitor.item_nos("moving") == [*reversed(added), *first]


def test_a_shift_moves_entries_between_pages_in_the_middle_of_a_sweep(
    control: MarketplaceControl, visitor: Visitor
) -> None:
    control.add_seller("sliding", 9)
    truth = control.products("sliding")
    order = visitor.item_nos("sliding")
    control.shift("sliding", 2, after_listings=1)
    pages = [[item["itemNo"] for item in visitor.listing("sliding", n, 3).json()["items"]] for n in range(3)]
    assert pages[0] == order[:3]
    assert pages[1] == order[1:4]
    swept = {number for page in pages for number in page}
    assert set(order) - swept == set(order[-2:])
    assert {p["itemNo"]: p for p in control.products("sliding")} == {p["itemNo"]: p for p in truth}
    assert control.shift("sliding", 1) == [visitor.item_nos("sliding")[0]]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "reason"),
    [
        ("POST", "sellers", b"{", 400, "not JSON"),
        ("POST", "sellers", b'{"sellerId":"a","products":-1}', 400, "products must be"),
        ("POST", "sellers", b'{"sellerId":"taken","products":1}', 409, "exists already"),
        ("POST", "products/add", b'{"sellerId":"stranger","count":1}', 404, "no seller 'stranger'"),
        ("POST", "products/change", b'{"sellerId":"taken","itemNo":1,"kind":"PRICE"}', 404, "no product 1"),
        ("POST", "products/remove", b'{"sellerId":"taken","count":99}', 404, "has 2 products"),
        ("PATCH", "settings", b'{"latencyMs":"fast"}', 400, "latencyMs must be"),
        ("GET", "products/stranger", b"", 404, "no seller"),
        ("DELETE", "faults/77", b"", 404, "no control call"),
    ],
)
def test_wrong_control_calls_are_answered_with_the_reason(
    control: MarketplaceControl,
    marketplace: RunningSimulator,
    *,
    method: str,
    path: str,
    body: bytes,
    status: int,
    reason: str,
) -> None:
    if "taken" not in control.sellers():
        control.add_seller("taken", 2)
    answer = httpx.request(method, f"{marketplace.url}/_control/{path}", content=body, trust_env=False, verify=False)
    assert answer.status_code == status
    assert reason in answer.json()["error"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"colour": "red"}, "unknown colour"),
        ({"discountPrice": "12,300"}, "discountPrice is not of the contract's shape"),
        ({"options": [{"optionNo": 1}]}, "options is not of the contract's shape"),
    ],
)
def test_fields_that_no_product_has_are_refused_and_change_nothing(
    control: MarketplaceControl, fields: dict[str, object], reason: str
) -> None:
    if "strict" not in control.sellers():
        control.add_seller("strict", 1)
    before = control.products("strict")
    with pytest.raises(ControlError, match=f"400 .*{reason}"):
        control.set_fields("strict", before[0]["itemNo"], **fields)
    assert control.products("strict") == before


def test_the_world_outlives_a_kill_and_a_line_torn_by_it(tmp_path: Path) -> None:
    with (
        start_marketplace(state=tmp_path, seed=5, sellers={"kept": 30, "명품:관": 2}, min_gap_seconds=0) as running,
        MarketplaceControl(running.url) as control,
        Visitor(running.url) as visitor,
    ):
        control.random_changes("kept", 10)
        removed = control.remove("kept", count=3)
        control.restore("kept", removed[:1])
        control.add_products("kept", 4)
        control.shift("kept", 2)
        truth, order, sellers = control.products("kept"), visitor.item_nos("kept"), control.sellers()
        running.kill()
        with (tmp_path / "marketplace.jsonl").open("ab") as journal:
            journal.write(b'{"op":"remove","sellerId":"kept","item')
        running.restart()
        assert control.products("kept") == truth
        assert visitor.item_nos("kept") == order
        assert control.sellers() == sellers == {"kept": 32, "명품:관": 2}
        control.add_products("kept", 1)
        running.kill()
        running.restart()
        assert control.sellers()["kept"] == 33


def test_a_stored_world_is_not_opened_twice_nor_with_another_seed_nor_damaged(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with start_marketplace(state=tmp_path, seed=5, sellers={"a": 1}):
        with pytest.raises(SimulatorStartError):
            start_marketplace(state=tmp_path)
        assert "in use by another running simulator: stop it first, or set MUSTIT_HOME" in capfd.readouterr().err
    with pytest.raises(SimulatorStartError):
        start_marketplace(state=tmp_path, seed=6)
    assert "holds the world of seed 5: leave --seed out to go on with it, or set MUSTIT_HOME" in capfd.readouterr().err
    start_marketplace(state=tmp_path).stop()
    journal = tmp_path / "marketplace.jsonl"
    journal.write_bytes(b"rubbish\n" + journal.read_bytes())
    with pytest.raises(SimulatorStartError):
        start_marketplace(state=tmp_path)
    assert "line 1 is damaged" in capfd.readouterr().err
