"""Every fault of the marketplace, seen from outside."""

import time
from collections.abc import Callable
from itertools import pairwise

import httpx
import pytest

from mustit_pipeline.simulator.control import ControlError, MarketplaceControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline_tests.integration.simulator.visitor import Visitor

SELLER = "faulty"


@pytest.fixture
def item_no(control: MarketplaceControl, visitor: Visitor) -> int:
    if SELLER not in control.sellers():
        control.add_seller(SELLER, 30)
        control.add_seller("the other", 3)
    control.reset_audit()
    return visitor.item_nos(SELLER)[0]


def test_a_429_carries_the_retry_after_it_was_given_and_is_no_fault_of_the_caller(
    control: MarketplaceControl, visitor: Visitor, item_no: int
) -> None:
    control.fault("429", "detail", count=1, retryAfter="17")
    control.fault("429", "detail", count=1, retryAfter="soon")
    control.fault("429", "detail", count=1, retryAfter=None)
    answers = [visitor.detail(item_no) for _ in range(4)]
    assert [a.status_code for a in answers] == [429, 429, 429, 200]
    assert [a.headers.get("Retry-After") for a in answers[:3]] == ["17", "soon", None]
    audit = control.audit()
    assert (audit["injected429"], audit["limit429"]) == (3, 0)
    assert audit["byAgent"][visitor.agent]["injected429"] == 3


def test_a_storm_hits_every_agent_until_it_is_over(
    control: MarketplaceControl, visitor: Visitor, item_no: int, marketplace: RunningSimulator
) -> None:
    visitor.log_in()
    control.fault("storm", "api")
    with Visitor(marketplace.url, "second agent") as other:
        assert other.log_in().status_code == 200
        assert other.detail(item_no).status_code == 429
    assert visitor.listing(SELLER).status_code == 429
    control.clear_faults()
    control.fault("storm", "api", seconds=0.1)
    time.sleep(0.1)
    assert visitor.detail(item_no).status_code == 200


def test_products_that_are_always_throttled_are_so_at_both_their_urls_and_nothing_else_is(
    control: MarketplaceControl, visitor: Visitor, item_no: int
) -> None:
    items = visitor.item_nos(SELLER)
    control.fault("429", "api", items=[item_no])
    assert (visitor.detail(item_no).status_code, visitor.options(item_no).status_code) == (429, 429)
    assert (visitor.detail(items[1]).status_code, visitor.listing(SELLER).status_code) == (200, 200)
    control.clear_faults()
    control.fault("429", "api", items=0.3)
    struck = {item for item in items if visitor.detail(item).status_code == 429}
    assert 0 < len(struck) < len(items) / 2
    assert {item for item in items if visitor.options(item).status_code == 429} == struck
    with pytest.raises(ControlError, match="items must be"):
        control.fault("429", "api", items=["one"])


def test_server_errors_have_the_status_that_was_asked_for(
    control: MarketplaceControl, visitor: Visitor, item_no: int
) -> None:
    control.fault("5xx", "options", count=1)
    control.fault("5xx", "options", count=1, status=502)
    control.fault("status", "options", count=1, status=410)
    assert [visitor.options(item_no).status_code for _ in range(4)] == [503, 502, 410, 200]


def test_a_refused_token_is_a_401(control: MarketplaceControl, visitor: Visitor, item_no: int) -> None:
    control.fault("token_refused", "detail", count=1)
    assert [visitor.detail(item_no).status_code for _ in range(2)] == [401, 200]


def test_slow_and_dripping_answers_are_late_but_whole(
    control: MarketplaceControl, visitor: Visitor, item_no: int
) -> None:
    for kind in ("slow", "drip"):
        control.fault(kind, "detail", count=1, seconds=0.3)
        started = time.monotonic()
        assert visitor.detail(item_no).json()["moduleList"]
        assert time.monotonic() - started >= 0.3


def test_a_caller_that_gave_up_is_no_longer_in_flight(
    control: MarketplaceControl, visitor: Visitor, item_no: int, marketplace: RunningSimulator
) -> None:
    control.fault("slow", "detail", count=1, seconds=60)
    with Visitor(marketplace.url, "impatient", timeout=1.0) as impatient:
        with pytest.raises(httpx.ReadTimeout):
            impatient.detail(item_no)
        deadline = time.monotonic() + 5
        while True:
            control.reset_audit()
            assert impatient.detail(item_no).status_code == 200
            if control.audit()["maxInFlightPerAgent"] == 1:
                break
            assert time.monotonic() < deadline, "the abandoned request is still counted as in flight"


def test_a_late_request_counts_when_it_is_read_though_its_caller_has_gone(
    control: MarketplaceControl, item_no: int, marketplace: RunningSimulator
) -> None:
    with Visitor(marketplace.url, "impatient", timeout=0.3) as impatient:
        impatient.detail(item_no)
        control.reset_audit()
        control.fault("late", "detail", count=1, seconds=1.0)
        with pytest.raises(httpx.ReadTimeout):
            impatient.detail(item_no)
        assert control.audit()["requests"] == 0
        time.sleep(1.2)
        audit = control.audit()
    assert (audit["requests"], audit["faults"], audit["inFlight"]) == (1, {"late": 1}, 0)


@pytest.mark.parametrize("kind", ["reset", "cut"])
def test_connections_break_before_or_in_the_middle_of_an_answer(
    control: MarketplaceControl, visitor: Visitor, item_no: int, kind: str
) -> None:
    control.fault(kind, "detail", count=1)
    with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
        visitor.detail(item_no)
    assert visitor.detail(item_no).status_code == 200
    assert control.audit()["faults"] == {kind: 1}


@pytest.mark.parametrize("endpoint", ["listing", "detail", "options"])
@pytest.mark.parametrize(
    ("kind", "looks_wrong"),
    [
        ("truncated", lambda a: not _is_json(a)),
        ("html", lambda a: a.content.startswith(b"<!doctype html") and not _is_json(a)),
        ("null", lambda a: a.content == b"null"),
        ("wrong_shape", lambda a: isinstance(a.json(), dict) and not {"items", "moduleList"} & a.json().keys()),
    ],
)
def test_a_200_can_carry_a_body_of_another_kind(
    control: MarketplaceControl,
    visitor: Visitor,
    item_no: int,
    *,
    endpoint: str,
    kind: str,
    looks_wrong: Callable[[httpx.Response], bool],
) -> None:
    with_options = next(p["itemNo"] for p in control.products(SELLER) if p["options"])
    calls = {
        "listing": lambda: visitor.listing(SELLER),
        "detail": lambda: visitor.detail(item_no),
        "options": lambda: visitor.options(with_options),
    }
    usual = calls[endpoint]().json()
    control.fault(kind, endpoint, count=1)
    wrong = calls[endpoint]()
    assert wrong.status_code == 200
    assert looks_wrong(wrong)
    assert type(calls[endpoint]().json()) is type(usual)


def test_a_fault_can_be_that_of_one_listing_page_alone(
    control: MarketplaceControl, visitor: Visitor, item_no: int
) -> None:
    whole = visitor.listing(SELLER, 1, 10).json()
    control.fault("empty_page", "listing", pageNo=1)
    pages = [visitor.listing(SELLER, page_no, 10).json() for page_no in range(3)]
    assert [(page["count"], len(page["items"])) for page in pages] == [(30, 10), (30, 0), (30, 10)]
    # A product's calls have no page.
    control.fault("5xx", "api", pageNo=0)
    assert visitor.detail(item_no).status_code == 200
    assert visitor.listing(SELLER, 0, 10).status_code == 503
    control.clear_faults()
    assert [item["itemNo"] for item in visitor.listing(SELLER, 1, 10).json()["items"]] == [
        item["itemNo"] for item in whole["items"]
    ]


def test_a_page_can_be_shown_under_the_number_of_the_next_one_too(
    control: MarketplaceControl, visitor: Visitor
) -> None:
    control.fault("repeated_page", "listing", pageNo=1)
    pages = [visitor.listing(SELLER, page_no, 10).json() for page_no in range(3)]
    first, second, third = ([item["itemNo"] for item in page["items"]] for page in pages)
    assert first == second
    assert not set(first) & set(third)
    assert {page["count"] for page in pages} == {30}


def test_answers_of_another_seller(control: MarketplaceControl, visitor: Visitor, item_no: int) -> None:
    control.fault("wrong_seller", "any", count=2)
    wrong = visitor.detail(item_no).json()["moduleList"][1]["data"]
    assert wrong["itemNo"] == item_no
    assert wrong["sellerId"] != SELLER
    listed = {item["itemNo"] for item in visitor.listing(SELLER).json()["items"]}
    assert not listed & {p["itemNo"] for p in control.products(SELLER)}


def test_a_count_of_zero_although_there_are_products(
    control: MarketplaceControl, visitor: Visitor, item_no: int
) -> None:
    control.fault("count_zero", count=1)
    assert visitor.detail(item_no).status_code == 200
    empty = visitor.listing(SELLER).json()
    assert (empty["count"], empty["items"]) == (0, [])
    assert visitor.listing(SELLER).json()["count"] == 30


def test_a_count_that_is_short_leaves_out_the_last_although_they_are_on_sale(
    control: MarketplaceControl, visitor: Visitor, item_no: int
) -> None:
    on_sale = visitor.item_nos(SELLER)
    control.fault("count_short")
    pages = [visitor.listing(SELLER, page_no, 10).json() for page_no in range(3)]
    assert [page["count"] for page in pages] == [18] * 3
    assert [item["itemNo"] for page in pages for item in page["items"]] == on_sale[:18]
    assert visitor.detail(on_sale[-1]).status_code == 200


def test_the_front_page_can_fail_to_hand_out_a_token(
    control: MarketplaceControl, visitor: Visitor, item_no: int
) -> None:
    control.fault("html", "session", count=1)
    page = visitor.log_in()
    assert (page.status_code, visitor.token) == (200, "")
    control.fault("5xx", "session", count=1)
    assert visitor.log_in().status_code == 503
    assert visitor.log_in().status_code == 200


@pytest.mark.parametrize(("share", "hits"), [(0.33, 10), (0.66, 20)])
def test_a_share_is_spread_evenly_and_not_by_luck(
    control: MarketplaceControl, visitor: Visitor, item_no: int, share: float, hits: int
) -> None:
    control.fault("5xx", "options", share=share)
    struck = [visitor.options(item_no).status_code == 503 for _ in range(30)]
    assert abs(sum(struck) - hits) <= (0 if share == 0.33 else 1)
    if share == 0.33:
        places = [n for n, hit in enumerate(struck) if hit]
        assert {b - a for a, b in pairwise(places)} == {3}
    fault = control.faults()[0]
    assert (fault["seen"], fault["used"]) == (30, sum(struck))


def test_faults_can_be_aimed_at_agents_sellers_and_items(
    control: MarketplaceControl, visitor: Visitor, item_no: int, marketplace: RunningSimulator
) -> None:
    with Visitor(marketplace.url, "spared") as spared:
        aimed = control.fault("5xx", "api", agents=[visitor.agent])
        assert (visitor.detail(item_no).status_code, spared.detail(item_no).status_code) == (503, 200)
        control.clear_faults(aimed)
    control.fault("5xx", "api", sellerId="the other")
    control.fault("5xx", "api", itemNo=item_no)
    theirs = control.products("the other")[0]["itemNo"]
    another = control.products(SELLER)[5]["itemNo"]
    assert [visitor.detail(n).status_code for n in (item_no, theirs, another)] == [503, 503, 200]
    assert visitor.listing("the other").status_code == 503
    control.clear_faults()
    assert control.faults() == []
    assert visitor.detail(item_no).status_code == 200


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"kind": "gremlins"}, "kind must be one of"),
        ({"kind": "count_zero", "endpoint": "detail"}, "cannot happen to detail"),
        ({"kind": "429", "share": 2}, "share must be a number from 0 to 1"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused_with_the_reason(
    control: MarketplaceControl, fault: dict[str, object], reason: str
) -> None:
    with pytest.raises(ControlError, match=f"400 .*{reason}"):
        control.fault(**fault)  # pyright: ignore[reportArgumentType]
    assert control.faults() == []


def _is_json(answer: httpx.Response) -> bool:
    try:
        answer.json()
    except ValueError:
        return False
    return True
