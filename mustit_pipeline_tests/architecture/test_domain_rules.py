"""The domain is pure, and decisions about retries are made nowhere else."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mustit_pipeline

PACKAGE = Path(mustit_pipeline.__file__).parent
DOMAIN = PACKAGE / "domain"

# Pure parts of the standard library cannot reach a disk, a network or a clock; these can.
IMPURE_MODULES = {"asyncio", "io", "logging", "os", "pathlib", "random", "secrets", "socket", "subprocess", "threading"}
IMPURE_MODULES |= {"http", "multiprocessing", "shutil", "sqlite3", "ssl", "tempfile", "time", "urllib.request"}
CLOCK_READS = {"now", "utcnow", "today"}
IMPURE_BUILTINS = {"open", "print", "input", "eval", "exec", "__import__"}

COUNTS = {"retry_count", "retries", "release_count", "absent_sweeps", "issue_failures", "failures", "tries", "attempts"}
LIMIT = re.compile(r"max_|_max|limit|MAX|LIMIT")
SQL_LIMIT = re.compile(r"\b(?:retry_count|retries|release_count)\s*(?:[<>]=?|<>|!=)\s*\S", re.IGNORECASE)


def impurities(tree: ast.AST) -> Iterator[str]:
    """Imports and calls that tie code to something outside of itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if not is_pure_module(alias.name))
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level or not is_pure_module(module):
                yield "." * node.level + module
        elif isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Attribute) and called.attr in CLOCK_READS:
                yield f"{called.attr}()"
            elif isinstance(called, ast.Name) and called.id in IMPURE_BUILTINS:
                yield f"{called.id}()"


def is_pure_module(name: str) -> bool:
    if name.startswith("mustit_pipeline.domain"):
        return True
    parts = name.split(".")
    impure = any(".".join(parts[: n + 1]) in IMPURE_MODULES for n in range(len(parts)))
    return parts[0] in sys.stdlib_module_names and not impure


def judged_counts(tree: ast.AST) -> Iterator[str]:
    """Comparisons of a count with a limit, in Python and inside SQL texts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            counts = [side for side in sides if last_name(side) in COUNTS]
            if counts and any(is_limit(side) for side in sides if side not in counts):
                yield ast.unparse(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = SQL_LIMIT.search(node.value)
            if found:
                yield found.group()


def last_name(node: ast.expr) -> str | None:
    """The name that a value goes by: of an attribute, a variable, or a key."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value)
    if isinstance(node, ast.BinOp):
        names = {last_name(node.left), last_name(node.right)}
        return next(iter(names & COUNTS), None)
    return None


def is_limit(node: ast.expr) -> bool:
    """A number, a setting, or something that is called a limit."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int)
    return "settings" in ast.unparse(node).lower() or bool(LIMIT.search(last_name(node) or ""))


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def outside_domain() -> list[Path]:
    return [path for path in files(PACKAGE) if DOMAIN not in path.parents]


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@pytest.mark.parametrize("path", files(DOMAIN), ids=lambda path: path.name)
def test_the_domain_reaches_nothing_outside_of_itself(path: Path) -> None:
    assert list(impurities(parsed(path))) == []


def test_no_code_outside_the_domain_judges_a_count_of_retries() -> None:
    paths = outside_domain()
    found = {str(path.relative_to(PACKAGE)): list(judged_counts(parsed(path))) for path in paths}
    assert len(paths) > 1
    assert {path: comparisons for path, comparisons in found.items() if comparisons} == {}


@pytest.mark.parametrize(
    "code",
    [
        "import sqlalchemy",
        "import dagster as dg",
        "from httpx import get",
        "from pydantic import BaseModel",
        "import time",
        "import os.path",
        "from urllib.request import urlopen",
        "from mustit_pipeline.settings import Settings",
        "from mustit_pipeline.store import tables",
        "from . import states",
        "moment = datetime.now(UTC)",
        "day = date.today()",
        "open('x')",
    ],
)
def test_the_purity_rule_notices(code: str) -> None:
    assert list(impurities(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        "from datetime import datetime, timedelta",
        "from urllib.parse import quote",
        "from mustit_pipeline.domain.states import TASK",
        "until = now + timedelta(hours=1)",
        "def is_due(self, now): return self.next_due_at <= now",
    ],
)
def test_the_purity_rule_lets_pure_code_pass(code: str) -> None:
    assert not list(impurities(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        "task.retry_count < 2",
        "5 <= row.retry_count",
        "if retries >= settings.task_max_retries: pass",
        "row['retry_count'] == 5",
        "task.retry_count + 1 > limit",
        "outbox.c.retry_count < self._settings.outbox_max_retries",
        "count = [t for t in tasks if t.retry_count != MAX_RETRIES]",
        "task.release_count >= 5",
        "attempts < settings.network_tries",
        "failures > self.settings.task_max_retries",
        "query = text('UPDATE t SET x = 1 WHERE retry_count < 5')",
        "query = 'SELECT 1 FROM t WHERE t.retry_count >= :max_retries'",
        "query = 'SELECT 1 FROM t WHERE retry_count <> %(limit)s'",
    ],
)
def test_the_retry_rule_notices(code: str) -> None:
    assert list(judged_counts(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        "task.can_retry()",
        "assert stored.retry_count == loaded.retry_count",
        "query = 'UPDATE t SET retry_count = s.retry_count FROM s'",
        "query = 'UPDATE t SET retry_count = retry_count + 1'",
        "Column('retry_count', SmallInteger, server_default='0')",
        "a < b < c",
    ],
)
def test_the_retry_rule_lets_other_code_pass(code: str) -> None:
    assert not list(judged_counts(ast.parse(code)))
