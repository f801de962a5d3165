"""Values of products and their changes, as text for people."""

from collections.abc import Mapping
from typing import Any, cast

from rich.text import Text

from mustit_pipeline.catalog.sql.history import ChangeSet
from mustit_pipeline.cli.list_options import cut, shortened
from mustit_pipeline.cli.output import cell
from mustit_pipeline.domain.states import ChangeType, LifeCycle

LONG_TEXT = 48
CHANGES_SHOWN = 3


def value_text(value: object, kind: str = "") -> str:
    """One value: money with separators, an empty value as a dash, an object by its name."""
    if value is None:
        return "—"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:,}" if kind == ChangeType.PRICE else str(value)
    if isinstance(value, list):
        return ", ".join(value_text(entry) for entry in cast("list[object]", value)) if value else "(none)"
    if isinstance(value, dict):
        return _object_text(cast("dict[str, Any]", value))
    return str(value) or "(empty)"


def _object_text(value: Mapping[str, Any]) -> str:
    if "optionNo" in value:
        named = " / ".join(part for part in (value.get("color"), value.get("size"), value.get("sizeGuide")) if part)
        return f"{named or 'one size'}, stock {value.get('stock')}"
    if "code" in value:
        return f"{value.get('name') or '—'} ({value['code']})"
    return ", ".join(f"{name} {value_text(entry)}" for name, entry in value.items())


def change_text(change: Mapping[str, Any]) -> str:
    """One change in one line; long values only say that they changed."""
    kind, field, old, new = change["type"], change["field"], change["old"], change["new"]
    if list in (type(old), type(new)):
        before, after = _length(old), _length(new)
        return f"{field} changed, {after} entries" if before == after else f"{field} {before} → {after} entries"
    before, after = value_text(old, kind), value_text(new, kind)
    if max(len(before), len(after)) > LONG_TEXT:
        return f"{field} {len(str(old or '')):,} → {len(str(new or '')):,} characters"
    return f"{field} {before} → {after}"


def _length(value: object) -> int:
    return len(cast("list[object]", value)) if isinstance(value, list) else 0


def change_set_text(found: ChangeSet) -> str:
    """The changes of a version, or the product's name for a life cycle step."""
    if found.life_cycle is not LifeCycle.UPDATED:
        return shortened(found.name or "", LONG_TEXT)
    if not found.changes:
        return "sent again as it was"
    lines = [change_text(change) for change in found.changes[:CHANGES_SHOWN]]
    left_out = len(found.changes) - len(lines)
    return "\n".join(lines + ([f"and {left_out} more"] if left_out else []))


def change_set_cell(found: ChangeSet) -> Text:
    """The same as a table cell: changes are folded, a name is cut at the screen's edge."""
    text = change_set_text(found)
    return cell(text) if found.life_cycle is LifeCycle.UPDATED else cut(text)
