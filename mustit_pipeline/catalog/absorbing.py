"""From raw bodies to products: read ahead, and stored as the merged state if nothing has changed meanwhile."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import orjson
from sqlalchemy import Connection

from mustit_pipeline.catalog import canonical
from mustit_pipeline.catalog.product_data import Document, Sources, merge
from mustit_pipeline.catalog.reading import Reading, ReadingRules, Statement, read
from mustit_pipeline.catalog.sql import products, raw
from mustit_pipeline.catalog.sql.products import AbsorbedProduct, Contents, KnownProduct
from mustit_pipeline.catalog.sql.raw import RawFailure
from mustit_pipeline.domain.product import Product
from mustit_pipeline.domain.states import TaskType
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.database import Database

UNLISTED = "INVARIANT_PRODUCT_UNLISTED"


@dataclass(frozen=True, slots=True)
class ReadAhead:
    """The next bodies of a seller, parsed and merged outside of the transaction that stores them."""

    # By body; one that was processed and reopened meanwhile has more.
    attempts: dict[int, int]
    reading: Reading
    # The products as they were read, and merged with the statements; None where nothing changed.
    known: dict[int, KnownProduct]
    merged: dict[int, AbsorbedProduct | None]
    # Whether no more bodies waited, listings aside.
    is_rest: bool


def read_ahead(
    database: Database, seller_id: SellerId, rules: ReadingRules, *, pages: int, bodies: int, beside: Iterable[int] = ()
) -> ReadAhead:
    """The bodies after those of `beside`, which are being absorbed."""
    with database.reading() as connection:
        rows = raw.pending(connection, seller_id.value, pages=pages, products=bodies, beside=beside)
    reading = read(rows, seller_id, rules)
    with database.reading() as connection:
        items = [said.item_no for said in reading.statements]
        known = products.find_known(connection, seller_id.value, items)
        merged = _merge(connection, seller_id.value, known, reading.statements)
    attempts = {row.raw_id: row.attempts for row in rows}
    is_rest = len(rows) < bodies and all(row.source is not TaskType.MINISHOP for row in rows)
    return ReadAhead(attempts, reading, known, merged, is_rest)


def absorb(connection: Connection, seller_id: str, ahead: ReadAhead) -> tuple[int, int]:
    """Store what was read ahead, under `lock_catalog`; returns how many bodies are processed, and failed among them."""
    # They were read outside of this transaction: another processor may have processed them, or a worker may have stored
    # a listing page, meanwhile.
    ours = raw.still_next(connection, seller_id, ahead.attempts) if ahead.attempts else set[int]()
    if not ours:
        return 0, 0
    failures = [failure for failure in ahead.reading.failures if failure.raw_id in ours]
    said = [said for said in ahead.reading.statements if said.body.raw_id in ours]
    known = products.find_known(connection, seller_id, [one.item_no for one in said], lock=True)
    for one in said:
        if one.item_no not in known and one.body.source is not TaskType.MINISHOP:
            reason = f"no listing has shown item {one.item_no} yet; it is tried again"
            failures.append(RawFailure(one.body.raw_id, UNLISTED, reason))
    merged: dict[int, AbsorbedProduct | None] = {}
    if len(ours) == len(ahead.attempts):
        # Whatever is written to a product's row gives it another state number.
        merged = {
            item_no: result
            for item_no, result in ahead.merged.items()
            if item_no in known and known[item_no].row_state == ahead.known[item_no].row_state
        }
    if rest := [one for one in said if one.item_no not in merged]:
        merged |= _merge(connection, seller_id, known, rest)
    products.absorb(connection, [result for result in merged.values() if result is not None])
    failed = {failure.raw_id for failure in failures}
    raw.mark_processed(connection, [raw_id for raw_id in ours if raw_id not in failed])
    if failures:
        raw.mark_failed(connection, failures)
    return len(ours), len(failures)


def _merge(
    connection: Connection, seller_id: str, known: Mapping[int, KnownProduct], statements: Sequence[Statement]
) -> dict[int, AbsorbedProduct | None]:
    """Known products merged with what is said of them; only changed products' contents are read."""
    said: defaultdict[int, list[Statement]] = defaultdict(list)
    for one in statements:
        # If two pages show a product, the later one counts, even if it was absorbed first.
        product = known.get(one.item_no)
        if product is not None and not (one.body.source is TaskType.MINISHOP and product.was_shown_since(one.body)):
            said[one.item_no].append(one)
    present = {item_no: products.product_of(known[item_no].row) for item_no in said}
    differing = [
        item_no
        for item_no, ones in said.items()
        if any(present[item_no].changed(one.body.source, one.content_hash) for one in ones)
    ]
    contents = products.contents(connection, seller_id, differing) if differing else {}
    return dict.fromkeys(said) | {
        item_no: _merge_product(seller_id, present[item_no], contents[item_no], said[item_no]) for item_no in differing
    }


def _merge_product(
    seller_id: str, product: Product, known: Contents, statements: Sequence[Statement]
) -> AbsorbedProduct | None:
    """A product with each source's last word; None where that is what the source has said before."""
    before = (known.listing, known.detail, known.options)
    texts = dict(zip((TaskType.MINISHOP, TaskType.PRODUCT_DETAIL, TaskType.PRODUCT_OPTION), before, strict=True))
    # By source, the bodies whose rows hold the content.
    rows: dict[TaskType, int] = {}
    changed = False
    for said in statements:
        source, encoded, content_hash = said.body.source, said.encoded, said.content_hash
        earlier = texts[source]
        if said.partial is not None and earlier is not None:
            encoded = canonical.whole_json(said.partial, orjson.loads(earlier))
            content_hash = canonical.content_hash(encoded)
        if product.record_content(source, content_hash):
            texts[source], changed = encoded.decode(), True
            rows.pop(source, None)
            if said.stored:
                rows[source] = said.body.raw_id
    if not changed:
        return None
    listing, detail, options = texts.values()
    new = (
        None if listing == known.listing else listing,
        rows.get(TaskType.PRODUCT_DETAIL) or (None if detail == known.detail else detail),
        rows.get(TaskType.PRODUCT_OPTION) or (None if options == known.options else options),
    )
    if detail is None and options is None:
        # A listing entry alone cannot be published; it is merged once a detail or options arrive.
        return AbsorbedProduct(product, *new, None, None)
    # What a source says again is parsed once.
    documents: dict[str | None, Document] = {
        text: orjson.loads(text) for text in {*before, *texts.values()} if text is not None
    }
    old = Sources() if known.data is None else Sources(*map(documents.get, before))
    previous = None if known.data is None else orjson.loads(known.data)
    data = merge(seller_id, product.item_no.value, previous, old, Sources(*map(documents.get, texts.values())))
    merged = orjson.dumps(data)
    return AbsorbedProduct(product, *new, merged.decode(), canonical.content_hash(merged))


def remerge(connection: Connection, seller_id: str) -> None:
    """Merge all products of a seller again from their stored sources, because the rules of merging may have changed.

    The caller holds `lock_catalog`, so that no processor changes the products meanwhile.
    """
    for items in products.known_items(connection, seller_id, limit=None, chunk=500):
        remerged: dict[int, bytes] = {}
        for item_no, known in products.contents(connection, seller_id, items).items():
            if known.data is None:
                continue
            previous = orjson.loads(known.data)
            texts = (known.listing, known.detail, known.options)
            sources = Sources(*(None if text is None else orjson.loads(text) for text in texts))
            data = merge(seller_id, item_no, previous, sources, sources)
            # Compared as data: another order of fields is no change.
            if data != previous:
                remerged[item_no] = orjson.dumps(data)
        locked = products.lock(connection, seller_id, list(remerged))
        products.absorb(
            connection,
            [
                AbsorbedProduct(locked[item_no], None, None, None, encoded.decode(), canonical.content_hash(encoded))
                for item_no, encoded in remerged.items()
            ],
        )
