"""From what the sources say to a product's merged state."""

from collections.abc import Sequence

import orjson
from sqlalchemy import Connection

from mustit_pipeline.catalog import canonical
from mustit_pipeline.catalog.product_data import Document, Sources, merge
from mustit_pipeline.catalog.reading import Statement
from mustit_pipeline.domain.product import Product
from mustit_pipeline.domain.states import TaskType
from mustit_pipeline.store import products
from mustit_pipeline.store.products import AbsorbedProduct, Contents


def absorb(connection: Connection, seller_id: str, known: dict[int, Product], statements: Sequence[Statement]) -> None:
    """Store what differs from what was known; what is known is read only for products of which something does."""
    differing = {said.item_no for said in statements if known[said.item_no].changed(said.source, said.content_hash)}
    contents = products.contents(connection, seller_id, list(differing)) if differing else {}
    absorbed = {item_no: _Absorption(seller_id, known[item_no], contents[item_no]) for item_no in differing}
    for said in statements:
        if said.item_no in differing:
            absorbed[said.item_no].take(said)
    products.absorb(connection, [entry.result() for entry in absorbed.values() if entry.changed])


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

    def take(self, said: Statement) -> None:
        """Remember a source's statement where it differs from its last one."""
        encoded, content_hash = said.encoded, said.content_hash
        previous = self._texts[said.source]
        if said.partial is not None and previous is not None:
            document = canonical.detail_document(said.partial, orjson.loads(previous))
            encoded = canonical.canonical_json(document)
            content_hash = canonical.content_hash(encoded)
        if self._product.saw(said.source, content_hash):
            self._texts[said.source] = encoded.decode()
            self.changed = True

    def result(self) -> AbsorbedProduct:
        """The product with its merged state."""
        known = self._known
        listing, detail, options = self._texts.values()
        new = _differing(listing, known.listing), _differing(detail, known.detail), _differing(options, known.options)
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
