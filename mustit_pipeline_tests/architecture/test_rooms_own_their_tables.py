"""A room's tables are written by its own SQL alone; others read them, or call its functions."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import mustit_pipeline

PACKAGE = Path(mustit_pipeline.__file__).parent
WRITES = re.compile(
    r"\b(?:INSERT\s+INTO|(?<!FOR )(?<!KEY )(?<!DO )UPDATE|DELETE\s+FROM|MERGE\s+INTO|COPY|TRUNCATE)\s+(\w+)"
)
# SQLAlchemy's own statements, and rows that go by their age.
CALLS = {"insert", "update", "delete"}
AGING = "Aged"


def python_files() -> list[Path]:
    return [path for path in PACKAGE.rglob("*.py") if "migrations" not in path.parts]


def owners() -> dict[str, str]:
    """Each table, and the room that defines it."""
    return {
        table: path.relative_to(PACKAGE).parts[0]
        for path in PACKAGE.glob("*/sql/tables.py")
        for table in re.findall(r'= Table\(\s*"(\w+)"', path.read_text())
    }


def written(source: str, tables: set[str]) -> Iterator[str]:
    """The tables that a module's statements write."""
    tree = ast.parse(source)
    names = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from (table for table in WRITES.findall(node.value) if table in tables)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            first = node.args[0]
            if node.func.id in CALLS and isinstance(first, ast.Name) and names.get(first.id, first.id) in tables:
                yield names.get(first.id, first.id)
            if node.func.id == AGING and isinstance(first, ast.Constant):
                yield str(first.value)


def test_every_table_has_one_room_and_only_the_sql_of_that_room_writes_it() -> None:
    rooms = owners()
    foreign: list[str] = []
    seen: set[str] = set()
    for path in python_files():
        place = path.relative_to(PACKAGE)
        for table in written(path.read_text(), set(rooms)):
            seen.add(table)
            if place.parts[:2] != (rooms[table], "sql"):
                foreign.append(f"{place} writes {table}, which belongs to {rooms[table]}")
    assert foreign == []
    assert seen == set(rooms)


@pytest.mark.parametrize(
    "source",
    [
        'text("UPDATE products SET version = 1")',
        'text(f"WITH x AS (DELETE\\n FROM products p WHERE {condition}) SELECT 1")',
        'text("INSERT INTO products (a) VALUES (1) ON CONFLICT DO UPDATE SET a = 2")',
        "from mustit_pipeline.catalog.sql.tables import products as rows\nupdate(rows)",
        'Aged("products", ("updated_at",))',
    ],
)
def test_a_write_is_seen_in_each_of_its_forms(source: str) -> None:
    assert list(written(source, {"products"})) == ["products"]


@pytest.mark.parametrize("source", ['text("SELECT 1 FROM products FOR NO KEY UPDATE OF products")', 'f("products")'])
def test_what_only_reads_is_no_write(source: str) -> None:
    assert list(written(source, {"products"})) == []
