"""Products: the list, and one with its state, its price and stock over time, its versions, events and bodies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from sqlalchemy import Connection

from mustit_pipeline.api.paging import make_cursor, read_cursor
from mustit_pipeline.catalog import history as catalog_history
from mustit_pipeline.catalog.history import Comparison
from mustit_pipeline.catalog.sql import history, product_list, raw
from mustit_pipeline.catalog.sql.history import KnownProduct, Version
from mustit_pipeline.catalog.sql.product_list import ProductKey
from mustit_pipeline.catalog.wording import Piece, PieceKind, word_diff
from mustit_pipeline.console import charts, live
from mustit_pipeline.console.charts import Lines, Value
from mustit_pipeline.console.formats import Formats
from mustit_pipeline.console.pages.frame import SIZE, by_cursor, framed, seller_or_none
from mustit_pipeline.console.visits import Visit, Visiting
from mustit_pipeline.console.words import FIELDS
from mustit_pipeline.domain.errors import ValidationFailed
from mustit_pipeline.domain.values import LARGEST_ITEM_NO, ItemNo
from mustit_pipeline.foundation.clock import utc_now

SHOWN_VERSIONS, SHOWN_BODIES, SHOWN_CHARACTERS = 100, 12, 100_000
LEVELS = ("header", "large", "medium", "small")
PRICES = ("discountPrice", "normalPrice")
MARKS_OF_TIME = 6

router = APIRouter(prefix="/products")

Number = Annotated[int, Path(gt=0, le=LARGEST_ITEM_NO)]
Seller = Annotated[str, Query(max_length=200)]
VersionNumber = Annotated[int | None, Query(ge=1, le=2_000_000_000)]


@dataclass(frozen=True, slots=True)
class FieldPair:
    """One field of two versions; long texts word by word."""

    type: str
    field: str
    old: object
    new: object
    old_pieces: tuple[Piece, ...] | None = None
    new_pieces: tuple[Piece, ...] | None = None


@dataclass(frozen=True, slots=True)
class OverTime:
    """A chart of values over time, and the names of its lines."""

    chart: Lines
    names: tuple[str, ...]


@router.get("")
def list_products(
    visit: Visiting,
    seller: Seller = "",
    q: Annotated[str, Query(max_length=200)] = "",
    cursor: Annotated[str | None, Query(max_length=1024)] = None,
) -> Response:
    """Products by seller and number; found by the first digits of the number, or by a name of one seller."""
    wanted, words = seller_or_none(seller), q.replace("\0", "").strip()
    behind = None if cursor is None else _key(cursor)
    error = None
    with visit.database.reading() as connection:
        try:
            found = product_list.find(connection, seller_id=wanted, words=words or None, behind=behind, limit=SIZE)
            rows, following = found.rows, found.behind
        except ValidationFailed as refused:
            rows, following, error = [], None, refused.message(visit.language)
        onward = None if following is None else make_cursor(following.seller_id, following.item_no)
        return framed(
            visit,
            connection,
            "products.html",
            found=rows,
            error=error,
            seller=seller,
            q=words,
            goes_on=following is not None and len(rows) < SIZE,
            pager=by_cursor(visit, "/products", cursor, onward, seller=seller, q=words),
        )


@router.get("/{item_no}")
def product_page(
    item_no: Number, visit: Visiting, seller: Seller = "", a: VersionNumber = None, b: VersionNumber = None
) -> Response:
    """One product."""
    with visit.database.reading() as connection:
        found = history.products(connection, ItemNo(item_no), seller_or_none(seller))
        if len(found) > 1:
            return framed(visit, connection, "product_choice.html", found=found, item_no=item_no)
        product = catalog_history.find_product(connection, ItemNo(item_no), seller_or_none(seller))
        versions = history.versions(connection, product.seller_id, product.item_no, limit=SHOWN_VERSIONS)
        shown = next((one for one in versions.rows if one.data is not None), None)
        return framed(
            visit,
            connection,
            "product.html",
            events=live.address(seller=product.seller_id),
            product=product,
            data=catalog_history.state(product.data if shown is None else shown.data),
            levels=LEVELS,
            states=[catalog_history.state(one.data) for one in versions.rows],
            versions=versions,
            prices=_over_time(visit, versions.rows, PRICES, is_money=True),
            stock=_over_time(visit, versions.rows, ("stock",), is_money=False),
            comparison=(comparison := _compared(connection, product, versions.rows, a, b)),
            pairs=[] if comparison is None else _pairs(comparison),
            bodies=raw.of_item(connection, product.seller_id, product.item_no, SHOWN_BODIES),
        )


@router.get("/{item_no}/raw/{raw_id}")
def body_page(item_no: Number, raw_id: Annotated[int, Path(gt=0, le=LARGEST_ITEM_NO)], visit: Visiting) -> Response:
    """A body as the marketplace has sent it."""
    with visit.database.reading() as connection:
        shown = raw.show_body(connection, raw_id, SHOWN_CHARACTERS)
        return framed(visit, connection, "body.html", shown=shown, entry=shown.entry, most=SHOWN_CHARACTERS)


def _key(cursor: str) -> ProductKey:
    seller_id, item_no = read_cursor(cursor, (str, int))
    return ProductKey(str(seller_id), int(item_no))


def _compared(
    connection: Connection, product: KnownProduct, versions: Sequence[Version], a: int | None, b: int | None
) -> Comparison | None:
    """The two versions that are asked for, or the last step."""
    if product.version < 2:
        return None
    new = b or versions[0].change_set.version
    old = a or max(1, new - 1)
    return catalog_history.compare(connection, product, old, new)


def _pairs(comparison: Comparison) -> list[FieldPair]:
    pairs: list[FieldPair] = []
    for change in comparison.changes:
        old, new = change.old, change.new
        if isinstance(old, str) and isinstance(new, str) and old and new:
            pieces = word_diff(old, new)
            before = tuple(piece for piece in pieces if piece.kind is not PieceKind.ADDED)
            after = tuple(piece for piece in pieces if piece.kind is not PieceKind.REMOVED)
            pairs.append(FieldPair(change.type.value, change.field, old, new, before, after))
        else:
            pairs.append(FieldPair(change.type.value, change.field, old, new))
    return pairs


def _over_time(visit: Visit, versions: Sequence[Version], fields: Sequence[str], *, is_money: bool) -> OverTime | None:
    """Values of some fields, version by version; None where there is none."""
    formats = Formats(visit.language)
    said = formats.money if is_money else formats.number
    series: list[list[Value]] = [[] for _ in fields]
    for version in reversed(versions):
        data: Mapping[str, Any] = catalog_history.state(version.data)
        at = version.change_set.detected_at
        for values, field in zip(series, fields, strict=True):
            value = data.get(field)
            known = value if isinstance(value, int) else None
            if not values or values[-1].value != known:
                title = f"{visit.say(FIELDS[field])} {said(known)}, {formats.day(at)} {formats.clock(at)}"
                values.append(Value(at, known, title))
    seen = [one.value for values in series for one in values if one.value is not None]
    if not seen:
        return None
    span = (versions[-1].change_set.detected_at, utc_now())
    steps = charts.round_steps(min(seen) if is_money else 0, max(seen))
    rows = [(step, said(int(step))) for step in steps]
    chart = charts.lines(series, rows, _times(span, formats), span, 190)
    return OverTime(chart, tuple(visit.say(FIELDS[field]) for field in fields))


def _times(span: tuple[datetime, datetime], formats: Formats) -> list[tuple[datetime, str]]:
    step = (span[1] - span[0]) / MARKS_OF_TIME
    moments = [span[0] + step * number for number in range(1, MARKS_OF_TIME)]
    short = (span[1] - span[0]).total_seconds() < 2 * 86400
    return [(at, formats.clock(at) if short else formats.day(at)) for at in moments]
