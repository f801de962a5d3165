"""From what the sources say to a product's merged state."""

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
    """Merge ahead of the transaction that stores it, which looks again."""
    known = products.find_known(connection, seller_id, [said.item_no for said in statements])
    listed = [said for said in statements if said.item_no in known]
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
    """Store what differs from what was known; what was prepared from another state of a product is merged anew."""
    absorbed: dict[int, AbsorbedProduct | None] = {
        item_no: entry.result
        for item_no, entry in prepared.items()
        if item_no in known and known[item_no].row_state == entry.row_state
    }
    rest = [said for said in statements if said.item_no not in absorbed]
    absorbed |= _merged(connection, seller_id, known, rest)
    products.absorb(connection, [result for result in absorbed.values() if result is not None])


def remerge(connection: Connection, seller_id: str) -> None:
    """Merge all products of a seller anew from what their sources said last, for rules of merging that have changed.

    Whoever processes the seller is kept away by the caller, so that what was read here stays true.
    """
    for items in products.known_items(connection, seller_id, limit=None, chunk=500):
        anew: dict[int, bytes] = {}
        for item_no, known in products.contents(connection, seller_id, items).items():
            if known.data is None:
                continue
            previous = orjson.loads(known.data)
            sources = _sources(known.listing, known.detail, known.options)
            data = merge(seller_id, item_no, previous, sources, sources)
            # By what it says: a field that only stands elsewhere is no change.
            if data != previous:
                anew[item_no] = orjson.dumps(data)
        locked = products.lock(connection, seller_id, list(anew))
        products.absorb(
            connection,
            [
                AbsorbedProduct(locked[item_no], None, None, None, encoded.decode(), canonical.content_hash(encoded))
                for item_no, encoded in anew.items()
            ],
        )


def _merged(
    connection: Connection, seller_id: str, known: Mapping[int, KnownProduct], statements: Sequence[Statement]
) -> dict[int, AbsorbedProduct | None]:
    """Each product with its statements; None where they say nothing new. What was known is read only where they do."""
    statements = [said for said in statements if not _is_overtaken(said, known[said.item_no])]
    differing = {
        said.item_no for said in statements if known[said.item_no].product.changed(said.source, said.content_hash)
    }
    contents = products.contents(connection, seller_id, list(differing)) if differing else {}
    merging = {item_no: _Absorption(seller_id, known[item_no].product, contents[item_no]) for item_no in differing}
    for said in statements:
        if said.item_no in merging:
            merging[said.item_no].take(said)
    same = dict.fromkeys(said.item_no for said in statements)
    return same | {item_no: entry.result() if entry.changed else None for item_no, entry in merging.items()}


def _is_overtaken(said: Statement, known: KnownProduct) -> bool:
    """Of two pages that show a product, the one seen later is right, even where that was absorbed first."""
    return said.source is TaskType.MINISHOP and known.was_seen_since(said.execution_id, said.fetched_at)


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
        self._rows: dict[TaskType, int] = {}
        self.changed = False

    def take(self, said: Statement) -> None:
        """Remember a source's statement where it differs from its last one."""
        encoded, content_hash = said.encoded, said.content_hash
        previous = self._texts[said.source]
        if said.partial is not None and previous is not None:
            document = canonical.whole_document(said.partial, orjson.loads(previous))
            encoded = canonical.canonical_json(document)
            content_hash = canonical.content_hash(encoded)
        if self._product.saw(said.source, content_hash):
            self._texts[said.source] = encoded.decode()
            self.changed = True
            self._rows.pop(said.source, None)
            if said.stored:
                self._rows[said.source] = said.raw_id

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
