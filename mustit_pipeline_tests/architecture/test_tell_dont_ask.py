"""The holder of an aggregate answers for it: no chain of attributes reaches through it from outside.

A part is a field of an aggregate that holds another aggregate or a value of the domain, or a field of any room's
dataclass that holds an aggregate. Parts are known by the names of these fields. The rule refuses every chain that goes
on behind a part, as `stored.execution.status` does: the holder gives the answer (`stored.status`), or is told to do
the thing. It is the strict one, for one step too far is where chains begin. Three things are no reaching:
- an id's or an enum's `.value`, and a call of the part's own method (`stored.execution.pause()`);
- a holder that asks its own part (`self.execution.status`);
- a part that was handed over, as an argument or in a variable of its own: then it belongs to the function that has it.
"""

import ast
import dataclasses
import pkgutil
import types
import typing
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec import Struct

import mustit_pipeline
from mustit_pipeline import domain
from mustit_pipeline.domain.aggregate import Aggregate

PACKAGE = Path(mustit_pipeline.__file__).parent
# The domain's aggregates know their own parts, and the simulator plays others' systems.
OUTSIDE = {"domain", "simulator", "migrations", "__main__"}
# What may stand behind a part at the end of a chain, each with its reason.
ALLOWED = {
    "value": "an id or an enum goes into SQL, JSON and texts as what it stands for",
}
CALLED = "a method of the part itself: it is told to do something, or to judge"


def classes(package: types.ModuleType) -> Iterator[type]:
    """Every class that a module of the package defines."""
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not OUTSIDE & set(found.name.split(".")[1:]) or package is domain:
            module = import_module(found.name)
            for one in vars(module).values():
                if isinstance(one, type) and one.__module__ == found.name:
                    yield one


def is_record(one: type) -> bool:
    """Whether its fields are written down: a dataclass, or a struct of the hot path."""
    return dataclasses.is_dataclass(one) or issubclass(one, Struct)


def fields(owner: type) -> Iterator[tuple[str, set[type]]]:
    """The fields of a record, with the types that each may be of."""
    for name, hint in typing.get_type_hints(owner).items():
        may_be = typing.get_args(hint) if isinstance(hint, types.UnionType) else [hint]
        yield name, {kind for kind in may_be if isinstance(kind, type)}


def parts() -> set[str]:
    """The names of fields that hold a part."""
    own = {one for one in classes(domain) if dataclasses.is_dataclass(one)}
    aggregates = {one for one in own if issubclass(one, Aggregate)}
    of_aggregates = {name for one in aggregates for name, kinds in fields(one) if kinds & own}
    holders = [one for one in classes(mustit_pipeline) if is_record(one)]
    return of_aggregates | {name for one in holders for name, kinds in fields(one) if kinds & aggregates}


def chains(tree: ast.Module) -> Iterator[tuple[int, list[str], bool]]:
    """Every chain of attributes as a whole: its line, its names after the first, and whether its end is called.

    `self` has its own parts in its hands: of what it asks them only the rest is a chain.
    """
    nodes = list(ast.walk(tree))
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    inner = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            names: list[str] = []
            rest: ast.expr = node
            while isinstance(rest, ast.Attribute):
                names.append(rest.attr)
                rest = rest.value
            own = isinstance(rest, ast.Name) and rest.id == "self"
            yield node.lineno, names[::-1][own:], id(node) in called


def reaching(source: str, part_names: set[str]) -> Iterator[tuple[int, str]]:
    """The chains of a module that go on behind a part, with their lines."""
    for line, names, is_called in chains(ast.parse(source)):
        for place, (part, following) in enumerate(pairwise(names), start=2):
            ends_well = place == len(names) and (following in ALLOWED or is_called)
            if part in part_names and not ends_well:
                yield line, ".".join(names)
                break


def test_no_chain_reaches_through_an_aggregate() -> None:
    part_names = parts()
    assert {"execution", "task", "product", "outbox", "seller", "interval", "suspicion"} <= part_names
    found = [
        f"{path.relative_to(PACKAGE)}:{line} .{chain}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if not OUTSIDE & set(path.relative_to(PACKAGE).parts)
        for line, chain in reaching(path.read_text(encoding="utf-8"), part_names)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "refused"),
    [
        ("stored.execution.status", ["execution.status"]),
        ("stored.execution.id.value", ["execution.id.value"]),
        ("self.stored.execution.seller_id", ["execution.seller_id"]),
        ("self.stored.execution.seller.name", ["execution.seller.name"]),
        ("find().execution.is_open", ["execution.is_open"]),
        ("seller.interval.unit.value", ["interval.unit.value"]),
        ("stored.execution.seller.rename('x')", ["execution.seller.rename"]),
        ("stored.execution.id.value.hex()", ["execution.id.value.hex"]),
    ],
)
def test_the_rule_notices(source: str, refused: list[str]) -> None:
    assert [chain for _, chain in reaching(source, {"execution", "seller", "interval", "id"})] == refused


@pytest.mark.parametrize(
    "source",
    ["stored.execution", "stored.execution.pause()", "execution.id.value", "stored.status", "self.execution.status"],
)
def test_the_rule_lets_pass_what_asks_the_owner(source: str) -> None:
    assert list(reaching(source, {"execution", "seller", "interval", "id"})) == []
