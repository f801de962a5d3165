"""A seller whose products are crawled."""

from dataclasses import dataclass
from datetime import datetime

from mustit_pipeline.domain.aggregate import Aggregate
from mustit_pipeline.domain.errors import ValidationFailed
from mustit_pipeline.domain.states import SELLER, SellerStatus
from mustit_pipeline.domain.values import CrawlingInterval, SellerId, has_control_characters

LONGEST_NAME = 200


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Seller(Aggregate):
    """A seller: how often it is crawled, and how many products it lists."""

    seller_id: SellerId
    name: str
    created_at: datetime
    updated_at: datetime
    status: SellerStatus = SellerStatus.ACTIVE
    interval: CrawlingInterval = CrawlingInterval.DEFAULT
    total_product_count: int = 0

    @classmethod
    def register(
        cls, seller_id: SellerId, name: str, at: datetime, interval: CrawlingInterval = CrawlingInterval.DEFAULT
    ) -> "Seller":
        """A new seller, crawled from now on."""
        name = name.strip()
        if not name or len(name) > LONGEST_NAME or has_control_characters(name):
            raise ValidationFailed(
                "VALIDATION_SELLER_NAME",
                korean=f"셀러 이름은 제어 문자 없이 1-{LONGEST_NAME}자여야 합니다",
                english=f"A seller's name has 1-{LONGEST_NAME} characters and no control characters",
            )
        return cls(seller_id=seller_id, name=name, interval=interval, created_at=at, updated_at=at)

    @property
    def is_active(self) -> bool:
        """Whether this seller is crawled."""
        return self.status is SellerStatus.ACTIVE

    def activate(self, at: datetime) -> None:
        """Crawl this seller again."""
        self._set(status=SELLER.move(self.status, "activate"), updated_at=at)

    def deactivate(self, at: datetime) -> None:
        """Stop crawling this seller; the caller also cancels the open execution."""
        self._set(status=SELLER.move(self.status, "deactivate"), updated_at=at)

    def change_interval(self, interval: CrawlingInterval, at: datetime) -> None:
        """Crawl this seller at another interval; its schedule decides whether that is allowed now."""
        self._set(interval=interval, updated_at=at)

    def count_products(self, total: int, at: datetime) -> None:
        """Store the product count that the marketplace reports for this seller."""
        if total < 0:
            raise ValidationFailed(
                "VALIDATION_SELLER_PRODUCT_COUNT",
                korean="총 상품 수는 음수일 수 없습니다",
                english="A product count cannot be negative",
            )
        self._set(total_product_count=total, updated_at=at)
