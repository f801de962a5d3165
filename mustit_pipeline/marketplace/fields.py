"""Single values out of untrusted JSON objects: each is what it should be, absent, or a WrongValue."""

import re
from typing import Any, cast
from unicodedata import normalize

# Whole numbers as people write them: 1,083,000 · 49% · 12.0; ASCII digits, and few enough for 64 bits.
_NUMBER = re.compile(r"([+-]?(?:[0-9]{1,19}|[0-9]{1,3}(?:,[0-9]{3}){1,6}))(?:\.0{1,9})?[ ]?%?")
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
# Beyond this a float cannot represent every whole number.
_EXACT = 2**53
_KINDS: dict[type, str] = {
    dict: "an object",
    list: "a list",
    str: "text",
    bool: "true or false",
    int: "a number",
    float: "a number",
}


class WrongValue(Exception):
    """A field with an invalid value."""


def clean(value: str) -> str:
    """NFC, and without NUL, which PostgreSQL cannot store."""
    return normalize("NFC", value.replace("\x00", ""))


def all_clean(values: list[str]) -> list[str]:
    """Each of them clean; addresses, as most lists hold them, need no look one by one."""
    together = "".join(values)
    return values if together.isascii() and "\x00" not in together else [clean(value) for value in values]


def text(data: dict[str, Any], name: str) -> str:
    value = data.get(name)
    if type(value) is str:
        return value if value.isascii() and "\x00" not in value else clean(value)
    if value is None:
        return ""
    raise WrongValue(f"{name} takes text, not {_kind(value)}")


def filled(data: dict[str, Any], name: str) -> str:
    """A required text that is not blank."""
    value = text(data, name)
    if not value or value.isspace():
        raise WrongValue(f"{name} is missing")
    return value


def code(data: dict[str, Any], name: str) -> str:
    """A code that may arrive as text or as a whole number."""
    value = data.get(name)
    if type(value) is int:
        return str(value)
    return text(data, name)


def texts(data: dict[str, Any], name: str) -> tuple[str, ...]:
    """A list of texts, without the blank ones."""
    values = items(data, name)
    for value in values:
        if type(value) is not str:
            raise WrongValue(f"{name} takes a list of texts, not of {_kind(value)}")
    return tuple([value for value in all_clean(values) if value and not value.isspace()])


def titles(data: dict[str, Any], name: str) -> tuple[str, ...]:
    """The titles of a list of objects, without the blank ones."""
    found = [text(mapping(entry, name), "title") for entry in items(data, name)]
    return tuple([title for title in found if title and not title.isspace()])


def number(data: dict[str, Any], name: str) -> int | None:
    """A whole number, also as text with commas or a percent sign."""
    value = data.get(name)
    if value is None:
        return None
    if type(value) is str:
        value = value.strip()
        if not value:
            return None
        match = _NUMBER.fullmatch(value)
        if match is None:
            raise WrongValue(f"{name} takes a whole number, not other text")
        value = int(match[1].replace(",", ""))
    elif type(value) is float and value.is_integer() and abs(value) <= _EXACT:
        value = int(value)
    elif type(value) is not int:
        raise WrongValue(f"{name} takes a whole number, not {_kind(value)}")
    if not _SMALLEST <= value <= _LARGEST:
        raise WrongValue(f"{name} does not fit 64 bits")
    return value


def amount(data: dict[str, Any], name: str) -> int | None:
    """A number from 0 up: a price, a fee, a stock."""
    value = data.get(name)
    if type(value) is int and 0 <= value <= _LARGEST:
        return value
    value = number(data, name)
    if value is not None and value < 0:
        raise WrongValue(f"{name} takes a number from 0 up")
    return value


def rate(data: dict[str, Any], name: str) -> int | None:
    """A number of percent."""
    value = data.get(name)
    if type(value) is int and 0 <= value <= 100:
        return value
    value = number(data, name)
    if value is not None and not 0 <= value <= 100:
        raise WrongValue(f"{name} takes a number from 0 to 100")
    return value


def identity(data: dict[str, Any], name: str) -> int:
    """A required positive number."""
    value = data.get(name)
    if type(value) is int and 0 < value <= _LARGEST:
        return value
    value = number(data, name)
    if value is None or value <= 0:
        raise WrongValue(f"{name} takes a positive number")
    return value


def flag(data: dict[str, Any], name: str) -> bool | None:
    value = data.get(name)
    if value is None or type(value) is bool:
        return value
    if type(value) is str:
        lowered = value.strip().lower()
        if lowered in ("true", "false"):
            return lowered == "true"
        if not lowered:
            return None
    raise WrongValue(f"{name} takes true or false, not {_kind(value)}")


def items(data: dict[str, Any], name: str) -> list[Any]:
    value = data.get(name)
    if value is None:
        return []
    if type(value) is not list:
        raise WrongValue(f"{name} takes a list, not {_kind(value)}")
    return cast("list[Any]", value)


def mapping(value: Any, name: str) -> dict[str, Any]:
    if type(value) is not dict:
        raise WrongValue(f"{name} takes an object, not {_kind(value)}")
    return cast("dict[str, Any]", value)


def _kind(value: object) -> str:
    return _KINDS.get(type(value), "null")
