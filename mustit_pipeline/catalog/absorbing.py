"""Merging of statements from listing, detail and options into a product's state."""

from collections.abc import Mapping, Sequence

import orjson
from msgspec import Struct
from sqlalchemy import Connection

from mustit_pipeline.catalog import canonical
from mustit_pipeline.catalog.product_data import Document, Sources, merge
from mustit_pipeline.catalog.reading import Statement
from mustit_pipeline.catalog.sql import products
from mustit_pipeline.catalog.sql.products import AbsorbedProduct, Contents, KnownProduct
from mustit_pipeline.domain.product import Product
from mustit_pipeline.domain.states import TaskType


class Prepared(Struct, frozen=True):
    """A product with new statements merged into it, as long as its row is in the state in which it was read."""

    row_state: int
    result: AbsorbedProduct | None


def prepare(connection: Connection, seller_id: str, statements: Sequence[Statement]) -> dict[int, Prepared]:
    """Merge before the storing transaction, which checks that the rows are unchanged."""
    known = products.find_known(connection, seller_id, [statement.item_no for statement in statements])
    listed = [statement for statement in statements if statement.item_no in known]
    return {
        item_no: Prepared(known[item_no].row_state, result)
        for item_no, result in _merged(connection, seller_id, known, listed).items()
    }


def absorb(
    connection: Connection,
    seller_id: str,
    known: Mapping[int, KnownProduct],
    statements: Sequence[Statement],
    prepared: Mapping[int, Prepared],
) -> None:
    """Store products whose state changed; a product whose row changed since it was prepared is merged again."""
    absorbed: dict[int, AbsorbedProduct | None] = {
        item_no: entry.result
        for item_no, entry in prepared.items()
        if item_no in known and known[item_no].row_state == entry.row_state
    }
    rest = [statement for statement in statements if statement.item_no not in absorbed]
    absorbed |= _merged(connection, seller_id, known, rest)
    products.absorb(connection, [result for result in absorbed.values() if result is not None])


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
            sources = _sources(known.listing, known.detail, known.options)
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


def _merged(
    connection: Connection, seller_id: str, known: Mapping[int, KnownProduct], statements: Sequence[Statement]
) -> dict[int, AbsorbedProduct | None]:
    """Each product merged with its statements, None where nothing changed; only changed products' contents are read."""
    statements = [statement for statement in statements if not _is_overtaken(statement, known[statement.item_no])]
    same = dict.fromkeys(statement.item_no for statement in statements)
    present = {item_no: known[item_no].product() for item_no in same}
    differing = {
        statement.item_no
        for statement in statements
        if present[statement.item_no].changed(statement.source, statement.content_hash)
    }
    contents = products.contents(connection, seller_id, list(differing)) if differing else {}
    merging = {item_no: _Absorption(seller_id, present[item_no], contents[item_no]) for item_no in differing}
    for statement in statements:
        if statement.item_no in merging:
            merging[statement.item_no].take(statement)
    return same | {item_no: entry.result() if entry.changed else None for item_no, entry in merging.items()}


def _is_overtaken(statement: Statement, known: KnownProduct) -> bool:
    """If two pages show a product, the later one counts, even if it was absorbed first."""
    return statement.source is TaskType.MINISHOP and known.was_seen_since(statement.execution_id, statement.fetched_at)


class _Absorption:
    """One product while statements are merged into it."""

    def __init__(self, seller_id: str, product: Product, known: Contents) -> None:
        self._seller_id = seller_id
        self._product = product
        self._known = known
        self._texts: dict[TaskType, str | None] = {
            TaskType.MINISHOP: known.listing,
            TaskType.PRODUCT_DETAIL: known.detail,
            TaskType.PRODUCT_OPTION: known.options,
        }
        self._rows: dict[TaskType, int] = {}
        self.changed = False

    def take(self, statement: Statement) -> None:
        """Keep a statement that differs from its source's last one."""
        encoded, content_hash = statement.encoded, statement.content_hash
        previous = self._texts[statement.source]
        if statement.partial is not None and previous is not None:
            document = canonical.whole_document(statement.partial, orjson.loads(previous))
            encoded = canonical.canonical_json(document)
            content_hash = canonical.content_hash(encoded)
        if self._product.record_content(statement.source, content_hash):
            self._texts[statement.source] = encoded.decode()
            self.changed = True
            self._rows.pop(statement.source, None)
            if statement.stored:
                self._rows[statement.source] = statement.raw_id

    def result(self) -> AbsorbedProduct:
        """The product with its merged state."""
        known = self._known
        listing, detail, options = self._texts.values()
        new = (
            _differing(listing, known.listing),
            self._rows.get(TaskType.PRODUCT_DETAIL) or _differing(detail, known.detail),
            self._rows.get(TaskType.PRODUCT_OPTION) or _differing(options, known.options),
        )
        if detail is None and options is None:
            # A listing entry alone cannot be published; it is merged once a detail or options arrive.
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
