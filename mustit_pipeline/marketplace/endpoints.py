"""The marketplace's URLs, percent-encoded exactly once."""

from dataclasses import dataclass
from typing import Self
from urllib.parse import quote, urlsplit

from mustit_pipeline.domain.states import TaskType
from mustit_pipeline.domain.values import ItemNo, RequestUrl, SellerId
from mustit_pipeline.settings import Settings

_DETAIL = "/mustit-api/facade-api/v1/item/{}/detail/top"
_OPTIONS = "/mustit-api/legacy-api/v1/auction_products/{}/options"


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The URL of each call; equal arguments give the same text, so URLs can be compared."""

    base_url: str
    listing_path: str
    first_page_no: int
    page_size: int

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        return cls(settings.marketplace_url, settings.listing_path, settings.first_page_no, settings.page_size)

    def listing(self, seller_id: SellerId, page_no: int, page_size: int | None = None) -> RequestUrl:
        """One page of a seller's products, newest first."""
        # The path is a setting and may already be encoded, so its % signs stay.
        path = quote(self.listing_path, safe="/%:@!$&'()*+,;=~-._")
        size = self.page_size if page_size is None else page_size
        seller = quote(seller_id.value, safe="")
        return RequestUrl(
            f"{self.base_url}{path}?sellerId={seller}&pageNo={page_no}&pageSize={size}&order=LATEST",
            TaskType.MINISHOP,
            listing_segment="/" + path.rsplit("/", 1)[-1],
        )

    def count(self, seller_id: SellerId) -> RequestUrl:
        """The cheapest call that returns a seller's product count."""
        return self.listing(seller_id, self.first_page_no, page_size=1)

    def detail(self, item_no: ItemNo) -> RequestUrl:
        return RequestUrl(self.base_url + _DETAIL.format(item_no.value), TaskType.PRODUCT_DETAIL)

    def options(self, item_no: ItemNo) -> RequestUrl:
        return RequestUrl(self.base_url + _OPTIONS.format(item_no.value), TaskType.PRODUCT_OPTION)

    def session(self) -> str:
        """The page whose cookies carry a session token."""
        return self.base_url + "/"

    def present(self, url: str) -> str:
        """The same call at the configured server: a planned task may be older than a change of the address."""
        if url.startswith(f"{self.base_url}/"):
            return url
        planned, server = urlsplit(url), urlsplit(self.base_url)
        return planned._replace(scheme=server.scheme, netloc=server.netloc).geturl()

    def page_numbers(self, count: int) -> range:
        """The pages that hold so many products."""
        pages = -(-max(0, count) // self.page_size)
        return range(self.first_page_no, self.first_page_no + pages)


def endpoint_of(url: str) -> TaskType:
    """Which of the calls a URL is."""
    if url.endswith("/options"):
        return TaskType.PRODUCT_OPTION
    return TaskType.PRODUCT_DETAIL if url.endswith("/detail/top") else TaskType.MINISHOP
