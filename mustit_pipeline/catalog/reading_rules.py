"""Reading rules: which bodies are refused although they can be parsed. Fetching and replay use the same rules."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from mustit_pipeline.catalog.sql import drift
from mustit_pipeline.domain.drift import Deviation, DriftKind
from mustit_pipeline.domain.field_paths import FieldPaths
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.settings import Settings


@dataclass(frozen=True, slots=True)
class ReadingRules:
    """Refuse a body with unaccepted drift in a blocked field, and a listing page with a count above `most_products`."""

    blocked: FieldPaths = field(default_factory=lambda: FieldPaths(""))
    accepted: frozenset[tuple[str, DriftKind, str]] = frozenset()
    most_products: int | None = None

    def blocking(self, drift: Iterable[Deviation]) -> str | None:
        """Why a body with this drift is refused; None if it is not."""
        for seen in drift:
            if self.blocked.include(seen.path) and (seen.path, seen.kind, seen.observed) not in self.accepted:
                became = {DriftKind.NEW: f"is new ({seen.observed})", DriftKind.MISSING: "is missing"}
                how = became.get(seen.kind, f"is {seen.observed}, not {seen.expected}")
                return f"{seen.path} {how}, and MUSTIT_DRIFT_BLOCK blocks it"
        return None


USUAL_READING = ReadingRules()


def reading_rules(database: Database, settings: Settings) -> ReadingRules:
    """The rules of the settings, with the drift that operators have accepted."""
    blocked = FieldPaths(settings.drift_block)
    if not blocked.paths:
        return ReadingRules(most_products=settings.seller_most_products)
    with database.reading() as connection:
        accepted = drift.accepted(connection)
    return ReadingRules(blocked, accepted, settings.seller_most_products)
