"""What the catalog makes of whole marketplace bodies, by the same steps as processing."""

from typing import Any

import orjson

from mustit_pipeline.catalog import canonical
from mustit_pipeline.catalog.product_data import Document, Sources, merge
from mustit_pipeline.marketplace.parsing import parse_detail, parse_listing, parse_options
from mustit_pipeline_tests.unit.marketplace import bodies

SELLER = "dmont"


def listing_of(**changes: Any) -> Document:
    (entry,) = parse_listing(bodies.encoded(bodies.listing(bodies.listing_item(**changes)))).entries
    return orjson.loads(canonical.listing_json(entry))


def detail_of(previous: Document | None = None, **modules: Any) -> Document:
    detail = parse_detail(bodies.encoded(bodies.detail(**modules)), item_no=bodies.ITEM_NO)
    return orjson.loads(canonical.detail_json(detail, previous))


def options_of(*options: dict[str, Any]) -> Document:
    parsed = parse_options(bodies.encoded(list(options)), item_no=bodies.ITEM_NO)
    return orjson.loads(canonical.options_json(parsed))


def hash_of(document: Document) -> str:
    return canonical.content_hash(orjson.dumps(document, option=orjson.OPT_SORT_KEYS))


def sources(
    listing: Document | None = None, detail: Document | None = None, options: Document | None = None
) -> Sources:
    return Sources(listing or listing_of(), detail or detail_of(), options or options_of(bodies.option()))


def merged(new: Sources, old: Sources | None = None, previous: Document | None = None) -> dict[str, Any]:
    return merge(SELLER, bodies.ITEM_NO, previous, old or Sources(), new)
