"""A plain visitor of the simulated marketplace, and its own reading of the bodies into productData."""

from collections.abc import Iterable
from html.parser import HTMLParser
from types import TracebackType
from typing import Any, Self
from unicodedata import normalize
from urllib.parse import quote

import httpx

LISTING = "/mustit-api/facade-api/v1/searchmini-shop-search"


class Visitor:
    """One user agent with its token, asking for one thing at a time."""

    def __init__(self, url: str, agent: str = "visitor/1.0", timeout: float = 10.0) -> None:
        self.agent = agent
        # Plain HTTP on loopback: loading certificates would only cost 60 ms a visitor.
        self.http = httpx.Client(
            base_url=url, headers={"User-Agent": agent}, timeout=timeout, trust_env=False, verify=False
        )
        self.token = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.http.close()

    def log_in(self) -> httpx.Response:
        """Fetch a token from the front page."""
        page = self.http.get("/")
        self.token = page.cookies.get("token", "")
        return page

    def get(self, path: str) -> httpx.Response:
        """Any API call, with a token."""
        if not self.token:
            self.log_in()
        return self.http.get(path, headers={"Authorization": f"Bearer {self.token}"})

    def listing(self, seller_id: str, page_no: int = 0, page_size: int = 500) -> httpx.Response:
        """One page of a seller's listing."""
        seller = quote(seller_id, safe="")
        return self.get(f"{LISTING}?sellerId={seller}&pageNo={page_no}&pageSize={page_size}&order=LATEST")

    def detail(self, item_no: int) -> httpx.Response:
        """A product's page."""
        return self.get(f"/mustit-api/facade-api/v1/item/{item_no}/detail/top")

    def options(self, item_no: int) -> httpx.Response:
        """A product's options."""
        return self.get(f"/mustit-api/legacy-api/v1/auction_products/{item_no}/options")

    def item_nos(self, seller_id: str) -> list[int]:
        """The seller's products as listed."""
        return [item["itemNo"] for item in self.listing(seller_id, 0, 100_000).json()["items"]]

    def product_data(self, seller_id: str, item_no: int) -> dict[str, Any]:
        """A product as the three calls show it."""
        entries = {item["itemNo"]: item for item in self.listing(seller_id, 0, 100_000).json()["items"]}
        return read_product(entries[item_no], self.detail(item_no).json(), self.options(item_no).json())


def read_product(entry: dict[str, Any], detail: dict[str, Any], options: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The contract's productData, made from the bodies alone."""
    modules = {module["type"]: module["data"] for module in detail["moduleList"]}
    info, extra = modules["ProductInfoModule"], modules["ProductDetailInfoModule"]
    shipping = modules["ShippingModule"]["items"][0]["data"]
    fee = number(shipping["shippingFee"])
    assert number(entry["price"]) == number(info["discountPrice"])
    assert number(entry["originalPrice"]) == number(info["normalPrice"])
    assert number(entry["discountRate"]) == number(info["discountRate"])
    assert text(entry["name"]) == text(info["itemName"])
    return {
        "itemNo": entry["itemNo"],
        "sellerId": info["sellerId"],
        "name": text(info["itemName"]),
        "brandName": text(info["brandName"]),
        "brandNameKr": text(info["brandNameKr"]),
        "brandCode": number(info["brandCode"]),
        "category": {level: category(info, level) for level in ("header", "large", "medium", "small")},
        "normalPrice": number(info["normalPrice"]),
        "sellingPrice": number(info["sellingPrice"]),
        "discountPrice": number(info["discountPrice"]),
        "discountRate": number(info["discountRate"]),
        "stock": number(info["stock"]),
        "soldOut": info["isSoldOut"],
        "images": modules["ProductBannersModule"]["images"] or entry["imageUrlList"],
        "tags": sorted(text(tag["title"]) for tag in entry["tagList"]),
        "description": text(extra["descriptionMarkUp"]),
        "descriptionImages": pictures(extra["descriptionMarkUp"]),
        "originCountry": text(extra["originCountry"]),
        "itemStatus": text(extra["itemStatus"]),
        "shipping": {
            "type": shipping["shippingType"],
            "fee": fee,
            "feeType": shipping["shippingFeeType"],
            "averageDelivery": text(shipping["averageDeliveryDay"]["text"]),
            "free": shipping["shippingFeeType"] == "FREE" or fee == 0,
        },
        "options": sorted(
            (
                {
                    "optionNo": option["optionNo"],
                    "color": text(option["color"]),
                    "size": text(option["size"]),
                    "stock": number(option["stock"]),
                    "sizeGuide": text(option["sizeGuide"]),
                }
                for option in options
            ),
            key=lambda option: option["optionNo"],
        ),
    }


def number(value: int | str) -> int:
    return int(str(value).replace(",", "").removesuffix("%"))


def text(value: str | None) -> str:
    return normalize("NFC", value or "")


def category(info: dict[str, Any], level: str) -> dict[str, str] | None:
    code = info.get(f"{level}CategoryCode")
    return {"code": code, "name": text(info[f"{level}Category"])} if code else None


def pictures(html: str) -> list[str]:
    found: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.extend(value for name, value in attrs if tag == "img" and name == "src" and value)

    Reader().feed(html)
    return found
