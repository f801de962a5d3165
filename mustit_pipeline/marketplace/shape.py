"""Shapes of bodies, and how a body differs: fields that are new, missing or of another type."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from types import NoneType
from typing import Any, TypeVar, cast

from msgspec import Struct

from mustit_pipeline.domain.drift import Deviation, DriftKind
from mustit_pipeline.marketplace.excerpt import safe_sample
from mustit_pipeline.marketplace.fields import WrongValue

M = TypeVar("M", bound=Struct)

# Limits for hostile bodies: deviations, examined objects, and cached shapes.
MOST_DEVIATIONS = 50
MOST_OBJECTS = 10_000
MOST_JUDGED = 512
LONGEST_NAME = 64

REPLACED = "\ufffd"
LONE_SURROGATE = "text with a lone surrogate"

_NOT_IN_A_NAME = re.compile(r"[^\w-]")
_BEFORE_CAPITAL = re.compile(r"(?=[A-Z])")
_TYPES: dict[type, str] = {
    str: "text",
    int: "number",
    float: "number",
    bool: "boolean",
    dict: "object",
    list: "list",
    NoneType: "null",
}


def type_name(value: Any) -> str:
    """The JSON name of a value's type."""
    return _TYPES[type(value)]


@dataclass(frozen=True, slots=True)
class Field:
    """The types of a field; one with `read` is an attribute of the model, `named` where it has another name there."""

    types: frozenset[type]
    optional: bool = False
    read: Callable[[dict[str, Any], str], object] | None = None
    named: str = ""
    # The shape of the object, or of each entry of the list; of only the first entry where the others are not read.
    inside: "Shape | None" = None
    first_only: bool = False

    @property
    def expected(self) -> str:
        return " or ".join(sorted({_TYPES[one] for one in self.types}))


@dataclass(frozen=True, slots=True)
class Flaw:
    """A field of an object that differs from its shape."""

    name: str
    kind: DriftKind
    expected: str
    observed: str


class Shape:
    """The fields of one kind of object."""

    def __init__(self, **fields: Field) -> None:
        self.fields = fields
        self.inside = [(name, field, field.inside) for name, field in fields.items() if field.inside is not None]
        self._readers = [
            (field.named or _BEFORE_CAPITAL.sub("_", name).lower(), field.read, name)
            for name, field in fields.items()
            if field.read is not None
        ]
        # Results by the names and types of an object's fields: equal ones are judged once.
        self.judged: dict[tuple[str | type, ...], tuple[Flaw, ...]] = {}

    def read(self, found: dict[str, Any]) -> dict[str, Any]:
        """The fields that are read, by the names of the model's attributes, or a WrongValue."""
        return {attribute: read(found, name) for attribute, read, name in self._readers}

    def reader(self, model: type[M]) -> Callable[[dict[str, Any]], M]:
        """The same for a model of nothing else: without names, because a body has hundreds of them."""
        known = {attribute: (read, name) for attribute, read, name in self._readers}
        readers = [known[attribute] for attribute in model.__struct_fields__]

        def read_all(found: dict[str, Any]) -> M:
            return model(*[read(found, name) for read, name in readers])

        return read_all

    def judge(self, found: dict[str, Any], look: tuple[str | type, ...]) -> tuple[Flaw, ...]:
        """How an object differs from this shape."""
        flaws = tuple(islice(self._judge(found), MOST_DEVIATIONS))
        # Only for known names: names that the server invents are not cached.
        if len(self.judged) < MOST_JUDGED and self.fields.keys() >= found.keys():
            self.judged[look] = flaws
        return flaws

    def _judge(self, found: dict[str, Any]) -> Iterator[Flaw]:
        for name, field in self.fields.items():
            if name not in found:
                if not field.optional:
                    yield Flaw(name, DriftKind.MISSING, field.expected, "")
            elif type(found[name]) not in field.types:
                yield Flaw(name, DriftKind.RETYPED, field.expected, type_name(found[name]))
        for name, value in found.items():
            if name not in self.fields:
                yield Flaw(name, DriftKind.NEW, "", type_name(value))


class Examination:
    """The examination of one body: each deviation is noted once, however often it occurs."""

    def __init__(self, *, closely: bool, replaced: bool = False) -> None:
        self._closely = closely
        self._replaced = replaced
        self.named_replaced = False
        self._left = MOST_OBJECTS
        self._noted: dict[tuple[str, DriftKind, str], Deviation] = {}

    @property
    def deviations(self) -> tuple[Deviation, ...]:
        return tuple(self._noted.values())

    def look(self, shape: Shape, value: Any, path: str) -> None:
        """Compare an object with its shape, and whatever is inside it with theirs."""
        self._left -= 1
        if self._left < 0:
            return
        if type(value) is not dict:
            above, _, name = path.rpartition(".")
            self.note(above, Flaw(name, DriftKind.RETYPED, "object", type_name(value)), value)
            return
        found = cast("dict[str, Any]", value)
        look = (*found, *map(type, found.values()))
        flaws = shape.judged.get(look)
        for flaw in shape.judge(found, look) if flaws is None else flaws:
            self.note(path, flaw, found.get(flaw.name))
        if self._closely:
            self._read(shape, found, path)
        if self._replaced:
            self._name_replaced(shape, found, path)
        for name, field, inside in shape.inside:
            inner, below = found.get(name), f"{path}.{name}"
            if type(inner) is dict:
                self.look(inside, inner, below)
            elif type(inner) is list:
                entries = cast("list[Any]", inner[:1] if field.first_only else inner)
                if field.first_only and not entries:
                    self.note(path, Flaw(name, DriftKind.MISSING, "an entry", ""))
                for entry in entries:
                    self.look(inside, entry, below)

    def note(self, above: str, flaw: Flaw, value: Any = None) -> None:
        """Note a deviation at this path."""
        # The server chooses new names, so they are cleaned.
        name = _NOT_IN_A_NAME.sub("_", flaw.name[:LONGEST_NAME]) or "_"
        path = f"{above}.{name}" if above else name
        if (path, flaw.kind, flaw.observed) in self._noted or len(self._noted) >= MOST_DEVIATIONS:
            return
        sample = "" if flaw.kind is DriftKind.MISSING else safe_sample(name, value)
        self._noted[path, flaw.kind, flaw.observed] = Deviation(path, flaw.kind, flaw.expected, flaw.observed, sample)

    def _name_replaced(self, shape: Shape, found: dict[str, Any], path: str) -> None:
        for name, field in shape.fields.items():
            value = found.get(name)
            texts = cast("list[Any]", value) if type(value) is list else [value]
            if any(type(one) is str and REPLACED in one for one in texts):
                self.named_replaced = True
                self.note(path, Flaw(name, DriftKind.RETYPED, field.expected, LONE_SURROGATE), value)

    def _read(self, shape: Shape, found: dict[str, Any], path: str) -> None:
        """Check values too: a value of the right type may be invalid, such as a price in words."""
        for name, field in shape.fields.items():
            # What is wrong inside a value is noted there.
            if field.read is not None and field.inside is None and type(found.get(name)) in field.types:
                try:
                    field.read(found, name)
                except WrongValue:
                    self.note(path, Flaw(name, DriftKind.RETYPED, field.expected, "unreadable"), found.get(name))
