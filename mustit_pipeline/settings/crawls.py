"""The settings of crawls: requests at once, tries and leases, slices, and what holds changes back."""

from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_settings import BaseSettings

from mustit_pipeline.domain.field_paths import SOURCES, FieldPaths
from mustit_pipeline.settings.wrong_setting import WrongSetting


def _field_paths(value: str) -> str:
    try:
        return FieldPaths.checked(value)
    except ValueError as error:
        raise WrongSetting(
            str(error),
            korean="쉼표로 구분한 필드 경로여야 합니다. detail.ProductInfoModule.stock이나 listing.items.*처럼 "
            f"{', '.join(SOURCES)} 중 하나로 시작합니다",
        ) from None


class CrawlSettings(BaseSettings):
    """The settings of crawls."""

    max_concurrent_requests: int = Field(100, ge=1, le=1000, description="Requests in flight at once, per worker")
    network_tries: int = Field(3, ge=1, le=10, description="Tries of one request inside a task when the network breaks")
    throttled_tries: int = Field(
        3, ge=2, le=10, description="Agents throttled by one request before it is at fault, if the host answers others"
    )
    session_patience_seconds: float = Field(
        30, gt=0, description="How long a new crawl waits for a session token before it fails"
    )
    task_max_retries: int = Field(2, ge=0, le=10, description="Retries of a crawl task after its first attempt")
    task_max_releases: int = Field(
        5, ge=1, le=100, description="Workers in a row that a task may lose; the last fails it"
    )
    raw_max_attempts: int = Field(
        3, ge=1, le=100, description="Times that a stored body is processed before only a replay"
    )
    runs_at_once: int = Field(
        10,
        ge=1,
        le=1000,
        description="Dagster runs at once: CRAWLS_AT_ONCE, 3 of backfills, 1 of housekeeping, and 2 for all else",
    )
    crawls_at_once: int = Field(
        4, ge=1, le=100, description="Crawl runs that the due_crawls sensor keeps going at once"
    )
    retry_base_seconds: float = Field(1.0, gt=0, description="First back-off; doubled each time, with jitter")
    lease_seconds: float = Field(30, gt=0, description="How long a claimed task stays with a silent worker")
    grace_seconds: float = Field(
        10, ge=0, le=600, description="How long a worker that is asked to stop lets requests in flight end"
    )
    crawl_slice_seconds: float = Field(600, gt=0, description="How long one run works on a crawl before the next one")
    slice_max_crashes: int = Field(
        5, ge=1, le=100, description="Crashes in a row, and no step further, that fail a crawl"
    )
    slice_backoff_seconds: float = Field(
        60, gt=0, description="Pause after a crawl's second crash in a row; doubled then"
    )
    slice_longest_backoff_seconds: float = Field(600, gt=0, description="Longest pause before such a crawl goes on")
    plan_backoff_seconds: float = Field(
        60, gt=0, description="Until a seller is due again whose count call failed for now; doubled each time"
    )
    plan_longest_backoff_seconds: float = Field(
        3600, gt=0, description="Longest such pause; never longer than the seller's interval"
    )
    deletion_hold_share: float = Field(0.2, ge=0, le=1, description="A sweep that would delete more is held back")
    deletion_sweeps: int = Field(2, ge=1, le=10, description="Complete sweeps a product must be absent from")
    drift_block: Annotated[str, AfterValidator(_field_paths)] = Field(
        "",
        description="Fields, like `listing.items.price,detail.*`: a body in which one changed is a failed fetch, kept "
        "for `mustit raw replay`, until the change is accepted",
    )
