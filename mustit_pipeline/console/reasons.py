"""Texts that other rooms have stored in English, as the reader's language has them; what has no known form stays."""

import re

from mustit_pipeline.agents.judgement import CHARGED, UNDECIDED, UNWELL, WITH_MANY
from mustit_pipeline.agents.roster import BLOCKED_BY_ADMIN
from mustit_pipeline.agents.session_cache import NO_TOKEN
from mustit_pipeline.api.languages import Language
from mustit_pipeline.console.languages import marked
from mustit_pipeline.console.visits import Visit
from mustit_pipeline.monitoring import alert_texts

_OF_AGENTS = {
    CHARGED + "{}": marked("Throttled by the marketplace: %(what)s"),
    UNDECIDED + "{}": marked("Throttled, and it may be the URL's fault: %(what)s"),
    WITH_MANY + "{}": marked("Throttled with many others: %(what)s"),
    UNWELL: marked("Too many failed calls"),
    BLOCKED_BY_ADMIN: marked("Blocked by an admin"),
    NO_TOKEN: marked("No session token was issued %(what)s times in a row"),
}
_PATTERNS = [
    (re.compile(re.escape(form).replace(r"\{\}", "(?P<what>.*)"), re.DOTALL), text) for form, text in _OF_AGENTS.items()
]


def agent_reason(visit: Visit, reason: str | None) -> str:
    """Why an agent is out of use."""
    for pattern, text in _PATTERNS:
        found = pattern.fullmatch(reason or "")
        if found is not None:
            return visit.say(text, **found.groupdict()) if found.groupdict() else visit.say(text)
    return reason or ""


def alert_text(visit: Visit, text: str) -> str:
    """The title or the detail of an alert."""
    return text if visit.language is Language.ENGLISH else alert_texts.in_korean(text)
