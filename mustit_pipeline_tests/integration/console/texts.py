"""The texts of templates and code, for checking that the catalogue has them all."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from babel.messages.extract import extract_from_dir

from mustit_pipeline import console

FOLDER = Path(console.__file__).parent
METHODS = [("**.py", "python"), ("templates/**.html", "jinja2.ext:babel_extract")]
# Which argument of a call is a text.
KEYWORDS = {
    "_": None,
    "gettext": None,
    "ngettext": (1, 2),
    "marked": None,
    "say": None,
    "say_number": (1, 2),
}
OPTIONS = {"templates/**.html": {"extensions": "jinja2.ext.do", "trimmed": "false"}}


@dataclass(frozen=True, slots=True)
class Message:
    """One text, with its plural where it is about a number."""

    text: str
    plural: str | None
    places: tuple[str, ...]


def messages() -> list[Message]:
    """Every text of the console, in the order in which templates and code have them."""
    found: dict[str, Message] = {}
    for text, plural, place in _extracted():
        known = found.get(text)
        places = (*(known.places if known else ()), place)
        found[text] = Message(text, plural or (known.plural if known else None), places)
    return list(found.values())


def _extracted() -> Iterator[tuple[str, str | None, str]]:
    for name, line, message, _, _ in extract_from_dir(
        FOLDER, method_map=METHODS, options_map=OPTIONS, keywords=KEYWORDS
    ):
        if isinstance(message, tuple):
            yield message[0], message[1] if len(message) > 1 else None, f"{name}:{line}"
        else:
            yield message, None, f"{name}:{line}"
