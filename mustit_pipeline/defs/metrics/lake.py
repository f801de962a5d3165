"""DataFrames as Parquet files: on a path, or on S3."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

import dagster as dg

from mustit_pipeline.defs.failures import PermanentFailure, TransientFailure, readable_failures
from mustit_pipeline.defs.resources import SettingsResource
from mustit_pipeline.settings import Settings, SettingsError

# What the column schema of an asset says, in Arrow's words: a column without a single value keeps its type.
ARROW_TYPES = {"text": "string", "bigint": "int64", "double precision": "float64", "date": "date32"}

# What S3 says, as pyarrow repeats it, when asking again brings the same.
REFUSALS = (
    "ACCESS_DENIED",
    "INVALID_ACCESS_KEY_ID",
    "INVALID_CLIENT_TOKEN_ID",
    "NO_SUCH_BUCKET",
    "PERMANENT_REDIRECT",
    "SIGNATURE_DOES_NOT_MATCH",
)


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

    def put(self, name: str, content: Any) -> None:
        """Store a whole file, in place of the one that was there; a reader never sees half of one."""
        target = f"{self.root}/{name}"
        if not self.local:
            with self.filesystem.open_output_stream(target) as stream:
                stream.write(content)
            return
        os.makedirs(os.path.dirname(target), exist_ok=True)
        fresh = f"{target}.{os.getpid()}"
        with open(fresh, "wb") as stream:
            stream.write(content)
        os.replace(fresh, target)


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

    settings: SettingsResource

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        with readable_failures():
            place, name = lake_of(self.settings.read()), _name(context)
            arrow = library("pyarrow")
            frame = arrow.Table.from_pandas(obj, schema=_schema(arrow, context), preserve_index=False)
            # Made whole before it is sent: a file that cannot be finished is not begun.
            content = arrow.BufferOutputStream()
            library("pyarrow.parquet").write_table(frame, content)
            content = content.getvalue()
            with _said(place.shown(name)):
                place.put(name, content)
        context.add_output_metadata({"path": dg.MetadataValue.path(place.shown(name)), "bytes": content.size})

    def load_input(self, context: dg.InputContext) -> Any:
        with readable_failures():
            place, name = lake_of(self.settings.read()), _name(context)
            with _said(place.shown(name)):
                read = library("pyarrow.parquet").read_table
                return read(f"{place.root}/{name}", filesystem=place.filesystem).to_pandas()


@contextmanager
def _said(address: str) -> Generator[None]:
    """A file that cannot be reached, as a failure that names it and says what to look at."""
    try:
        yield
    except (FileNotFoundError, PermissionError) as error:
        raise PermanentFailure(f"{address}: {error}") from None
    except OSError as error:
        if any(f"AWS Error {refusal} " in str(error) for refusal in REFUSALS):
            raise PermanentFailure(
                f"S3 refuses {address}; look at MUSTIT_LAKE_URI, MUSTIT_AWS_ENDPOINT_URL and the AWS_ variables of "
                f"whoever does the runs: {error}"
            ) from None
        raise TransientFailure(f"{address} cannot be reached: {error}") from None


def _name(context: dg.OutputContext | dg.InputContext) -> str:
    return f"{'/'.join(context.asset_key.path)}/{context.asset_partition_key}.parquet"


def _schema(arrow: Any, context: dg.OutputContext) -> Any:
    described = context.definition_metadata["dagster/column_schema"]
    assert isinstance(described, dg.TableSchema)
    return arrow.schema([(one.name, getattr(arrow, ARROW_TYPES[one.type])()) for one in described.columns])
