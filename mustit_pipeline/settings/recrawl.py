"""The settings of the recrawl policy: which known products a crawl fetches again."""

from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings


class RecrawlSettings(BaseSettings):
    """The settings of the recrawl policy."""

    recrawl: Literal["adaptive", "everything"] = Field(
        "adaptive",
        description="Which known products a crawl fetches again: those that probably changed or grow too old, or all",
    )
    max_age_hours: float = Field(
        24,
        gt=0,
        le=24 * 365,
        description="No detail or option set of a product gets older, as far as the agents' requests suffice",
    )
    min_change_chance: float = Field(
        0.01,
        ge=0,
        le=1,
        description="What changed with a smaller chance than that is fetched only because of its age",
    )
