"""The URLs of the marketplace's calls."""

from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustit_pipeline.domain.states import TaskType
from mustit_pipeline.domain.values import ItemNo, SellerId
from mustit_pipeline.marketplace.endpoints import Endpoints
from mustit_pipeline.settings import Settings

LISTING_PATH = "/mustit-api/facade-api/v1/searchmini-shop-search"
ENDPOINTS = Endpoints("https://m.example", LISTING_PATH, first_page_no=0, page_size=500)


def test_each_call_has_its_documented_url() -> None:
    assert ENDPOINTS.session() == "https://m.example/"
    listing = ENDPOINTS.listing(SellerId("dmont"), 3)
    assert listing.value == f"https://m.example{LISTING_PATH}?sellerId=dmont&pageNo=3&pageSize=500&order=LATEST"
    assert listing.task_type is TaskType.MINISHOP
    detail = ENDPOINTS.detail(ItemNo(118005032))
    assert detail.value == "https://m.example/mustit-api/facade-api/v1/item/118005032/detail/top"
    assert detail.task_type is TaskType.PRODUCT_DETAIL
    options = ENDPOINTS.options(ItemNo(118005032))
    assert options.value == "https://m.example/mustit-api/legacy-api/v1/auction_products/118005032/options"
    assert options.task_type is TaskType.PRODUCT_OPTION


def test_the_count_call_asks_for_one_product_of_the_first_page() -> None:
    url = Endpoints("https://m.example", LISTING_PATH, first_page_no=1, page_size=500).count(SellerId("dmont"))
    assert url.value.endswith("?sellerId=dmont&pageNo=1&pageSize=1&order=LATEST")


@pytest.mark.parametrize("planned_at", ["http://127.0.0.1:4711", "https://m.example", "https://old.example:8443"])
def test_a_planned_url_is_asked_for_at_the_present_server_and_is_otherwise_untouched(planned_at: str) -> None:
    there = Endpoints(planned_at, LISTING_PATH, first_page_no=1, page_size=50)
    asked = ENDPOINTS.present(there.listing(SellerId("a/b?c#d 50%"), 3).value)
    assert asked == f"https://m.example{LISTING_PATH}?sellerId=a%2Fb%3Fc%23d%2050%25&pageNo=3&pageSize=50&order=LATEST"
    assert ENDPOINTS.present(there.detail(ItemNo(7)).value) == ENDPOINTS.detail(ItemNo(7)).value


@pytest.mark.parametrize(
    ("seller", "encoded"),
    [
        ("디몬트", "%EB%94%94%EB%AA%AC%ED%8A%B8"),
        ("a b", "a%20b"),
        ("a&b=c", "a%26b%3Dc"),
        ("a/b?c#d", "a%2Fb%3Fc%23d"),
        ("50%", "50%25"),
        ("%20", "%2520"),
        ("a+b", "a%2Bb"),
        ("a-b_c.d~e", "a-b_c.d~e"),
    ],
)
def test_a_seller_id_is_percent_encoded_exactly_once(seller: str, encoded: str) -> None:
    assert f"?sellerId={encoded}&pageNo=0&" in ENDPOINTS.listing(SellerId(seller), 0).value


SELLERS = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=30).filter(
    lambda text: text.strip() and text not in (".", "..") and "..." not in text
)


@given(seller=SELLERS, page_no=st.integers(0, 10_000))
@settings(max_examples=100, deadline=None)
def test_any_seller_id_comes_back_out_of_its_url(seller: str, page_no: int) -> None:
    seller_id = SellerId(seller)
    url = ENDPOINTS.listing(seller_id, page_no)
    assert url == ENDPOINTS.listing(SellerId(seller), page_no)
    parts = urlsplit(url.value)
    assert (parts.netloc, parts.path, parts.fragment) == ("m.example", LISTING_PATH, "")
    assert parse_qsl(parts.query, strict_parsing=True) == [
        ("sellerId", seller_id.value),
        ("pageNo", str(page_no)),
        ("pageSize", "500"),
        ("order", "LATEST"),
    ]


@pytest.mark.parametrize("first_page_no", [0, 1])
@pytest.mark.parametrize(("count", "pages"), [(0, 0), (1, 1), (499, 1), (500, 1), (501, 2), (3464, 7), (-3, 0)])
def test_as_many_pages_as_the_products_need_counted_from_the_first(count: int, pages: int, first_page_no: int) -> None:
    endpoints = Endpoints("https://m.example", LISTING_PATH, first_page_no, page_size=500)
    assert list(endpoints.page_numbers(count)) == list(range(first_page_no, first_page_no + pages))


@pytest.mark.parametrize("path", ["/api/v2/mini-shop", "/api/미니샵", "/api/%EB%AF%B8%EB%8B%88"])
def test_the_listing_path_is_a_setting_and_may_be_encoded_already(path: str, tmp_path: Path) -> None:
    configured = Settings(
        home=tmp_path, base_url="http://127.0.0.1:8080/", listing_path=path, first_page_no=1, page_size=20
    )  # pyright: ignore[reportCallIssue]
    url = Endpoints.from_settings(configured).listing(SellerId("dmont"), 1).value
    assert url.startswith("http://127.0.0.1:8080/api/")
    assert url.isascii()
    assert "%25" not in url
    assert url.endswith("?sellerId=dmont&pageNo=1&pageSize=20&order=LATEST")
