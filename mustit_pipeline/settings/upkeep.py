"""The settings of upkeep: retention, and the interval of full refreshes."""

from pydantic import Field
from pydantic_settings import BaseSettings


class UpkeepSettings(BaseSettings):
    """The settings of nightly maintenance and the full refresh."""

    task_retention_months: int = Field(
        3, ge=1, le=120, description="Whole months of crawl tasks that are kept besides the running one"
    )
    raw_retention_days: float = Field(
        90, ge=1, le=3650, description="How long overtaken bodies are kept; the newest of each call stays for ever"
    )
    raw_unchanged_days: float = Field(
        7, ge=0, le=3650, description="And those that a newer body of the same call only repeats; at most the former"
    )
    alert_retention_days: float = Field(90, ge=1, le=3650, description="How long alerts are kept that are over")
    truth_retention_days: float = Field(
        365, ge=1, le=3650, description="How long it is kept how sampled products compared; at least TRUTH_WINDOW_DAYS"
    )
    schedule_retention_days: float = Field(
        90, ge=1, le=3650, description="How long schedule changes are kept that were told, or replaced by newer ones"
    )
    trigger_retention_days: float = Field(
        30, ge=15, le=3650, description="How long it is known which messages came; SQS keeps them for up to 14 days"
    )
    run_log_retention_days: float = Field(
        30,
        ge=1,
        le=3650,
        description="How long Dagster's log lines are kept, and what each slice of a crawl came to; "
        "materializations and checks stay",
    )
    full_refresh_days: float = Field(
        7,
        gt=0,
        le=365,
        description="Age of a seller's last full refresh that starts one, unless its interval is longer",
    )
