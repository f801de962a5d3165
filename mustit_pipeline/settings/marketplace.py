"""The settings of the marketplace: its address, its listing, and how long a call may take."""

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings

from mustit_pipeline.settings.http_url import HttpUrl
from mustit_pipeline.settings.wrong_setting import WrongSetting

MARKETPLACE = "https://m.web.mustit.co.kr"
LISTING_PATH = "/mustit-api/facade-api/v1/searchmini-shop-search"


class MarketplaceCallSettings(BaseSettings):
    """The settings of the marketplace."""

    base_url: HttpUrl | None = Field(
        None,
        description=f"The marketplace, `{MARKETPLACE}` for the real one; `up` and `demo` simulate one without it, and "
        "every other command that would call it refuses",
    )
    listing_path: str = Field(LISTING_PATH, description="Path of the minishop listing call")
    first_page_no: int = Field(0, ge=0, le=1, description="Number of the first listing page")
    page_size: int = Field(500, ge=1, le=1000, description="Products on one listing page")
    seller_most_products: int = Field(
        1_000_000, ge=1, description="A listing that speaks of more products than that cannot be read"
    )
    connect_timeout_seconds: float = Field(3.0, gt=0, le=60, description="To open a connection to the marketplace")
    read_timeout_seconds: float = Field(10.0, gt=0, le=300, description="Between two reads of an answer")
    total_timeout_seconds: float = Field(30.0, gt=0, le=600, description="For one whole call, however slowly it drips")
    max_body_bytes: int = Field(8 * 1024 * 1024, ge=1024, description="Largest accepted body, after decompression")

    @field_validator("listing_path")
    @classmethod
    def _absolute_path(cls, value: str) -> str:
        if not value.startswith("/") or value.endswith("/") or any(sign in value for sign in "?# "):
            raise WrongSetting(
                "takes an absolute path such as /api/listing, without a query",
                korean="/api/listing처럼 쿼리가 없는 절대 경로여야 합니다",
            )
        return value
