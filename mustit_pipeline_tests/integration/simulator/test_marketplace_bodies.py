"""What the simulated marketplace shows to visitors, compared with real answers and with its own truth."""

import json
from pathlib import Path
from typing import Any

import pytest

from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline.simulator.process import RunningSimulator, start_marketplace
from mustit_pipeline_tests.conftest import SAMPLES
from mustit_pipeline_tests.integration.simulator.visitor import LISTING, Visitor, read_product

NOISE_PERIOD = 12


def shape(value: Any, path: str = "") -> set[tuple[str, str]]:
    """Every path of a JSON value with its type; the entries of a list share one path."""
    if isinstance(value, dict):
        return {(path, "object")}.union(*(shape(part, f"{path}.{name}") for name, part in value.items()))
    if isinstance(value, list):
        return {(path, "list")}.union(*(shape(part, f"{path}[]") for part in value))
    return {(path, type(value).__name__)}


def module_shapes(detail: dict[str, Any]) -> set[tuple[str, str]]:
    rest = {name: part for name, part in detail.items() if name != "moduleList"}
    return shape(rest).union(*(shape(m["data"], m["type"]) for m in detail["moduleList"]))


def sample(name: str) -> Any:
    file = SAMPLES / name
    if not file.exists():
        pytest.skip("the real responses are not here")
    return json.loads(file.read_text())


def test_a_listing_has_the_shape_of_a_real_one(control: MarketplaceControl, visitor: Visitor) -> None:
    real = sample("mini_shop.json")
    control.settings(noise=False)
    control.add_seller("shape", 500)
    answer = visitor.listing("shape")
    assert shape(answer.json()) == shape(real)
    assert 450_000 < len(answer.content) < 650_000
    assert list(answer.json()["items"][0]) == list(real["items"][0])


def test_a_detail_has_the_modules_and_fields_of_a_real_one(control: MarketplaceControl, visitor: Visitor) -> None:
    real = sample("detail.json")
    control.settings(noise=False)
    control.add_seller("modules", 60)
    answers = [visitor.detail(number) for number in visitor.item_nos("modules")]
    for answer in answers:
        assert [m["type"] for m in answer.json()["moduleList"]] == [m["type"] for m in real["moduleList"]]
        assert 10_000 < len(answer.content) < 15_000
    seen = set().union(*(module_shapes(answer.json()) for answer in answers))
    optional = {
        ("ProductInfoModule.smallCategoryCode", "str"),
        ("ProductInfoModule.smallCategory", "str"),
        ("ProductDetailInfoModule.salesMethod", "str"),
    }
    assert seen - module_shapes(real) == optional
    assert module_shapes(real) <= seen


def test_options_have_the_shape_of_real_ones(control: MarketplaceControl, visitor: Visitor) -> None:
    real = sample("option.json")
    control.settings(noise=False)
    control.add_seller("option shapes", 30)
    answers = [visitor.options(number).json() for number in visitor.item_nos("option shapes")]
    assert [] in answers
    assert set().union(*(shape(answer) for answer in answers)) == shape(real)


def test_the_truth_can_be_read_from_the_bodies_under_every_noise(control: MarketplaceControl, visitor: Visitor) -> None:
    control.add_seller("noisy", 150)
    truth = {data["itemNo"]: data for data in control.products("noisy")}
    assert len(truth) == 150
    for number, expected in list(truth.items())[:40]:
        assert visitor.product_data("noisy", number) == expected
    number = next(n for n, data in truth.items() if data["category"]["small"] is None and len(data["options"]) > 2)
    for _ in range(NOISE_PERIOD):
        assert visitor.product_data("noisy", number) == truth[number]


def test_noise_changes_the_bytes_of_every_call_and_can_be_switched_off(
    control: MarketplaceControl, visitor: Visitor
) -> None:
    control.add_seller("bytes", 5)
    number = next(p["itemNo"] for p in control.products("bytes") if len(p["options"]) > 1)
    calls = (lambda: visitor.listing("bytes"), lambda: visitor.detail(number), lambda: visitor.options(number))
    before = control.products("bytes")
    for call in calls:
        assert len({call().content for _ in range(4)}) == 4
    likes = [visitor.detail(number).json()["bottom"]["likeCount"] for _ in range(2)]
    assert likes[0] != likes[1]
    control.settings(noise=False)
    for call in calls:
        assert len({call().content for _ in range(4)}) == 1
    assert control.products("bytes") == before


def test_pages_are_cut_newest_first_from_whichever_page_number_is_the_first(
    control: MarketplaceControl, visitor: Visitor
) -> None:
    control.add_seller("pages", 23)
    first = visitor.listing("pages", 0, 10).json()
    assert first["count"] == 23
    listed = [item["itemNo"] for n in range(3) for item in visitor.listing("pages", n, 10).json()["items"]]
    assert listed == sorted(listed, reverse=True)
    assert len(set(listed)) == 23
    assert visitor.listing("pages", 3, 10).json()["items"] == []
    assert len(visitor.listing("pages", 0, 1).json()["items"]) == 1
    control.settings(firstPageNo=1)
    assert [item["itemNo"] for item in visitor.listing("pages", 3, 10).json()["items"]] == listed[20:]
    assert visitor.listing("pages", 0, 10).status_code == 400


@pytest.mark.parametrize("seller_id", ["명품 가게", "a&b=c", "x/y", "100%", "%2F", "q?#+;", "Ünïcode·💎", "a,b:3"])
def test_seller_ids_are_decoded_exactly_once(control: MarketplaceControl, visitor: Visitor, seller_id: str) -> None:
    control.add_seller(seller_id, 3)
    listing = visitor.listing(seller_id).json()
    assert listing["count"] == 3
    number = listing["items"][0]["itemNo"]
    assert visitor.product_data(seller_id, number) == control.product(seller_id, number)
    assert control.product(seller_id, number)["sellerId"] == seller_id
    assert control.sellers()[seller_id] == 3


def test_what_does_not_exist_is_empty_in_a_listing_and_404_elsewhere(visitor: Visitor) -> None:
    listing = visitor.listing("stranger")
    assert (listing.status_code, listing.json()["count"], listing.json()["items"]) == (200, 0, [])
    assert visitor.detail(1).status_code == 404
    assert visitor.options(1).status_code == 404
    assert visitor.get("/other").status_code == 404
    assert visitor.get(f"{LISTING}?sellerId=a&pageNo=x&pageSize=10").status_code == 400
    assert visitor.http.post("/").status_code == 405


def test_the_same_seed_makes_the_same_world_and_another_seed_another(
    tmp_path: Path, marketplace: RunningSimulator
) -> None:
    worlds: list[list[dict[str, Any]]] = []
    for number, seed in enumerate((3, 3, 4)):
        state = tmp_path / str(number)
        with (
            start_marketplace(state=state, seed=seed, sellers={"twin": 20}) as running,
            MarketplaceControl(running.url) as control,
        ):
            control.random_changes("twin", 10)
            control.remove("twin", count=2)
            worlds.append(control.products("twin"))
    assert worlds[0] == worlds[1]
    assert worlds[0] != worlds[2]


def test_a_product_is_the_same_whether_read_through_one_page_or_many(
    control: MarketplaceControl, visitor: Visitor
) -> None:
    control.add_seller("whole", 12)
    entries = {item["itemNo"]: item for n in range(4) for item in visitor.listing("whole", n, 3).json()["items"]}
    read = [read_product(entries[n], visitor.detail(n).json(), visitor.options(n).json()) for n in entries]
    assert read == control.products("whole")
