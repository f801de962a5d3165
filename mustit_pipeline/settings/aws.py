"""The settings of AWS: what starts crawls, the queue of messages that ask for crawls, and the queue of tasks."""

import re
from typing import Literal

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings

from mustit_pipeline.settings.http_url import HttpUrl
from mustit_pipeline.settings.wrong_setting import WrongSetting

API_KEY = re.compile(r"mk_[!-~]+_[!-~]+")
FIFO_NAME = re.compile(r"[A-Za-z0-9_-]{1,75}\.fifo")
ARN = re.compile(r"arn:aws[a-z-]*:[a-z0-9-]+:[a-z0-9-]*:[0-9]*:\S+")

EXAMPLE_ARN = "arn:aws:sqs:ap-northeast-2:123456789012:mustit-triggers"


class AwsSettings(BaseSettings):
    """The settings of AWS; credentials come from the usual AWS_ variables."""

    trigger: Literal["dagster", "eventbridge"] = Field(
        "dagster",
        description="Who starts due crawls: `due_crawls` itself, or EventBridge rules through the trigger queue",
    )
    trigger_target_arn: str | None = Field(
        None,
        description="Whom the EventBridge rules tell: the trigger queue, or an API destination that calls our API; "
        "needed with `eventbridge`",
    )
    trigger_role_arn: str | None = Field(
        None, description="Role in which EventBridge calls the API destination; needed with one"
    )
    trigger_api_url: HttpUrl | None = Field(
        None,
        description="Our API as AWS reaches it, with https: `mustit aws setup` then makes an API destination for "
        "`POST /api/internal/crawling/trigger`",
    )
    trigger_api_key: SecretStr | None = Field(
        None, description="API key of scope `trigger` that the API destination sends; only `mustit aws setup` reads it"
    )
    trigger_queue_url: HttpUrl | None = Field(
        None, description='SQS queue whose messages `{"sellerId": …}` each ask for a crawl; off without it'
    )
    trigger_tick_messages: int = Field(500, ge=10, le=10_000, description="Messages that one tick takes from it")
    trigger_tick_seconds: float = Field(20, gt=0, le=30, description="And for how long it asks for more")
    task_transport: Literal["postgres", "sqs"] = Field(
        "postgres", description="What carries crawl tasks to workers: PostgreSQL itself, or an SQS FIFO queue"
    )
    task_queue_name: str = Field("mustit-crawler-tasks.fifo", description="That SQS queue; `mustit aws setup` makes it")
    task_dlq_name: str = Field(
        "mustit-crawler-tasks-dlq.fifo",
        description="Where SQS parks a message that was received 1 + TASK_MAX_RETRIES times and never deleted",
    )
    aws_endpoint_url: HttpUrl | None = Field(None, description="Another endpoint for AWS calls")

    @field_validator("trigger_target_arn", "trigger_role_arn")
    @classmethod
    def _arn(cls, value: str | None) -> str | None:
        if value is not None and not ARN.fullmatch(value):
            raise WrongSetting(f"takes an ARN: {EXAMPLE_ARN}", korean=f"ARN이어야 합니다: {EXAMPLE_ARN}")
        return value

    @field_validator("trigger_api_key")
    @classmethod
    def _api_key(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not API_KEY.fullmatch(value.get_secret_value()):
            raise WrongSetting(
                "takes an API key as `mustit apikey create` prints it: mk_<id>_<secret>",
                korean="`mustit apikey create`가 출력한 API 키여야 합니다: mk_<id>_<secret>",
            )
        return value

    @field_validator("task_queue_name", "task_dlq_name")
    @classmethod
    def _fifo(cls, value: str) -> str:
        if not FIFO_NAME.fullmatch(value):
            raise WrongSetting(
                "takes the name of a FIFO queue: letters, digits, - and _, then .fifo",
                korean="FIFO 큐의 이름이어야 합니다: 영문자, 숫자, -, _ 다음에 .fifo",
            )
        return value

    @model_validator(mode="after")
    def _target(self) -> "AwsSettings":
        if self.trigger == "eventbridge" and self.trigger_target_arn is None:
            raise WrongSetting(
                "with MUSTIT_TRIGGER set to eventbridge, MUSTIT_TRIGGER_TARGET_ARN must be set too",
                korean="MUSTIT_TRIGGER가 eventbridge이면 MUSTIT_TRIGGER_TARGET_ARN도 설정해야 합니다",
            )
        if self.triggers_by_api and self.trigger_role_arn is None:
            raise WrongSetting(
                "MUSTIT_TRIGGER_TARGET_ARN is an API destination: MUSTIT_TRIGGER_ROLE_ARN must be set too",
                korean="MUSTIT_TRIGGER_TARGET_ARN이 API 대상이면 MUSTIT_TRIGGER_ROLE_ARN도 설정해야 합니다",
            )
        if (self.trigger_api_url is None) != (self.trigger_api_key is None):
            raise WrongSetting(
                "MUSTIT_TRIGGER_API_URL and MUSTIT_TRIGGER_API_KEY are set together or not at all",
                korean="MUSTIT_TRIGGER_API_URL과 MUSTIT_TRIGGER_API_KEY는 함께 설정하거나 함께 비워야 합니다",
            )
        return self

    @property
    def triggers_by_api(self) -> bool:
        """Whether EventBridge calls our API instead of sending to the trigger queue."""
        return self.trigger_target_arn is not None and ":api-destination/" in self.trigger_target_arn
