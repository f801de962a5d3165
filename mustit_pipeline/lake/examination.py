"""What the files of a day hold, read back as any reader finds them."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from mustit_pipeline.lake.columns import library
from mustit_pipeline.lake.failures import lake_failures
from mustit_pipeline.lake.place import Place

CATALOG_KEY: tuple[str, ...] = ("item_no",)
CHANGES_KEY: tuple[str, ...] = ("seller_id", "item_no", "version", "field")
FILES_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Found:
    """The rows of a folder, and how many of them do not come after the row before: with the same key, or an earlier."""

    rows: int = 0
    out_of_order: int = 0


def examine(place: Place, folder: str, key: Sequence[str]) -> Found:
    """Count rows and repeated keys; each file is written in the order of its key, so that neighbours tell."""
    with lake_failures(place.shown(folder)), ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        selector = library("pyarrow.fs").FileSelector(
            # A day without a product has no file on S3, and so no folder.
            f"{place.root}/{folder}",
            recursive=True,
            allow_not_found=True,
        )
        paths: list[str] = [
            one.path for one in place.filesystem.get_file_info(selector) if one.path.endswith(".parquet")
        ]
        found = list(pool.map(partial(_examine_file, place.filesystem, key), paths))
    return Found(sum(one.rows for one in found), sum(one.out_of_order for one in found))


def _examine_file(filesystem: Any, key: Sequence[str], path: str) -> Found:
    with filesystem.open_input_file(path) as opened, library("pyarrow.parquet").ParquetFile(opened) as file:
        repeated = sum(before >= after for before, after in pairwise(_keys(file, key)))
        return Found(file.metadata.num_rows, repeated)


def _keys(file: Any, key: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    for batch in file.iter_batches(columns=list(key)):
        columns = [batch.column(name).to_pylist() for name in key]
        # A version without a changed field comes once.
        yield from zip(*([("" if value is None else value) for value in column] for column in columns), strict=True)
