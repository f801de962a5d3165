"""What can be set on the simulated marketplace, at its start and while it runs."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from mustit_pipeline.simulator.control_input import Fields
from mustit_pipeline.simulator.limits import Limits

LISTING_PATH = "/mustit-api/facade-api/v1/searchmini-shop-search"
TOKEN_COOKIES = ("max-age", "expires", "session")


@dataclass(frozen=True, slots=True)
class MarketplaceSettings:
    """The defaults are the real marketplace's behaviour, without its latency."""

    limits: Limits = field(default_factory=Limits)
    latency_ms: float = 0.0
    first_page_no: int = 0
    noise: bool = True
    token_seconds: float = 7200.0
    token_cookie: str = "max-age"
    listing_path: str = LISTING_PATH

    def patched(self, fields: Fields) -> "MarketplaceSettings":
        """The same with what the control call gives; the listing path stays as it was started."""
        limits = Limits(
            requests_per_window=fields.integer("requestsPerWindow", minimum=1, default=self.limits.requests_per_window),
            window_seconds=fields.number(
                "windowSeconds", minimum=0.01, maximum=86_400, default=self.limits.window_seconds
            ),
            min_gap_seconds=fields.number(
                "minGapSeconds", minimum=0, maximum=3600, default=self.limits.min_gap_seconds
            ),
            gap_tolerance_seconds=fields.number(
                "gapToleranceSeconds", minimum=0, maximum=3600, default=self.limits.gap_tolerance_seconds
            ),
        )
        patched = replace(
            self,
            limits=limits,
            latency_ms=fields.number("latencyMs", minimum=0, maximum=600_000, default=self.latency_ms),
            first_page_no=fields.integer("firstPageNo", minimum=0, maximum=1, default=self.first_page_no),
            noise=fields.flag("noise", default=self.noise),
            token_seconds=fields.number("tokenSeconds", minimum=0.1, maximum=864_000, default=self.token_seconds),
            token_cookie=fields.choice("tokenCookie", TOKEN_COOKIES, default=self.token_cookie),
        )
        fields.done()
        return patched

    def as_json(self) -> dict[str, Any]:
        """With the names that a control call uses."""
        flat = asdict(self)
        flat |= flat.pop("limits")
        return {_camel(name): value for name, value in flat.items()}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
