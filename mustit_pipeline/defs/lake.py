"""DataFrames as Parquet files: on a path, or on S3."""

import os
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

import dagster as dg

from mustit_pipeline.defs.failures import readable_failures
from mustit_pipeline.settings import Settings, SettingsError, load_settings

# What the column schema of an asset says, in Arrow's words: a column without a single value keeps its type.
ARROW_TYPES = {"text": "string", "bigint": "int64", "double precision": "float64", "date": "date32"}


def library(name: str) -> Any:
    """A library that only Parquet needs, imported when it is first used: together they take a second."""
    return import_module(name)


@dataclass(frozen=True, slots=True)
class Place:
    """A folder of the lake, and the file system that it is on."""

    filesystem: Any
    root: str
    local: bool

    def shown(self, name: str) -> str:
        """A file's address, for people and for other tools."""
        return f"{self.root}/{name}" if self.local else f"s3://{self.root}/{name}"


def lake_of(settings: Settings) -> Place:
    """Where the settings put the lake."""
    filesystems = library("pyarrow.fs")
    uri = settings.lake_uri
    if uri is None or not uri.startswith("s3://"):
        root = str(settings.home / "lake") if uri is None else os.path.abspath(os.path.expanduser(uri))
        return Place(filesystems.LocalFileSystem(), root, local=True)
    if not hasattr(filesystems, "S3FileSystem"):
        raise SettingsError("MUSTIT_LAKE_URI is on S3, but this pyarrow was built without S3: `pip install pyarrow`")
    options = {}
    if settings.aws_endpoint_url is not None:
        endpoint = urlsplit(settings.aws_endpoint_url)
        options = {"endpoint_override": endpoint.netloc, "scheme": endpoint.scheme}
    return Place(filesystems.S3FileSystem(**options), uri.removeprefix("s3://").rstrip("/"), local=False)


class ParquetLake(dg.ConfigurableIOManager):
    """One file per asset and partition; writing it again replaces it as a whole."""

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        with readable_failures():
            place, name = lake_of(load_settings()), _name(context)
            arrow = library("pyarrow")
            frame = arrow.Table.from_pandas(obj, schema=_schema(arrow, context), preserve_index=False)
            target = f"{place.root}/{name}"
            if place.local:
                # S3 shows a file once it is whole; a folder would show half of one.
                os.makedirs(os.path.dirname(target), exist_ok=True)
                fresh = f"{target}.{os.getpid()}"
                library("pyarrow.parquet").write_table(frame, fresh)
                os.replace(fresh, target)
            else:
                library("pyarrow.parquet").write_table(frame, target, filesystem=place.filesystem)
        context.add_output_metadata({"path": dg.MetadataValue.path(place.shown(name)), "bytes": frame.nbytes})

    def load_input(self, context: dg.InputContext) -> Any:
        with readable_failures():
            place = lake_of(load_settings())
            read = library("pyarrow.parquet").read_table
            return read(f"{place.root}/{_name(context)}", filesystem=place.filesystem).to_pandas()


def _name(context: dg.OutputContext | dg.InputContext) -> str:
    return f"{'/'.join(context.asset_key.path)}/{context.asset_partition_key}.parquet"


def _schema(arrow: Any, context: dg.OutputContext) -> Any:
    described = context.definition_metadata["dagster/column_schema"]
    assert isinstance(described, dg.TableSchema)
    return arrow.schema([(one.name, getattr(arrow, ARROW_TYPES[one.type])()) for one in described.columns])
