"""From raw bodies to versions: absorb what each source says, then publish what differs."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

import orjson
import structlog
from sqlalchemy import Connection

from mustit_pipeline.catalog import canonical
from mustit_pipeline.catalog.diff import diff
from mustit_pipeline.catalog.product_data import Document, Sources, merge
from mustit_pipeline.domain.limits import RAW_MAX_ATTEMPTS
from mustit_pipeline.domain.product import Product
from mustit_pipeline.domain.states import LifeCycle, TaskType
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.failures import WRONG_SELLER, MalformedBody
from mustit_pipeline.marketplace.models import ProductDetail
from mustit_pipeline.marketplace.parsing import parse_detail, parse_listing, parse_options
from mustit_pipeline.store import executions, outbox, products, raw
from mustit_pipeline.store.database import Database
from mustit_pipeline.store.products import AbsorbedProduct, Contents, NewVersion, Unpublished
from mustit_pipeline.store.raw import RawFailure, RawRow

UNLISTED = "INVARIANT_PRODUCT_UNLISTED"
UNREADABLE = "INVARIANT_BODY_UNREADABLE"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class BatchSize:
    """How much one transaction takes on: enough to be fast, little enough that memory and locks stay small."""

    pages: int = 2
    bodies: int = 800
    versions: int = 500


USUAL_BATCH = BatchSize()


@dataclass(slots=True)
class ProcessingReport:
    """What processing made of a seller's raw bodies."""

    bodies: int = 0
    failed_bodies: int = 0
    versions: Counter[LifeCycle] = field(default_factory=Counter[LifeCycle])
    changes: Counter[str] = field(default_factory=Counter[str])


def process(
    database: Database,
    seller_id: SellerId,
    *,
    now: Callable[[], datetime],
    batch: BatchSize = USUAL_BATCH,
    raw_attempts: int = RAW_MAX_ATTEMPTS,
    progress: Callable[[ProcessingReport], None] | None = None,
) -> ProcessingReport:
    """Process everything that waits for a seller, batch by batch, each in one transaction."""
    report = ProcessingReport()
    with database.transaction() as connection:
        raw.take_turns(connection, seller_id.value)
        raw.retry_failed(connection, seller_id.value, attempts=raw_attempts)
        # Most bodies of most crawls say nothing new: those are not even read.
        report.bodies += raw.settle_unchanged(connection, seller_id.value)
    while True:
        with database.transaction() as connection:
            raw.take_turns(connection, seller_id.value)
            bodies = _absorb_batch(connection, seller_id, batch, report)
            versions = _publish_batch(connection, seller_id, batch.versions, now(), report)
        if progress is not None:
            progress(report)
        if not bodies and not versions:
            return report


def _absorb_batch(connection: Connection, seller_id: SellerId, batch: BatchSize, report: ProcessingReport) -> int:
    rows = raw.pending(connection, seller_id.value, pages=batch.pages, products=batch.bodies)
    if not rows:
        return 0
    statements, failures = _read(rows, seller_id)
    known = products.lock(connection, seller_id.value, [said.item_no for said in statements])
    for said in statements:
        if said.item_no not in known and said.source is not TaskType.MINISHOP:
            reason = f"no listing has shown item {said.item_no} yet; it is tried again"
            failures.append(RawFailure(said.raw_id, UNLISTED, reason))
    _absorb(connection, seller_id.value, known, [said for said in statements if said.item_no in known])
    failed = {failure.raw_id for failure in failures}
    raw.mark_processed(connection, [row.raw_id for row in rows if row.raw_id not in failed])
    raw.mark_failed(connection, failures)
    report.bodies += len(rows)
    report.failed_bodies += len(failures)
    return len(rows)


def _absorb(connection: Connection, seller_id: str, known: dict[int, Product], statements: list["_Statement"]) -> None:
    """Store what differs from what was known; what is known is read only for products of which something does."""
    differing = {said.item_no for said in statements if known[said.item_no].changed(said.source, said.content_hash)}
    contents = products.contents(connection, seller_id, list(differing)) if differing else {}
    absorbed = {item_no: _Absorption(seller_id, known[item_no], contents[item_no]) for item_no in differing}
    for said in statements:
        if said.item_no in differing:
            absorbed[said.item_no].take(said)
    products.absorb(connection, [entry.result() for entry in absorbed.values() if entry.changed])


@dataclass(frozen=True, slots=True)
class _Statement:
    """What one body says about one product."""

    raw_id: int
    item_no: int
    source: TaskType
    content: Document | ProductDetail
    encoded: bytes
    content_hash: str


def _read(rows: Iterable[RawRow], seller_id: SellerId) -> tuple[list[_Statement], list[RawFailure]]:
    """Parse bodies into statements; a body that cannot be read fails alone."""
    statements: list[_Statement] = []
    failures: list[RawFailure] = []
    for row in rows:
        try:
            said = list(_statements(row))
        except MalformedBody as error:
            failures.append(RawFailure(row.raw_id, error.code, error.english))
        except Exception as error:
            # A defect of ours on one body must not stop the seller; after the fix the body is replayed.
            log.exception("body cannot be processed", raw_id=row.raw_id, seller_id=seller_id.value)
            failures.append(RawFailure(row.raw_id, UNREADABLE, f"{type(error).__name__} while reading it"))
        else:
            if owner := _other_owner(said, seller_id):
                failures.append(RawFailure(row.raw_id, WRONG_SELLER, f"the detail is of the seller {owner!r}"))
            else:
                statements.extend(said)
    return statements, failures


def _other_owner(said: Iterable[_Statement], seller_id: SellerId) -> str | None:
    """Whose product a detail is about, where that is another seller."""
    owners = (one.content.seller_id for one in said if isinstance(one.content, ProductDetail))
    return next((owner for owner in owners if owner != seller_id.value), None)


def _statements(row: RawRow) -> Iterator[_Statement]:
    body = row.body.encode()
    if row.source is TaskType.MINISHOP:
        for entry in parse_listing(body).entries:
            yield _statement(row, entry.item_no, canonical.listing_document(entry))
    elif row.item_no is not None and row.source is TaskType.PRODUCT_DETAIL:
        detail = parse_detail(body, item_no=row.item_no)
        yield _statement(row, row.item_no, canonical.detail_document(detail, None), detail)
    elif row.item_no is not None:
        yield _statement(row, row.item_no, canonical.options_document(parse_options(body, item_no=row.item_no)))


def _statement(row: RawRow, item_no: int, document: Document, detail: ProductDetail | None = None) -> _Statement:
    encoded = canonical.canonical_json(document)
    return _Statement(
        row.raw_id,
        item_no,
        row.source,
        document if detail is None else detail,
        encoded,
        canonical.content_hash(encoded),
    )


class _Absorption:
    """One product while new statements about it come in."""

    def __init__(self, seller_id: str, product: Product, known: Contents) -> None:
        self._seller_id = seller_id
        self._product = product
        self._known = known
        self._texts: dict[TaskType, str | None] = {
            TaskType.MINISHOP: known.listing,
            TaskType.PRODUCT_DETAIL: known.detail,
            TaskType.PRODUCT_OPTION: known.options,
        }
        self.changed = False

    def take(self, said: _Statement) -> None:
        """Remember a source's statement where it differs from its last one."""
        encoded, content_hash = said.encoded, said.content_hash
        previous = self._texts[said.source]
        if isinstance(said.content, ProductDetail) and previous is not None and not said.content.is_whole:
            document = canonical.detail_document(said.content, orjson.loads(previous))
            encoded = canonical.canonical_json(document)
            content_hash = canonical.content_hash(encoded)
        if self._product.saw(said.source, content_hash):
            self._texts[said.source] = encoded.decode()
            self.changed = True

    def result(self) -> AbsorbedProduct:
        """The product with its merged state."""
        known = self._known
        listing, detail, options = self._texts.values()
        new = [
            text if text != old else None for text, old in zip((listing, detail, options), known.sources, strict=True)
        ]
        if detail is None and options is None:
            # A listing entry alone is nothing to publish, and whatever comes next is merged with it then.
            return AbsorbedProduct(self._product, *new, None, None)
        old = Sources() if known.data is None else _sources(known.listing, known.detail, known.options)
        previous = None if known.data is None else orjson.loads(known.data)
        data = merge(self._seller_id, self._product.item_no.value, previous, old, _sources(listing, detail, options))
        encoded = orjson.dumps(data)
        return AbsorbedProduct(self._product, *new, encoded.decode(), canonical.content_hash(encoded))


def _differing(text: str | None, known: str | None) -> str | None:
    return None if text == known else text


def _sources(listing: str | None, detail: str | None, options: str | None) -> Sources:
    return Sources(_document(listing), _document(detail), _document(options))


def _document(encoded: str | None) -> Document | None:
    return None if encoded is None else orjson.loads(encoded)


def _publish_batch(
    connection: Connection, seller_id: SellerId, limit: int, now: datetime, report: ProcessingReport
) -> int:
    ready = products.unpublished(connection, seller_id.value, limit)
    if not ready:
        return 0
    current = executions.find_open(connection, seller_id) or executions.find_latest(connection, seller_id)
    if current is None:
        return 0
    versions = [_next_version(entry) for entry in ready]
    products.publish(connection, seller_id.value, current.execution.id.value, versions)
    outbox.enqueue(connection, seller_id, versions, now)
    for version in versions:
        report.versions[version.life_cycle] += 1
        report.changes.update(version.change_types)
    return len(versions)


def _next_version(entry: Unpublished) -> NewVersion:
    product = entry.product
    known = product.version > 0
    if product.is_deleted:
        product.restore()
        life_cycle = LifeCycle.RESTORED if known else LifeCycle.CREATED
    else:
        life_cycle = LifeCycle.UPDATED if known else LifeCycle.CREATED
    product.publish()
    changes = (
        diff(orjson.loads(entry.published_data), orjson.loads(entry.data))
        if life_cycle is LifeCycle.UPDATED and entry.published_data is not None
        else []
    )
    types = sorted({change.type.value for change in changes})
    return NewVersion(product, life_cycle, types, [change.as_json() for change in changes], entry.data, entry.data_hash)
