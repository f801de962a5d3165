"""The settings of logs."""

from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings

Level = Literal["debug", "info", "warning", "error"]


class LogSettings(BaseSettings):
    """The settings of logs, which go to stderr."""

    log_format: Literal["pretty", "json"] = Field(
        "pretty", description="`json` writes one object a line, for a collector of logs; `pretty` is for people"
    )
    log_level: Level | None = Field(
        None, description="The least that is logged; without it `warning` by commands, `info` by servers and runs"
    )
