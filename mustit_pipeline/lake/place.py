"""Where the lake is: folders by asset, day in Seoul and, for the catalogue, seller."""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import date
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

from mustit_pipeline.lake.columns import library
from mustit_pipeline.lake.on_path import PathLake
from mustit_pipeline.lake.on_s3 import BucketLake
from mustit_pipeline.settings import Settings, SettingsError

# Of a name in a folder; file systems allow 255 bytes.
LONGEST_NAME = 240


class NewFiles(Protocol):
    """The files that replace those of a folder."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """The bytes of each file so far."""
        ...

    def file(self, name: str) -> AbstractContextManager[Path]:
        """The path to write a file to; it is one of the new files when the block ends well."""
        ...


class Place(Protocol):
    """The lake on one kind of storage; `filesystem` is pyarrow's, and `root` the lake's folder on it."""

    @property
    def filesystem(self) -> Any: ...

    @property
    def root(self) -> str: ...

    def shown(self, name: str) -> str:
        """The address of a folder or file, for people and for other tools."""
        ...

    def replace(self, folder: str) -> AbstractContextManager[NewFiles]:
        """The new files of a folder; they replace the old ones when the block ends well, and otherwise not."""
        ...


def lake_of(settings: Settings) -> Place:
    """Where the settings put the lake."""
    filesystems = library("pyarrow.fs")
    uri = settings.lake_uri
    if uri is None or not uri.startswith("s3://"):
        root = str(settings.home / "lake") if uri is None else os.path.abspath(os.path.expanduser(uri))
        return PathLake(filesystems.LocalFileSystem(), root)
    if not hasattr(filesystems, "S3FileSystem"):
        raise SettingsError(
            "MUSTIT_LAKE_URI is on S3, but this pyarrow was built without S3: `pip install pyarrow`",
            korean="MUSTIT_LAKE_URI가 S3이지만 설치된 pyarrow는 S3를 지원하지 않습니다: `pip install pyarrow`",
        )
    options = {}
    if settings.aws_endpoint_url is not None:
        endpoint = urlsplit(settings.aws_endpoint_url)
        options = {"endpoint_override": endpoint.netloc, "scheme": endpoint.scheme}
    return BucketLake(filesystems.S3FileSystem(**options), uri.removeprefix("s3://").rstrip("/"), settings)


def day_folder(asset: str, day: date) -> str:
    """The folder of an asset's day."""
    return f"{asset}/day={day.isoformat()}"


def seller_folder(seller_id: str) -> str:
    """The folder of a seller in a day; an id that no file system would take has a hash instead."""
    encoded = quote(seller_id, safe="")
    if len(encoded) > LONGEST_NAME:
        encoded = f"sha256-{sha256(seller_id.encode()).hexdigest()}"
    return f"seller={encoded}"
