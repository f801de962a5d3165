"""Tokens, limits and the audit: what the marketplace enforces and what it remembers."""

import time
from http.cookies import SimpleCookie
from pathlib import Path

from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline.simulator.process import RunningSimulator, start_marketplace
from mustit_pipeline_tests.integration.simulator.visitor import LISTING, Visitor


def test_the_front_page_hands_out_the_three_cookies(control: MarketplaceControl, visitor: Visitor) -> None:
    page = visitor.log_in()
    assert page.headers["Content-Type"].startswith("text/html")
    cookies = SimpleCookie()
    for line in page.headers.get_list("Set-Cookie"):
        cookies.load(line)
    assert {"token", "nid", "mustit_uid"} == cookies.keys()
    assert cookies["token"]["max-age"] == "7200"
    control.settings(tokenCookie="expires")
    assert "Expires=" in visitor.log_in().headers.get_list("Set-Cookie")[0]
    control.settings(tokenCookie="session")
    assert "=" not in visitor.log_in().headers.get_list("Set-Cookie")[0].split("; ")[1].removeprefix("Path=")


def test_only_a_token_of_the_same_agent_is_accepted(
    control: MarketplaceControl, visitor: Visitor, marketplace: RunningSimulator
) -> None:
    path = f"{LISTING}?sellerId=x&pageNo=0&pageSize=1"
    visitor.log_in()
    assert visitor.get(path).status_code == 200
    assert visitor.http.get(path).status_code == 401
    for wrong in ("Bearer x.y.z", f"Bearer {visitor.token}x", f"Basic {visitor.token}", "Bearer"):
        assert visitor.http.get(path, headers={"Authorization": wrong}).status_code == 401
    with Visitor(marketplace.url, "another agent") as other:
        other.token = visitor.token
        assert other.get(path).status_code == 401


def test_a_token_ends_when_its_time_is_over(control: MarketplaceControl, visitor: Visitor) -> None:
    control.settings(tokenSeconds=0.1)
    visitor.log_in()
    time.sleep(0.15)
    assert visitor.listing("x").status_code == 401
    control.settings(tokenSeconds=7200)
    visitor.log_in()
    assert visitor.listing("x").status_code == 200


def test_every_token_can_be_forgotten_at_once(control: MarketplaceControl, visitor: Visitor) -> None:
    visitor.log_in()
    assert visitor.listing("x").status_code == 200
    control.forget_sessions()
    assert visitor.listing("x").status_code == 401
    visitor.log_in()
    assert visitor.listing("x").status_code == 200


def test_a_token_outlives_a_restart(tmp_path: Path) -> None:
    with start_marketplace(state=tmp_path, min_gap_seconds=0) as running, Visitor(running.url) as visitor:
        assert visitor.listing("x").status_code == 200
        running.kill()
        running.restart()
        assert visitor.listing("x").status_code == 200


def test_the_request_over_the_window_is_refused_and_counted_as_caused_by_the_caller(
    control: MarketplaceControl, visitor: Visitor, marketplace: RunningSimulator
) -> None:
    control.settings(requestsPerWindow=5, windowSeconds=600)
    control.reset_audit()
    assert [visitor.listing("x").status_code for _ in range(5)] == [200] * 5
    refused = visitor.listing("x")
    assert refused.status_code == 429
    assert 590 <= int(refused.headers["Retry-After"]) <= 600
    visitor.log_in()
    with Visitor(marketplace.url, "unhurried") as other:
        assert other.listing("x").status_code == 200
    audit = control.audit()
    assert (audit["limit429"], audit["limit429ByCause"], audit["injected429"]) == (1, {"window": 1, "gap": 0}, 0)
    assert audit["maxInWindow"] == 6
    mine = audit["byAgent"][visitor.agent]
    assert mine["maxInWindow"] == 6
    assert mine["byEndpoint"] == {"session": 2, "listing": 6}
    assert audit["byAgent"]["unhurried"]["maxInWindow"] == 1
    assert audit["requests"] == 7
    assert audit["sessions"] == 3


def test_the_window_slides(control: MarketplaceControl, visitor: Visitor) -> None:
    control.settings(requestsPerWindow=3, windowSeconds=600)
    assert [visitor.listing("x").status_code for _ in range(4)] == [200, 200, 200, 429]
    control.settings(windowSeconds=0.2)
    time.sleep(0.25)
    assert visitor.listing("x").status_code == 200


def test_two_requests_without_a_pause_are_refused(control: MarketplaceControl, visitor: Visitor) -> None:
    control.settings(minGapSeconds=30)
    control.reset_audit()
    assert visitor.listing("x").status_code == 200
    refused = visitor.detail(1)
    assert refused.status_code == 429
    assert 28 <= int(refused.headers["Retry-After"]) <= 30
    control.settings(minGapSeconds=0.2, gapToleranceSeconds=0.05)
    time.sleep(0.2)
    assert visitor.listing("x").status_code == 200
    audit = control.audit()
    assert audit["limit429ByCause"] == {"window": 0, "gap": 1}
    assert audit["byAgent"][visitor.agent]["smallestGapSeconds"] < 30


def test_requests_refused_for_their_token_count_as_arrived(control: MarketplaceControl, visitor: Visitor) -> None:
    control.settings(requestsPerWindow=2)
    visitor.token = "wrong"
    assert [visitor.listing("x").status_code for _ in range(3)] == [401, 401, 429]


def test_the_audit_says_who_asked_for_what_how_often(control: MarketplaceControl, visitor: Visitor) -> None:
    control.add_seller("audited", 2)
    numbers = visitor.item_nos("audited")
    control.reset_audit()
    assert control.arrivals() == []
    started = time.time()
    for number in [*numbers, numbers[0]]:
        visitor.detail(number)
    visitor.http.cookies.clear()
    visitor.options(numbers[0])
    visitor.options(1)
    audit = control.audit()
    assert audit["byEndpoint"] == {"detail": 3, "options": 2}
    assert audit["statuses"] == {"detail": {"200": 3}, "options": {"200": 1, "404": 1}}
    assert audit["withoutCookies"] == 2
    assert (audit["maxInFlightPerAgent"], audit["inFlight"]) == (1, 0)
    urls = control.requested_urls()
    assert sorted(urls.values()) == [1, 1, 1, 2]
    assert urls[f"/mustit-api/facade-api/v1/item/{numbers[0]}/detail/top"] == 2
    arrivals = control.arrivals()
    assert len(arrivals) == 5
    assert arrivals == sorted(arrivals)
    assert started <= arrivals[0] <= arrivals[-1] <= time.time()
