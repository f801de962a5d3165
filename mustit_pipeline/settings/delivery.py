"""The settings of delivery: how events are claimed, sent, and tried again."""

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings

from mustit_pipeline.settings.wrong_setting import WrongSetting

# Half of a lease may pass before its row is sent; a third is for the call, and the rest for storing the result.
CALLS_PER_LEASE = 3


class DeliverySettings(BaseSettings):
    """The settings of the outbox and the product server."""

    relay_concurrent_sends: int = Field(
        20, ge=1, le=500, description="Events on their way to the product server at once"
    )
    relay_batch: int = Field(100, ge=1, le=1000, description="Outbox rows that a relay claims at once")
    relay_lease_seconds: float = Field(
        60, gt=0, description="How long a claimed row stays with a silent relay; at least three of the longest calls"
    )
    relay_run_seconds: float = Field(
        3600, gt=0, le=3600, description="How long one relay goes on; the next one sends what is left"
    )
    relay_grace_seconds: float = Field(
        5.0,
        ge=0,
        le=60,
        description="For events in flight to end when a relay is asked to stop; the rest is given back",
    )
    relay_longest_backoff_seconds: float = Field(300, gt=0, description="Longest pause before a row is sent again")
    product_server_connect_seconds: float = Field(3.0, gt=0, description="To open a connection to the product server")
    product_server_read_seconds: float = Field(
        5.0,
        gt=0,
        description="For the product server's answer to begin, and to go on; all of it has twice that",
    )
    product_server_breaker_failures: int = Field(
        5,
        ge=1,
        description="Answers in a row that are the server's own failure (no connection, 502, 503, 504, 429) "
        "until sending stops",
    )
    product_server_breaker_seconds: float = Field(
        30, gt=0, le=60, description="Until one event asks whether the product server is back"
    )
    product_server_credential_seconds: float = Field(
        300, gt=0, le=3600, description="Until one event asks whether a refused token (401, 403) is accepted again"
    )
    outbox_max_retries: int = Field(5, ge=0, le=50, description="Failures of an outbox row before it is FAILED")
    outbox_retry_base_seconds: float = Field(
        10, gt=0, description="First pause before a row is sent again; three times as long after each further failure"
    )

    @property
    def product_server_call_seconds(self) -> float:
        """The longest time of a whole call to the product server, however slowly its answer arrives."""
        return self.product_server_connect_seconds + 2 * self.product_server_read_seconds

    @model_validator(mode="after")
    def _lease(self) -> "DeliverySettings":
        least = CALLS_PER_LEASE * self.product_server_call_seconds
        if self.relay_lease_seconds < least:
            raise WrongSetting(
                f"MUSTIT_RELAY_LEASE_SECONDS is {self.relay_lease_seconds:g}, and takes at least {least:g} with "
                "MUSTIT_PRODUCT_SERVER_CONNECT_SECONDS and MUSTIT_PRODUCT_SERVER_READ_SECONDS as they are: "
                "events would be sent again while they are still under way",
                korean=f"MUSTIT_RELAY_LEASE_SECONDS는 {self.relay_lease_seconds:g}이지만 "
                "MUSTIT_PRODUCT_SERVER_CONNECT_SECONDS와 MUSTIT_PRODUCT_SERVER_READ_SECONDS에 맞추면 "
                f"{least:g} 이상이어야 합니다. 더 짧으면 전송 중인 이벤트가 다시 전송됩니다",
            )
        return self
