"""The words of the pages: English as it stands in templates and code, Korean from the catalogue beside them."""

from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any

from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from babel.support import NullTranslations, Translations

from mustit_pipeline.api.languages import Language

CATALOGUE = Path(__file__).parent / "locales" / "ko.po"


def marked(text: str) -> str:
    """A text for the catalogue, which is translated where it is shown."""
    return text


@lru_cache
def translations(language: Language) -> NullTranslations:
    """The catalogue of a language, compiled when it is first needed: there is no build step."""
    if language is Language.ENGLISH:
        return NullTranslations()
    compiled = BytesIO()
    with CATALOGUE.open("rb") as file:
        write_mo(compiled, read_po(file, locale=language.value))
    compiled.seek(0)
    return Translations(compiled)


def say(language: Language, text: str, **values: Any) -> str:
    """A text in this language."""
    translated = translations(language).gettext(text)
    return translated % values if values else translated


def say_number(language: Language, one: str, many: str, number: int, **values: Any) -> str:
    """A text about a number of things."""
    return translations(language).ngettext(one, many, number) % {"number": f"{number:,}", **values}
