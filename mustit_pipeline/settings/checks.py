"""The settings of monitoring: when a check fails, when changes are held back, and where alerts are sent."""

import re

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings

from mustit_pipeline.settings.wrong_setting import WrongSetting

ADDRESS = re.compile(r"[a-z][a-z0-9+]*://\S+", re.IGNORECASE)
BETWEEN_ADDRESSES = re.compile(r"[\s,]+(?=[a-z][a-z0-9+]*://)", re.IGNORECASE)


class CheckSettings(BaseSettings):
    """The settings of checks and alerts."""

    check_window_hours: float = Field(24, gt=0, le=24 * 31, description="How far back the hourly checks look")
    crawl_success_percent: float = Field(95, ge=0, le=100, description="Crawls, and tasks of crawls, that must succeed")
    coverage_percent: float = Field(99, ge=0, le=100, description="Listed products that the last sweeps must have seen")
    completeness_percent: float = Field(
        99, ge=0, le=100, description="Listed products that must be complete within CHECK_WINDOW_HOURS"
    )
    correct_percent: float = Field(99, ge=0, le=100, description="Sampled products that must be as the marketplace has")
    products_per_day: int = Field(20_000, ge=0, description="Products fetched a day, while some wait that long")
    delivery_hours: float = Field(24, gt=0, le=24 * 31, description="Until a change has reached the product server")
    fetch_p95_seconds: float = Field(5, gt=0, le=60, description="Within this 95 % of all fetches must be answered")
    outbox_age_hours: float = Field(
        2, gt=0, le=24 * 31, description="Age of the oldest waiting event that is a warning"
    )
    overdue_intervals: float = Field(
        2, ge=1, le=100, description="A seller is overdue when its last whole crawl is so many intervals old"
    )
    null_share: float = Field(0.2, ge=0, le=1, description="Share of new versions that may lack a field they live by")
    price_jump_factor: float = Field(3, gt=1, le=1000, description="A price so many times higher or lower is a jump")
    suspicious_share: float = Field(
        0.2, ge=0, le=1, description="If more of a seller's products jump or lose fields at once, nothing is published"
    )
    suspicious_least: int = Field(20, ge=1, description="Fewer suspicious products than these are believed")
    truth_sample: int = Field(
        2,
        ge=0,
        le=1000,
        description="Products an hour that are fetched anew to compare, at least; 1 % of all a day if more; 0 = none",
    )
    truth_seconds: float = Field(60, gt=0, le=600, description="The most that this may take; it waits for free agents")
    truth_window_days: float = Field(7, gt=0, le=365, description="How far back samples are counted together")

    alert_urls: SecretStr | None = Field(
        None,
        description="Where alerts go, as apprise writes it: `slack://…`, `mailto://…`, `json://host/path`; several",
    )
    alert_repeat_hours: float = Field(6, gt=0, le=24 * 31, description="An alert that goes on is told again after this")
    alert_calm_seconds: float = Field(
        300, ge=0, le=86400, description="What has not been seen for so long is over; a flickering alert is told once"
    )

    @field_validator("alert_urls")
    @classmethod
    def _alert_urls(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not all(map(ADDRESS.fullmatch, _split(value))):
            raise WrongSetting(
                "takes addresses like json://host/path, separated by blanks or commas",
                korean="json://host/path 같은 주소를 공백이나 쉼표로 구분해 써야 합니다",
            )
        return value

    def alert_addresses(self) -> list[str]:
        """Every address that alerts are sent to; secret, because most contain a token."""
        return [] if self.alert_urls is None else _split(self.alert_urls)


def _split(value: SecretStr) -> list[str]:
    return [part for part in BETWEEN_ADDRESSES.split(value.get_secret_value().strip(" ,\n\t")) if part]
