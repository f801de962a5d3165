"""The settings of the AWS edge: who starts crawls, and the queue through which others ask for them."""

from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings

from mustit_pipeline.settings.http_url import HttpUrl


class AwsSettings(BaseSettings):
    """The part of the settings that AWS is called by; who we are there comes from the usual AWS_ variables."""

    trigger: Literal["dagster"] = Field("dagster", description="Who starts due crawls")
    trigger_queue_url: HttpUrl | None = Field(
        None, description='SQS queue whose messages `{"sellerId": …}` each ask for a crawl; off without it'
    )
    trigger_tick_messages: int = Field(500, ge=10, le=10_000, description="Messages that one tick takes from it")
    trigger_tick_seconds: float = Field(20, gt=0, le=30, description="And for how long it asks for more")
    task_transport: Literal["postgres"] = Field("postgres", description="Where crawl tasks are queued")
    aws_endpoint_url: HttpUrl | None = Field(None, description="Another endpoint for AWS calls")
