"""productData as columns: Arrow reads the JSON itself, which costs a tenth of what Python objects would."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from io import BytesIO
from typing import Any, cast

from mustit_pipeline.lake.columns import OPTION_FIELDS, PRODUCT_CATALOG, arrow_schema, arrow_types, library
from mustit_pipeline.lake.sql.catalog_states import ProductState


def product_table(states: Sequence[ProductState]) -> Any:
    """Products as a table of the catalogue, in their order."""
    arrow = library("pyarrow")
    told = _parsed([state.data for state in states])
    known: Mapping[str, Sequence[object]] = {
        "seller_id": [state.seller_id for state in states],
        "item_no": [state.item_no for state in states],
        "version": [state.version for state in states],
        "version_at": [state.detected_at for state in states],
    }
    schema = catalog_schema()
    arrays = [
        arrow.array(known[column.name], type=schema.field(column.name).type)
        if column.name in known
        else _value(told, column.path)
        for column in PRODUCT_CATALOG
    ]
    return arrow.Table.from_arrays(arrays, schema=schema)


@lru_cache(maxsize=1)
def catalog_schema() -> Any:
    """The schema of the catalogue's files."""
    return arrow_schema(PRODUCT_CATALOG)


def _parsed(documents: Sequence[str]) -> Any:
    """One column for each field of productData, one row for each document."""
    json = library("pyarrow.json")
    lines = "\n".join(documents).encode()
    table = json.read_json(
        BytesIO(lines),
        # One block: a document that lies across two of them would have to fit into the second.
        read_options=json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
        parse_options=json.ParseOptions(explicit_schema=_told_schema(), unexpected_field_behavior="ignore"),
    )
    if table.num_rows != len(documents):
        raise ValueError(f"{len(documents)} products were read as {table.num_rows}: a stored state is not one line")
    return table.combine_chunks()


@lru_cache(maxsize=1)
def _told_schema() -> Any:
    """productData as the catalogue's columns say it is."""
    arrow = library("pyarrow")
    types = arrow_types()
    fields: dict[str, Any] = {}
    for column in PRODUCT_CATALOG:
        if column.path:
            place = fields
            for part in column.path[:-1]:
                place = place.setdefault(part, {})
            place[column.path[-1]] = types[column.type]
    option = fields["options"].value_type
    names = {name: told for told, name in OPTION_FIELDS.items()}
    fields["options"] = arrow.list_(arrow.struct([(names[one.name], one.type) for one in option]))
    return arrow.schema(_struct(fields))


def _struct(fields: Mapping[str, Any]) -> Any:
    nested = {name: _struct(cast("dict[str, Any]", one)) for name, one in fields.items() if isinstance(one, dict)}
    return library("pyarrow").struct(list({**fields, **nested}.items()))


def _value(told: Any, path: tuple[str, ...]) -> Any:
    column = told.column(path[0])
    if path == ("options",):
        return _options(column.combine_chunks())
    return library("pyarrow.compute").struct_field(column, list(path[1:])) if path[1:] else column


def _options(told: Any) -> Any:
    """The same options under the names that columns have."""
    arrow = library("pyarrow")
    renamed = arrow.StructArray.from_arrays(told.values.flatten(), names=list(OPTION_FIELDS.values()))
    return arrow.ListArray.from_arrays(told.offsets, renamed, mask=told.is_null())
