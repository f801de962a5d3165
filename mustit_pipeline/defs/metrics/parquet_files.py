"""DataFrames as Parquet files of the lake."""

from datetime import date
from typing import Any

import dagster as dg

from mustit_pipeline.defs.failures import readable_failures
from mustit_pipeline.defs.resources import SettingsResource
from mustit_pipeline.lake.columns import Column, arrow_schema, library
from mustit_pipeline.lake.failures import lake_failures
from mustit_pipeline.lake.place import day_folder, lake_of

FILE = "metrics.parquet"
# The day is the folder's name, and so no column of the file.
DAY = "day"


class ParquetLake(dg.ConfigurableIOManager):
    """One file per asset and day; writing it again replaces it as a whole."""

    settings: SettingsResource

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        with readable_failures():
            place, folder = lake_of(self.settings.read()), _folder(context)
            frame = library("pyarrow").Table.from_pandas(obj, schema=_schema(context), preserve_index=False)
            with place.replace(folder) as fresh, fresh.file(FILE) as path:
                library("pyarrow.parquet").write_table(frame, path)
        address = dg.MetadataValue.path(place.shown(f"{folder}/{FILE}"))
        context.add_output_metadata({"path": address, "bytes": fresh.sizes[FILE]})

    def load_input(self, context: dg.InputContext) -> Any:
        with readable_failures():
            place, name = lake_of(self.settings.read()), f"{_folder(context)}/{FILE}"
            with lake_failures(place.shown(name)), place.filesystem.open_input_file(f"{place.root}/{name}") as opened:
                frame = library("pyarrow.parquet").read_table(opened).to_pandas()
        frame.insert(0, DAY, _day(context))
        return frame


def _folder(context: dg.OutputContext | dg.InputContext) -> str:
    return day_folder("/".join(context.asset_key.path), _day(context))


def _day(context: dg.OutputContext | dg.InputContext) -> date:
    return date.fromisoformat(context.asset_partition_key)


def _schema(context: dg.OutputContext) -> Any:
    described = context.definition_metadata["dagster/column_schema"]
    assert isinstance(described, dg.TableSchema)
    return arrow_schema(
        [Column(one.name, one.type, one.description or "") for one in described.columns if one.name != DAY]
    )
