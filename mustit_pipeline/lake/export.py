"""A day of the catalogue, and a day of changes, written from one snapshot of the database, a little at a time."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from hashlib import md5
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from mustit_pipeline.foundation.database import Database
from mustit_pipeline.lake.arrow_tables import catalog_schema, changes_schema, changes_table, product_table
from mustit_pipeline.lake.columns import library
from mustit_pipeline.lake.place import NewFiles, Place, day_folder, seller_folder
from mustit_pipeline.lake.sql.catalog_states import ProductState, count_states, product_states
from mustit_pipeline.lake.sql.field_changes import StoredChange, count_changes, field_changes
from mustit_pipeline.monitoring.metrics import day_span

CATALOG, CHANGES = "product_catalog", "product_changes"
PRODUCTS_FILE, CHANGES_FILE = "products.parquet", "changes.parquet"
# Rows become columns a few at a time: as Python objects they take several times the memory.
BATCH_ROWS, BATCH_CHARACTERS = 500, 500_000
# A row group: columns that are held in memory before they are written.
GROUP_ROWS, GROUP_BYTES = 20_000, 4_000_000

T = TypeVar("T")


@dataclass(slots=True)
class Written:
    """Rows by seller, and a digest of their keys: a row never changes, so that equal keys are equal content."""

    by_seller: dict[str, int] = field(default_factory=dict[str, int])
    _digest: Any = field(default_factory=lambda: md5(usedforsecurity=False))

    def counting(self, rows: Iterable[T], key: Callable[[T], tuple[object, ...]]) -> Iterator[T]:
        """The rows, each counted as it passes; the first part of a key is the seller."""
        for row in rows:
            known = key(row)
            seller_id = str(known[0])
            self.by_seller[seller_id] = self.by_seller.get(seller_id, 0) + 1
            self._digest.update(repr(known).encode())
            yield row

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
        stored = count_states(connection, end)
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
        counted = written.counting(of_seller, lambda state: (state.seller_id, state.item_no, state.version))
        tables = map(product_table, _batches(counted, lambda state: len(state.data)))
        with fresh.file(f"{seller_folder(seller_id)}/{PRODUCTS_FILE}") as path:
            _write(path, catalog_schema(), tables)
    return written


def write_changes(fresh: NewFiles, changes: Iterable[StoredChange]) -> Written:
    """One file, which a day without a change has too."""
    written = Written()
    counted = written.counting(changes, lambda one: (one.seller_id, one.item_no, one.version, one.field))
    tables = map(changes_table, _batches(counted, lambda one: len(one.old_value or "") + len(one.new_value or "")))
    with fresh.file(CHANGES_FILE) as path:
        _write(path, changes_schema(), tables)
    return written


def _batches(rows: Iterable[T], characters: Callable[[T], int]) -> Iterator[list[T]]:
    batch: list[T] = []
    held = 0
    for row in rows:
        batch.append(row)
        held += characters(row)
        if held >= BATCH_CHARACTERS or len(batch) >= BATCH_ROWS:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def _write(path: Path, schema: Any, tables: Iterable[Any]) -> None:
    """A file of row groups of a useful size."""
    with library("pyarrow.parquet").ParquetWriter(str(path), schema, compression="zstd") as file:
        group: list[Any] = []
        for table in tables:
            group.append(table)
            if sum(one.nbytes for one in group) >= GROUP_BYTES or sum(one.num_rows for one in group) >= GROUP_ROWS:
                _write_group(file, group)
                group = []
        if group:
            _write_group(file, group)


def _write_group(file: Any, tables: Sequence[Any]) -> None:
    whole = library("pyarrow").concat_tables(tables)
    file.write_table(whole, row_group_size=whole.num_rows)
