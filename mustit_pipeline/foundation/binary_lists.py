"""Flat lists as binary arrays: a set-based statement carries a dozen, and psycopg walks each of them several times."""

import struct
from collections.abc import Callable
from itertools import chain, repeat
from types import NoneType
from typing import Any, cast
from uuid import UUID

from psycopg.abc import Buffer, DumperKey
from psycopg.adapt import PyFormat
from psycopg.types.array import ListBinaryDumper

_HEAD = struct.Struct("!IIIII")
_LENGTH = struct.Struct("!i").pack
_NULL = _LENGTH(-1)
# Whatever the values are: with the smallest type that holds them, one statement would be planned for each size anew.
_ANY_INT = [2**40]
# What most lists hold, with the quickest way to its bytes.
_DUMPS: dict[type, Callable[[Any], bytes]] = {str: str.encode, UUID: lambda value: value.int.to_bytes(16, "big")}


class FlatListDumper(ListBinaryDumper):
    """Dumps lists of one kind of value, None among them; all other lists as psycopg does."""

    _kind: type | None = None

    def get_key(self, obj: list[Any], format: PyFormat) -> DumperKey:
        kind = _kind_of(obj)
        return super().get_key(obj, format) if kind is None or self.oid else (self.cls, kind)

    def upgrade(self, obj: list[Any], format: PyFormat) -> Any:
        kind = _kind_of(obj)
        if kind is None or self.oid:
            return super().upgrade(obj, format)
        sample = _ANY_INT if kind is int else [next(item for item in obj if item is not None)]
        dumper: Any = super().upgrade(sample, format)
        # From now on it is given lists of this kind only: that is its key.
        dumper._kind = kind
        return dumper

    def dump(self, obj: list[Any]) -> Buffer | None:
        one = self.sub_dumper
        if self._kind is None or one is None:
            return super().dump(obj)
        has_null = None in obj
        head = _HEAD.pack(1, has_null, one.oid, len(obj), 1)
        if self._kind is int and not has_null:
            return head + struct.pack("!" + "iq" * len(obj), *chain.from_iterable(zip(repeat(8), obj, strict=False)))
        dump = _DUMPS.get(self._kind) or cast("Callable[[Any], bytes]", one.dump)
        if has_null:
            dumped = [b"" if item is None else dump(item) for item in obj]
            lengths = [_NULL if item is None else _LENGTH(len(to)) for item, to in zip(obj, dumped, strict=True)]
        else:
            dumped = [*map(dump, obj)]
            lengths = [*map(_LENGTH, map(len, dumped))]
        return head + b"".join(chain.from_iterable(zip(lengths, dumped, strict=True)))


def _kind_of(values: list[Any]) -> type | None:
    """What a flat list holds; None where that is nothing, more than one kind, or numbers of more than 64 bits."""
    kinds = set(map(type, values))
    has_null = NoneType in kinds
    kinds.discard(NoneType)
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is int:
        numbers = [value for value in values if value is not None] if has_null else values
        return int if min(numbers) >= -(2**63) and max(numbers) < 2**63 else None
    return None if kind is list else kind
