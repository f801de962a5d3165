"""What raw bodies say about products, outside of transactions; only a body without its content is parsed again."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import structlog
from msgspec import Struct

from mustit_pipeline.catalog import canonical
from mustit_pipeline.catalog.sql.drift import accepted
from mustit_pipeline.catalog.sql.raw import RawFailure, RawRow
from mustit_pipeline.domain.drift import Deviation, DriftKind
from mustit_pipeline.domain.field_paths import FieldPaths
from mustit_pipeline.domain.states import TaskType
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.foundation.failures import BLOCKED_DRIFT, WRONG_SELLER, MalformedBody
from mustit_pipeline.marketplace.models import ListingEntry, ProductDetail
from mustit_pipeline.marketplace.parsing import parse_detail, parse_listing, parse_options
from mustit_pipeline.settings import Settings

UNREADABLE = "INVARIANT_BODY_UNREADABLE"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ReadingRules:
    """Which bodies are refused although they can be parsed: by fetching and by replay alike.

    Those with unaccepted drift in a blocked field, and listing pages with a count above `most_products`.
    """

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
        return ReadingRules(blocked, accepted(connection), settings.seller_most_products)


class Statement(Struct, frozen=True):
    """What one body says about one product."""

    body: RawRow
    item_no: int
    encoded: bytes
    content_hash: str
    # Set if a module or a price is missing: the earlier values complete it.
    partial: ProductDetail | ListingEntry | None = None
    # Whether the body's row holds it as its content.
    stored: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """A batch of parsed bodies: their statements, and why some of them failed."""

    statements: list[Statement]
    failures: list[RawFailure]


def read(rows: Sequence[RawRow], seller_id: SellerId, rules: ReadingRules) -> Reading:
    """Parse bodies into statements; a body that cannot be read fails alone."""
    reading = Reading([], [])
    for row in rows:
        try:
            reading.statements.extend(_statements(row, seller_id, rules))
        except _Refused as error:
            reading.failures.append(RawFailure(row.raw_id, error.code, error.reason))
        except MalformedBody as error:
            reading.failures.append(RawFailure(row.raw_id, error.code, error.english))
        except Exception as error:
            # A bug that one body triggers must not stop the seller; after the fix the body is replayed.
            log.exception("body cannot be processed", raw_id=row.raw_id, seller_id=seller_id.value)
            why = f"{type(error).__name__} while reading it"
            reading.failures.append(RawFailure(row.raw_id, UNREADABLE, why))
    return reading


class _Refused(Exception):
    """A body that can be parsed, but that the reading rules refuse."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


def _statements(row: RawRow, seller_id: SellerId, rules: ReadingRules) -> list[Statement]:
    if row.item_no is not None and row.content is not None and row.content_hash is not None:
        # The worker has parsed it when it arrived.
        return [Statement(row, row.item_no, row.content.encode(), row.content_hash, stored=True)]
    if row.source is TaskType.MINISHOP and row.content is not None:
        return [
            Statement(row, item_no, encoded, canonical.content_hash(encoded))
            for item_no, encoded in canonical.listing_lines(row.content)
        ]
    body = row.body.encode()
    # Looking for drift costs time, and only blocked fields matter here.
    drift: list[Deviation] | None = [] if rules.blocked.paths else None
    said: list[tuple[int, bytes, ProductDetail | ListingEntry | None]] = []
    if row.source is TaskType.MINISHOP:
        for entry in parse_listing(body, drift, most=rules.most_products).entries:
            said.append((entry.item_no, canonical.listing_json(entry), None if entry.is_whole else entry))
    elif row.item_no is not None and row.source is TaskType.PRODUCT_DETAIL:
        detail = parse_detail(body, drift, item_no=row.item_no)
        if not detail.is_of(seller_id.value):
            raise _Refused(WRONG_SELLER, f"the detail is of the seller {detail.seller_id!r}")
        said.append((row.item_no, canonical.detail_json(detail, None), None if detail.is_whole else detail))
    elif row.item_no is not None:
        options = parse_options(body, drift, item_no=row.item_no)
        said.append((row.item_no, canonical.options_json(options), None))
    blocked = rules.blocking(drift or ())
    if blocked is not None:
        raise _Refused(BLOCKED_DRIFT, blocked)
    return [
        Statement(row, item_no, encoded, canonical.content_hash(encoded), partial) for item_no, encoded, partial in said
    ]
