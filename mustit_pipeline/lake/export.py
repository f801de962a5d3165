"""A day of the catalogue, and a day of changes, written from one snapshot of the database, a little at a time."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from functools import lru_cache
from hashlib import md5
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from mustit_pipeline.foundation.database import Database
from mustit_pipeline.lake.columns import PRODUCT_CHANGES, arrow_schema, library
from mustit_pipeline.lake.place import NewFiles, Place, day_folder, seller_folder
from mustit_pipeline.lake.product_columns import catalog_schema, product_table
from mustit_pipeline.lake.sql.catalog_states import ProductState, count_states, product_states
from mustit_pipeline.lake.sql.field_changes import StoredChange, count_changes, field_changes
from mustit_pipeline.monitoring.metrics import day_span

CATALOG, CHANGES = "product_catalog", "product_changes"
PRODUCTS_FILE, CHANGES_FILE = "products.parquet", "changes.parquet"
# A row group: what is held in memory before it is written.
GROUP_ROWS, GROUP_CHARACTERS = 20_000, 4_000_000

T = TypeVar("T")


@dataclass(slots=True)
class Written:
    """Rows by seller, and a digest of their keys: a row never changes, so that equal keys are equal content."""

    by_seller: dict[str, int] = field(default_factory=dict[str, int])
    _digest: Any = field(default_factory=lambda: md5(usedforsecurity=False))

    def add(self, seller_id: str, *key: object) -> None:
        """Count one more row."""
        self.by_seller[seller_id] = self.by_seller.get(seller_id, 0) + 1
        self._digest.update(repr((seller_id, *key)).encode())

    @property
    def rows(self) -> int:
        return sum(self.by_seller.values())

    @property
    def fingerprint(self) -> str:
        return self._digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Exported:
    """A day that was written, and how many rows the same snapshot of the database has."""

    folder: str
    written: Written
    stored_rows: int
    files: int
    bytes: int


def export_catalog(database: Database, place: Place, day: date) -> Exported:
    """Every product that is published and not deleted at the end of the day, however long ago that was."""
    _, end = day_span(day)
    folder = day_folder(CATALOG, day)
    with place.replace(folder) as fresh, database.reading() as connection:
        written = write_catalog(fresh, product_states(connection, end))
        stored = sum(count_states(connection, end).values())
    return Exported(folder, written, stored, len(fresh.sizes), sum(fresh.sizes.values()))


def export_changes(database: Database, place: Place, day: date) -> Exported:
    """Every change that was detected on the day."""
    start, end = day_span(day)
    folder = day_folder(CHANGES, day)
    with place.replace(folder) as fresh, database.reading() as connection:
        written = write_changes(fresh, field_changes(connection, start, end))
        stored = count_changes(connection, start, end)
    return Exported(folder, written, stored, len(fresh.sizes), sum(fresh.sizes.values()))


def write_catalog(fresh: NewFiles, states: Iterable[ProductState]) -> Written:
    """One file for each seller, whose states come together."""
    written = Written()
    for seller_id, of_seller in groupby(states, lambda state: state.seller_id):
        with fresh.file(f"{seller_folder(seller_id)}/{PRODUCTS_FILE}") as path, _writer(path, catalog_schema()) as file:
            for group in _groups(of_seller, lambda state: len(state.data)):
                file.write_table(product_table(group), row_group_size=len(group))
                for state in group:
                    written.add(seller_id, state.item_no, state.version)
    return written


def write_changes(fresh: NewFiles, changes: Iterable[StoredChange]) -> Written:
    """One file, which a day without a change has too."""
    written = Written()
    with fresh.file(CHANGES_FILE) as path, _writer(path, _changes_schema()) as file:
        for group in _groups(changes, lambda one: len(one.old_value or "") + len(one.new_value or "")):
            file.write_table(_changes_table(group), row_group_size=len(group))
            for one in group:
                written.add(one.seller_id, one.item_no, one.version, one.field)
    return written


def _groups(rows: Iterable[T], characters: Callable[[T], int]) -> Iterator[list[T]]:
    group: list[T] = []
    held = 0
    for row in rows:
        group.append(row)
        held += characters(row)
        if held >= GROUP_CHARACTERS or len(group) >= GROUP_ROWS:
            yield group
            group, held = [], 0
    if group:
        yield group


def _writer(path: Path, schema: Any) -> Any:
    return library("pyarrow.parquet").ParquetWriter(str(path), schema, compression="zstd")


@lru_cache(maxsize=1)
def _changes_schema() -> Any:
    return arrow_schema(PRODUCT_CHANGES)


def _changes_table(changes: Sequence[StoredChange]) -> Any:
    rows = [{**asdict(one), "execution_id": str(one.execution_id)} for one in changes]
    return library("pyarrow").Table.from_pylist(rows, schema=_changes_schema())
