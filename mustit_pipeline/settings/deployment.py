"""The settings of deployment: runs in processes beside the daemon, or in warm workers on any host."""

from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings

from mustit_pipeline.settings.addresses import BrokerUrl, PathOrBucket


class DeploymentSettings(BaseSettings):
    """The settings of several hosts."""

    run_launcher: Literal["process", "celery"] = Field(
        "process", description="Where runs happen: a new process of the code server each, or `mustit run-worker`s"
    )
    broker_url: BrokerUrl | None = Field(
        None, description="Redis through which runs reach the run workers; REDIS_URL without it"
    )
    run_worker_slots: int = Field(4, ge=1, le=100, description="Runs that one run worker does at once")
    run_grace_seconds: float = Field(
        60, gt=0, le=600, description="How old a run is before no sign of life means that its process is gone"
    )

    compute_logs_uri: PathOrBucket | None = Field(
        None,
        description="Where the output of runs goes: a path that all hosts share, or s3://; the host's own without it",
    )
