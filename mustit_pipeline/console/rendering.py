"""Pages from templates, one environment for each language."""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import jinja2
import orjson
from babel.support import NullTranslations

from mustit_pipeline.api.languages import Language
from mustit_pipeline.console import static_files
from mustit_pipeline.console.dagster_proxy import PREFIX
from mustit_pipeline.console.formats import Formats
from mustit_pipeline.console.languages import translations
from mustit_pipeline.console.words import FIELDS, PARTS, TONES, WORDS
from mustit_pipeline.foundation.clock import utc_now

if TYPE_CHECKING:
    from mustit_pipeline.console.visits import Visit

TEMPLATES = Path(__file__).parent / "templates"
_OPTION = re.compile(r"options\[(\d+)\](?:\.(\w+))?")


def render(template: str, visit: "Visit", values: dict[str, Any]) -> str:
    """A page as HTML; every value in it is escaped."""
    environment = _environment(visit.language)
    return environment.get_template(template).render(visit=visit, now=utc_now(), **values)


@lru_cache
def _environment(language: Language) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        # Templates come with the package: they change with a new version of it, and that is another process.
        auto_reload=False,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.i18n", "jinja2.ext.do"],
    )
    words, formats = translations(language), Formats(language)
    # The extension adds this method when the environment is made.
    install: Callable[..., None] = getattr(environment, "install_gettext_translations")  # noqa: B009
    install(words, newstyle=True)

    def label(value: object) -> str:
        return _label(words, WORDS, value)

    def field_label(value: object) -> str:
        return _field_label(words, str(value))

    def tone(value: object) -> str:
        return TONES.get(str(value), "calm")

    known: dict[str, Any] = {
        "static": static_files.address,
        "seller_path": seller_path,
        "product_path": product_path,
        "query": query,
        "dagster_runs": dagster_runs,
        "dagster_partition": dagster_partition,
        "label": label,
        "field_label": field_label,
        "tone": tone,
    }
    filters: dict[str, Any] = {
        "number": formats.number,
        "percent": formats.percent,
        "money": formats.money,
        "moment": formats.moment,
        "ago": formats.ago,
        "day": formats.day,
        "clock": formats.clock,
        "duration": formats.duration,
        "plain": _plain,
    }
    environment.globals.update(known)  # pyright: ignore[reportUnknownMemberType]
    environment.filters.update(filters)  # pyright: ignore[reportUnknownMemberType]
    return environment


def _label(translations: NullTranslations, words: Mapping[str, str], value: object) -> str:
    """The word for a state; what has none is shown as it is."""
    return translations.gettext(words[str(value)]) if str(value) in words else str(value)


def _field_label(translations: NullTranslations, field: str) -> str:
    """The words for a field of a product, such as `options[4134224619].stock` or `shipping.fee`."""
    whole = _OPTION.fullmatch(field)
    if whole is not None:
        option = f"{_label(translations, FIELDS, 'options')} {whole[1]}"
        return f"{option} {_label(translations, FIELDS, whole[2])}" if whole[2] else option
    group, _, part = field.partition(".")
    return f"{_label(translations, FIELDS, group)} {_label(translations, PARTS, part)}".strip()


def _plain(value: object) -> str:
    """A value as JSON that people read; the template escapes it."""
    return orjson.dumps(value, default=str).decode()


def seller_path(seller_id: object) -> str:
    """The address of a seller's page."""
    return f"/sellers/{quote(str(seller_id), safe='')}"


def product_path(seller_id: object, item_no: int) -> str:
    """The address of a product's page; several sellers may have its number."""
    return f"/products/{item_no}?{urlencode({'seller': str(seller_id)})}"


def dagster_runs(tag: str, value: object) -> str:
    """Dagster's runs with a tag, behind the console's login."""
    return f"{PREFIX}/runs?{urlencode({'q[0]': f'tag:{tag}={value}'})}"


def dagster_partition(seller_id: object) -> str:
    """A seller's partition of the last asset of a crawl, in Dagster."""
    return f"{PREFIX}/assets/product_change_sets?{urlencode({'view': 'partitions', 'partition': str(seller_id)})}"


def query(**values: object) -> str:
    """The part of an address behind the path, of the values that are there."""
    given = {name: str(value) for name, value in values.items() if value not in (None, "", False)}
    return f"?{urlencode(given)}" if given else ""
