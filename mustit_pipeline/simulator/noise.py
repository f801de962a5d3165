"""What changes on every call although nothing changed: formats, order of keys, spellings of nothing."""

from typing import Any
from unicodedata import normalize


class Noise:
    """The disturbance of one answer, a function of its number alone; a quiet one disturbs nothing."""

    __slots__ = ("call", "loud")

    def __init__(self, call: int, loud: bool) -> None:
        self.call = call if loud else 0
        self.loud = loud

    def turn(self, of: int, hit: int, offset: int = 0) -> bool:
        """True for one call in `of`."""
        return self.loud and (self.call + offset) % of == hit

    def number(self, value: int) -> int | str:
        """A number as itself, as text, or as text with commas."""
        if self.turn(6, 1):
            return str(value)
        if self.turn(6, 4):
            return f"{value:,}"
        return value

    def rate(self, value: int) -> int | str:
        """A rate as itself, as text, or with a percent sign."""
        if self.turn(6, 1):
            return str(value)
        if self.turn(6, 4):
            return f"{value}%"
        return value

    def text(self, value: str, offset: int = 0) -> str:
        """The same text, now and then in decomposed Unicode."""
        return normalize("NFD", value) if self.turn(6, 3, offset) else value

    def keys(self, entry: dict[str, Any], offset: int = 0) -> dict[str, Any]:
        """The same object with its keys in another order every second time."""
        return dict(reversed(entry.items())) if self.turn(2, 1, offset) else entry

    def order(self, entries: list[Any]) -> list[Any]:
        """The same entries, starting with another one."""
        if not self.loud or len(entries) < 2:
            return entries
        start = self.call % len(entries)
        return entries[start:] + entries[:start]
