"""What raw bodies say about products, outside of transactions; only a body without its content is parsed again."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

import structlog
from msgspec import Struct

from mustit_pipeline.catalog import canonical
from mustit_pipeline.catalog.product_data import Document
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

    raw_id: int
    execution_id: UUID
    fetched_at: datetime
    source: TaskType
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

    attempts: dict[int, int]
    statements: list[Statement]
    failures: list[RawFailure]

    @property
    def raw_ids(self) -> list[int]:
        """The bodies, in the order in which they were read."""
        return list(self.attempts)


def read(rows: Sequence[RawRow], seller_id: SellerId, rules: ReadingRules) -> Reading:
    """Parse bodies into statements; a body that cannot be read fails alone."""
    statements: list[Statement] = []
    failures: list[RawFailure] = []
    for row in rows:
        try:
            statements.extend(list(_statements(row, seller_id, rules)))
        except _Refused as error:
            failures.append(RawFailure(row.raw_id, error.code, error.reason))
        except MalformedBody as error:
            failures.append(RawFailure(row.raw_id, error.code, error.english))
        except Exception as error:
            # A bug that one body triggers must not stop the seller; after the fix the body is replayed.
            log.exception("body cannot be processed", raw_id=row.raw_id, seller_id=seller_id.value)
            failures.append(RawFailure(row.raw_id, UNREADABLE, f"{type(error).__name__} while reading it"))
    return Reading({row.raw_id: row.attempts for row in rows}, statements, failures)


class _Refused(Exception):
    """A body that can be parsed, but that the reading rules refuse."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


def _statements(row: RawRow, seller_id: SellerId, rules: ReadingRules) -> Iterator[Statement]:
    if row.item_no is not None and row.content is not None and row.content_hash is not None:
        # The worker has parsed it when it arrived.
        yield Statement(*_origin(row), row.item_no, row.content.encode(), row.content_hash, stored=True)
        return
    if row.source is TaskType.MINISHOP and row.content is not None:
        for item_no, encoded in canonical.listing_lines(row.content):
            yield Statement(*_origin(row), item_no, encoded, canonical.content_hash(encoded))
        return
    body = row.body.encode()
    # Looking for drift costs time, and only blocked fields matter here.
    drift: list[Deviation] | None = [] if rules.blocked.paths else None
    if row.source is TaskType.MINISHOP:
        for entry in parse_listing(body, drift, most=rules.most_products).entries:
            yield _statement(row, entry.item_no, canonical.listing_document(entry), None if entry.is_whole else entry)
    elif row.item_no is not None and row.source is TaskType.PRODUCT_DETAIL:
        detail = parse_detail(body, row.item_no, drift)
        if not detail.is_of(seller_id.value):
            raise _Refused(WRONG_SELLER, f"the detail is of the seller {detail.seller_id!r}")
        partial = None if detail.is_whole else detail
        yield _statement(row, row.item_no, canonical.detail_document(detail, None), partial)
    elif row.item_no is not None:
        yield _statement(row, row.item_no, canonical.options_document(parse_options(body, row.item_no, drift)))
    blocked = rules.blocking(drift or ())
    if blocked is not None:
        raise _Refused(BLOCKED_DRIFT, blocked)


def _statement(
    row: RawRow, item_no: int, document: Document, partial: ProductDetail | ListingEntry | None = None
) -> Statement:
    encoded = canonical.canonical_json(document)
    return Statement(*_origin(row), item_no, encoded, canonical.content_hash(encoded), partial)


def _origin(row: RawRow) -> tuple[int, UUID, datetime, TaskType]:
    return row.raw_id, row.execution_id, row.fetched_at, row.source
