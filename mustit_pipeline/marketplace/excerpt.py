"""Excerpts of untrusted bodies for people: one line, printable, without anything that looks like a secret."""

import re
from itertools import islice
from typing import Any, cast

import orjson

LONGEST = 200
ENTRIES_SHOWN, DEPTH_SHOWN = 6, 2

_NAMED_SECRET = re.compile(
    r"""(?i)((?:token|authorization|cookie|nid|mustit_uid)["']?\s*[:=]\s*["']?|bearer\s+)[^"'<;,}&]+"""
)
_USER_AGENT = re.compile(r"""Mozilla/[^"'<]+""")
_OPAQUE_RUN = re.compile(r"[A-Za-z0-9_+=~.-]{32,}")


def safe_excerpt(body: bytes) -> str:
    """The start of a body."""
    return _safe(body[:800].decode("utf-8", "replace"))[:LONGEST]


def safe_sample(name: str, value: Any) -> str:
    """The start of a field's value; a field whose name suggests a secret is masked."""
    return _safe(f"{name}: {_shown(value, DEPTH_SHOWN)}").partition(": ")[2][:LONGEST]


def _safe(text: str) -> str:
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    line = _NAMED_SECRET.sub(r"\1…", _USER_AGENT.sub("…", line))
    return _OPAQUE_RUN.sub("…", line)


def _shown(value: Any, depth: int) -> str:
    """JSON without its long and deep parts, so that a hostile value costs no more than another."""
    if type(value) is str:
        return f'"{value[:LONGEST]}"'
    if type(value) not in (dict, list):
        return orjson.dumps(value).decode()
    if depth == 0:
        return "…"
    more = ["…"] if len(value) > ENTRIES_SHOWN else []
    if type(value) is list:
        listed = cast("list[Any]", value)[:ENTRIES_SHOWN]
        return f"[{', '.join([_shown(entry, depth - 1) for entry in listed] + more)}]"
    entries = [f'"{key[:64]}": {_shown(entry, depth - 1)}' for key, entry in islice(value.items(), ENTRIES_SHOWN)]
    return f"{{{', '.join(entries + more)}}}"
