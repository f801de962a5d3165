"""Korean unless the client prefers English."""

from enum import StrEnum


class Language(StrEnum):
    """The languages of messages and pages."""

    KOREAN = "ko"
    ENGLISH = "en"


def preferred(accept_language: str | None) -> Language:
    """The language of an Accept-Language header; Korean where it is missing, unreadable or undecided."""
    weights = {Language.KOREAN: 0.0, Language.ENGLISH: 0.0}
    for entry in (accept_language or "")[:1000].split(","):
        tag, _, rest = entry.strip().partition(";")
        language = tag.strip().lower().split("-")[0]
        if language in weights:
            weights[Language(language)] = max(weights[Language(language)], _weight(rest))
    return Language.ENGLISH if weights[Language.ENGLISH] > weights[Language.KOREAN] else Language.KOREAN


def _weight(text: str) -> float:
    name, _, value = text.strip().partition("=")
    if not name:
        return 1.0
    try:
        return float(value) if name.strip() == "q" else 1.0
    except ValueError:
        return 0.0
