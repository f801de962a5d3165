"""Every query of docs/lake.md finds something in a lake that the jobs have written."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pytest
from sqlalchemy import text

from mustit_pipeline.definitions import defs
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.lake.columns import OPTIONS_TYPE, PRODUCT_CATALOG, PRODUCT_CHANGES, Column
from mustit_pipeline_tests.dagster_defs.conftest import SetEnvironment
from mustit_pipeline_tests.integration.crawls import register
from mustit_pipeline_tests.integration.lake.history import DAY, change, in_seoul, publish

PAGE = (Path(__file__).parents[2] / "docs" / "lake.md").read_text()
DAYS = (DAY.replace(day=DAY.day - 1), DAY)
ATHENA_TYPES = {
    "text": "string",
    "bigint": "bigint",
    "integer": "int",
    "boolean": "boolean",
    "timestamptz": "timestamp",
    "text[]": "array<string>",
    OPTIONS_TYPE: "array<struct<option_no:bigint,color:string,size:string,stock:bigint,size_guide:string>>",
}


def blocks(language: str) -> list[str]:
    """The code of the page in one language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def lake(
    database: Database,
    instance: dg.DagsterInstance,
    set_environment: SetEnvironment,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two days of two sellers, in a folder `lake` of the present one."""
    register(database, "dmont", "한글 & a/b 50%")
    with database.transaction() as connection:
        connection.execute(text("UPDATE sellers SET created_at = '2026-01-01'"))
    sold = [{"optionNo": 41, "color": "", "size": "US 4", "stock": 0, "sizeGuide": ""}]
    for seller_id in ("dmont", "한글 & a/b 50%"):
        publish(database, seller_id, 118005032, 1, in_seoul(DAYS[0], "12:00"), "CREATED")
        changes = [change("PRICE", "discountPrice", 540000, 270000), change("STOCK", "stock", 3, 2)]
        at = in_seoul(DAYS[1], "12:00")
        publish(database, seller_id, 118005032, 2, at, changes=changes, discountPrice=270000, stock=2, options=sold)
    set_environment(lake_uri=tmp_path / "lake")
    for day in DAYS:
        for job in ("export_days", "measure_days"):
            assert defs.resolve_job_def(job).execute_in_process(instance=instance, partition_key=str(day)).success
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("lake")
def test_every_query_of_the_page_finds_something(capsys: pytest.CaptureFixture[str]) -> None:
    asked = blocks("sql")
    assert len(asked) == 5
    found = [duckdb.connect().sql(query).fetchall() for query in asked]
    assert [len(rows) for rows in found] == [2, 2, 2, 2, 2]
    assert [price for _, price in found[1]] == [540000, 270000]
    assert [row[-1] for row in found[2]] == [-50.0, -50.0]

    programs = blocks("python")
    assert len(programs) == 3
    for program, expected in zip(programs, ("270000.0", "2026-11-14   -50.0", "dmont"), strict=True):
        exec(program, {})
        assert expected in capsys.readouterr().out


@pytest.mark.usefixtures("lake")
def test_the_queries_for_athena_find_the_same_in_another_engine() -> None:
    tables, asked = blocks("athena")[:2], blocks("athena")[2:]
    assert len(asked) == 3
    for table, columns in zip(tables, (PRODUCT_CATALOG, PRODUCT_CHANGES), strict=True):
        assert declared(table) == [(one.name, ATHENA_TYPES[one.type]) for one in columns]
    engine: Any = duckdb.connect()
    for asset, depth in (("product_catalog", "*/*"), ("product_changes", "*")):
        files = (
            f"read_parquet('lake/{asset}/{depth}/*.parquet', hive_partitioning = true, hive_types = {{day: VARCHAR}})"
        )
        engine.sql(f"CREATE VIEW {asset} AS SELECT * FROM {files}")

    products, changes, falling = (engine.sql(query).fetchall() for query in asked)

    assert sorted(products) == [("dmont", 1, 270000), ("한글 & a/b 50%", 1, 270000)]
    assert sorted(changes, key=str) == [
        ("2026-11-13", "CREATED", None, 2),
        ("2026-11-14", "UPDATED", "PRICE", 2),
        ("2026-11-14", "UPDATED", "STOCK", 2),
    ]
    assert {(row[1], row[2], row[3]) for row in falling} == {(118005032, 3, 2)}


def declared(table: str) -> list[tuple[str, str]]:
    """The columns of a CREATE EXTERNAL TABLE."""
    body = table.partition("(\n")[2].partition("\n)")[0]
    return [(name, kind.rstrip(",")) for name, kind in (line.split(maxsplit=1) for line in body.splitlines())]


@pytest.mark.parametrize(
    ("title", "columns"), [("product_catalog", PRODUCT_CATALOG), ("product_changes", PRODUCT_CHANGES)]
)
def test_the_page_describes_every_column(title: str, columns: Sequence[Column]) -> None:
    section = PAGE.partition(f"## Columns of {title}\n")[2].partition("\n## ")[0]

    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+) \|$", section, re.MULTILINE)

    assert rows == [(one.name, one.type, one.description) for one in columns]
