"""Logs of every process, configured here alone: pretty or JSON, to stderr, with ids of what they are about, no secrets.

Ids are bound as context variables where they are known (`about`): threads and asyncio tasks started from there have
them too.
"""

import logging
import re
import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TextIO, cast

import structlog
from pydantic import ValidationError
from structlog.typing import EventDict, Processor, WrappedLogger

from mustit_pipeline.settings import LogSettings, Settings, secret_values
from mustit_pipeline.settings.logs import Level

REDACTED = "[redacted]"
# Loggers of libraries whose lines belong into ours.
ROUTED = ("uvicorn", "uvicorn.error", "uvicorn.access")
DEEPEST = 6

_SECRET_KEY = re.compile(
    r"passw|passphrase|token|secret|authorization|cookie|credential|api[-_ ]?key|private[-_ ]?key|signing[-_ ]?key",
    re.IGNORECASE,
)
_NAMES = r"password|passwd|secret|token|access_token|api_?key|nid|mustit_uid"
# What stays is in groups; all else of a match is hidden.
_SECRET_TEXT = (
    # A header with its whole value.
    re.compile(r"(?i)\b((?:proxy-)?authorization|(?:set-)?cookie|x-api-key)(['\"]?\s*[:=]\s*)[^\r\n]+"),
    re.compile(r"(?i)\b(bearer|basic)(\s+)[\w.~+/=-]{4,}"),
    # JSON Web Tokens, also cut off ones.
    re.compile(r"()()\beyJ[\w-]{8,}(?:\.[\w-]*)*"),
    # API keys and login links: the id is no secret.
    re.compile(r"\b(m[kl]_[0-9a-f]{12}_)()\w+"),
    re.compile(r"()()\bm[kl]_\w{16,}"),
    # The password of an address.
    re.compile(r"(://[^\s/@:]*)(:)[^\s/@]+(?=@)"),
    re.compile(rf"(?i)\b({_NAMES})(['\"]?\s*[=:]\s*['\"]?)[^\s&;,'\"]+"),
)
# Without one of these nothing above can match: most texts of most lines.
_PERHAPS_SECRET = re.compile(r"[\s:=]|eyJ|m[kl]_")


class Hidden:
    """Texts that are known to be secrets, whatever they look like."""

    def __init__(self) -> None:
        self._texts: frozenset[str] = frozenset()
        self._any: re.Pattern[str] | None = None

    def add(self, texts: frozenset[str]) -> None:
        """Hide these too."""
        if not texts <= self._texts:
            self._texts |= texts
            self._any = re.compile("|".join(map(re.escape, sorted(self._texts, key=len, reverse=True))))

    def out_of(self, text: str) -> str:
        """The text without them."""
        # Looking for each is many times quicker than the pattern, and nearly always enough.
        if self._any is None or not any(secret in text for secret in self._texts):
            return text
        return self._any.sub(REDACTED, text)


_hidden = Hidden()
_about: ContextVar[Mapping[str, object]] = ContextVar("about", default=MappingProxyType({}))


class _Stderr:
    """Looked up with each line, so that a replaced sys.stderr is used."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


# One object: structlog has a lock for each, and lines of several threads must not mix.
_STDERR = cast("TextIO", _Stderr())


def configure(usual: Level = "warning") -> None:
    """Configure the logs of this process as its environment says; `usual` is the level where that says nothing."""
    settings = _log_settings()
    level = logging.getLevelNamesMapping()[(settings.log_level or usual).upper()]
    shared = _shared(settings)
    structlog.configure(
        processors=[*shared, _renderer(settings)],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: structlog.PrintLogger(_STDERR),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(_STDERR)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, redact, _renderer(settings)],
        )
    )
    for name in ROUTED:
        routed = logging.getLogger(name)
        routed.handlers, routed.propagate = [handler], False
        routed.setLevel(max(level, logging.WARNING))


def configure_unless_done(usual: Level) -> None:
    """The same in a process that a command of ours may have configured already."""
    if not structlog.is_configured():
        configure(usual)


def hide_secrets_of(settings: Settings) -> None:
    """From now on the secrets of these settings are hidden wherever they appear, too."""
    _hidden.add(secret_values(settings))


@contextmanager
def about(**ids: object) -> Generator[None]:
    """Name what all lines inside are about: run_id, execution_id, seller_id, task_id and such; None says nothing."""
    token = _about.set({**_about.get(), **ids})
    try:
        yield
    finally:
        _about.reset(token)


def add_ids(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Add what the line is about; as text only now, because most work writes no line."""
    for name, value in _about.get().items():
        if value is not None:
            event.setdefault(name, str(value))
    return event


def redact(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Hide secrets by the name of their key, and by what they look like or are."""
    return cast("EventDict", _redacted(event, 0))


def redacted_text(text: str) -> str:
    """A text without the secrets that can be recognized in it."""
    text = _hidden.out_of(text)
    if not _PERHAPS_SECRET.search(text):
        return text
    for pattern in _SECRET_TEXT:
        text = pattern.sub(rf"\1\2{REDACTED}", text)
    return text


def _redacted(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return redacted_text(value)
    if isinstance(value, bool | int | float) or value is None:
        return value
    if depth >= DEEPEST:
        return REDACTED
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {_redacted(key, depth + 1): _of_key(key, inside, depth + 1) for key, inside in items}
    if isinstance(value, list | tuple | set | frozenset):
        return [_redacted(inside, depth + 1) for inside in cast("Iterable[Any]", value)]
    # Whatever else it is, the renderer would write it like this.
    return redacted_text(value.decode(errors="replace") if isinstance(value, bytes) else str(value))


def _of_key(key: object, value: Any, depth: int) -> Any:
    # Numbers under such a name are counts and ids.
    if isinstance(value, bool | int | float) or value is None or not _names_a_secret(str(key)):
        return _redacted(value, depth)
    return REDACTED


@lru_cache(maxsize=1024)
def _names_a_secret(key: str) -> bool:
    return _SECRET_KEY.search(key) is not None


def _log_settings() -> LogSettings:
    """The settings of logs alone: a mistake in them or others is told by those who read all settings."""
    try:
        return LogSettings(_env_prefix="MUSTIT_", _env_ignore_empty=True)  # pyright: ignore[reportCallIssue]
    except ValidationError:
        return LogSettings.model_construct()


def _shared(settings: LogSettings) -> Sequence[Processor]:
    form = "iso" if settings.log_format == "json" else "%Y-%m-%d %H:%M:%S"
    return [
        structlog.contextvars.merge_contextvars,
        add_ids,
        structlog.processors.format_exc_info,
        redact,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt=form, utc=settings.log_format == "json"),
    ]


def _renderer(settings: LogSettings) -> Processor:
    if settings.log_format == "json":
        return structlog.processors.JSONRenderer(ensure_ascii=False)
    # Without the values of local variables, which may be secrets.
    plain = structlog.dev.plain_traceback
    return structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)
