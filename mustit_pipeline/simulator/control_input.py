"""Reading the input of a control call: a wrong value is an error with a message."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, cast
from urllib.parse import parse_qsl, unquote

import orjson


class BadInputError(ValueError):
    """A wrong value; the message names it and the valid values."""


class UnknownPathError(LookupError):
    """The address does not exist."""


class Fields:
    """The members of a JSON object, read by name and type; unread members are refused."""

    def __init__(self, value: Any, what: str = "the body") -> None:
        if not isinstance(value, dict):
            raise BadInputError(f"{what} must be a JSON object")
        self._value: Mapping[str, Any] = value
        self._read: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._value

    def any(self, name: str) -> Any:
        """The value of any type, None if absent."""
        self._read.add(name)
        return self._value.get(name)

    def text(self, name: str, *, required: bool = True) -> str | None:
        """A text that is not blank."""
        value = self.any(name)
        if value is None and not required:
            return None
        if not isinstance(value, str) or not value.strip():
            raise BadInputError(f"{name} must be a text that is not blank, not {value!r}")
        return value

    def seller_id(self) -> str:
        """The seller the call is about."""
        return self.text("sellerId") or ""

    def integer(self, name: str, *, minimum: int, maximum: int = 10_000_000, default: int | None = None) -> int:
        """A whole number within bounds; required where there is no default."""
        value = self.any(name)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
            raise BadInputError(f"{name} must be a whole number from {minimum} to {maximum}, not {value!r}")
        return value

    def optional_integer(self, name: str, *, minimum: int) -> int | None:
        """A whole number, or None where nothing is given."""
        return None if self.any(name) is None else self.integer(name, minimum=minimum, maximum=2**53)

    def number(self, name: str, *, minimum: float, maximum: float, default: float) -> float:
        """A number within bounds."""
        value = self.any(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not minimum <= value <= maximum:
            raise BadInputError(f"{name} must be a number from {minimum} to {maximum}, not {value!r}")
        return float(value)

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false."""
        value = self.any(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise BadInputError(f"{name} must be true or false, not {value!r}")
        return value

    def choice(self, name: str, choices: Collection[str], default: str | None = None) -> str:
        """One of the given words."""
        value = self.any(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or value not in choices:
            raise BadInputError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
        return value

    def list_of(self, name: str, accepts: Callable[[Any], bool], what: str) -> list[Any] | None:
        """A list of one kind of value, or None where nothing is given."""
        value = self.any(name)
        if value is None:
            return None
        entries = cast("list[Any]", value) if isinstance(value, list) else []
        if not entries or not all(accepts(entry) for entry in entries):
            raise BadInputError(f"{name} must be a list of {what} that is not empty")
        return entries

    def done(self) -> None:
        """Refuse members that were not read: most likely they are misspelt."""
        if unknown := sorted(self._value.keys() - self._read):
            raise BadInputError(f"unknown {', '.join(unknown)}; known here: {', '.join(sorted(self._read))}")


def json_fields(raw: bytes) -> Fields:
    """The body of a control call."""
    try:
        return Fields(orjson.loads(raw))
    except orjson.JSONDecodeError as error:
        raise BadInputError(f"the body is not JSON: {error}") from error


def decoded(segment: str) -> str:
    """One path segment, decoded exactly once."""
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError as error:
        raise BadInputError(f"{segment!r} is not percent-encoded UTF-8") from error


def query_parameters(query: str) -> dict[str, str]:
    """The query, decoded exactly once."""
    try:
        return dict(parse_qsl(query, keep_blank_values=True, errors="strict"))
    except UnicodeDecodeError as error:
        raise BadInputError("the query is not percent-encoded UTF-8") from error
