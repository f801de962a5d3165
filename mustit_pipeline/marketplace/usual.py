"""Fast path: bodies of exactly the expected shape are decoded directly; any other body takes the general parser.

The decoders are built from the expected shapes and refuse every field that is new, missing or of another type: a body
that they accept has no drift. For fields that are not read only the type is checked, and no object is created.
"""

from types import NoneType
from typing import Any

import msgspec
from msgspec.structs import asdict

from mustit_pipeline.marketplace.expected import DETAIL, LISTING, MODULES, OPTION, OTHER_MODULES
from mustit_pipeline.marketplace.fields import texts
from mustit_pipeline.marketplace.models import SHIPPING
from mustit_pipeline.marketplace.shape import Field, Shape


class _Unread(msgspec.Struct, gc=False):
    """An object that is not read."""


def _union(kinds: list[Any]) -> Any:
    union = kinds[0]
    for kind in kinds[1:]:
        union |= kind
    return union


def _annotation(name: str, field: Field) -> Any:
    kinds: list[Any] = []
    for kind in field.types:
        if kind is dict:
            kinds.append(_Unread if field.inside is None else _struct(name, field.inside))
        elif kind is list and field.inside is not None:
            kinds.append(list[_struct(name, field.inside)])
        elif kind is list:
            kinds.append(list[str] if field.read is texts else list[msgspec.Raw])
        else:
            kinds.append(None if kind is NoneType else kind)
    return _union(kinds)


def _struct(name: str, shape: Shape, **changed: Any) -> Any:
    fields: list[tuple[str, Any] | tuple[str, Any, None]] = []
    for field_name, field in shape.fields.items():
        annotation = changed.get(field_name) or _annotation(field_name, field)
        fields.append((field_name, annotation, None) if field.optional else (field_name, annotation))
    return msgspec.defstruct(name, fields, forbid_unknown_fields=True, kw_only=True, gc=False)


def _module(kind: str, data: Any) -> Any:
    return msgspec.defstruct(kind, [("data", data)], tag_field="type", tag=kind, forbid_unknown_fields=True, gc=False)


_KNOWN = {_module(kind, _struct(kind, shape)): kind for kind, shape in MODULES.items()}
_ANY_MODULE = _union([*_KNOWN, *(_module(kind, msgspec.Raw) for kind in OTHER_MODULES)])
_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    "listing": msgspec.json.Decoder(_struct("Listing", LISTING)),
    "detail": msgspec.json.Decoder(_struct("Detail", DETAIL, moduleList=list[_ANY_MODULE])),
    "options": msgspec.json.Decoder(list[_struct("Option", OPTION)]),
}


def usual(source: str, body: bytes) -> Any:
    """The document of a body, of a detail its known modules by type; None where it needs the general parser."""
    try:
        # The decoder does not check the encoding of skipped parts, and the whole body is stored as text.
        body.decode()
        decoded = _DECODERS[source].decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if source != "detail":
        return msgspec.to_builtins(decoded)
    found: dict[str, dict[str, Any]] = {}
    for module in decoded.moduleList:
        kind = _KNOWN.get(type(module))
        # If a type occurs twice, the first one counts.
        if kind is not None and kind not in found:
            found[kind] = asdict(module.data)
    if len(found) < len(_KNOWN) or not found[SHIPPING]["items"]:
        return None
    found[SHIPPING] = msgspec.to_builtins(found[SHIPPING]["items"][0].data)
    return found
