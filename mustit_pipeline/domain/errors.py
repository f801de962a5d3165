"""Errors of the domain as types: each has a stable code, a Korean and an English message and an HTTP status."""

import re
from typing import ClassVar


class DomainError(Exception):
    """A rule was broken; raise one of the subclasses, which fix the status and the prefix of the code."""

    prefix: ClassVar[str] = ""
    status: ClassVar[int] = 500

    def __init__(self, code: str, *, korean: str, english: str) -> None:
        if not self.prefix or not re.fullmatch(rf"{self.prefix}_[A-Z][A-Z0-9_]*", code):
            raise ValueError(f"{code!r} is not a code of {type(self).__name__}")
        self.code = code
        self.korean = korean
        self.english = english
        super().__init__(f"{english} [{code}]")

    def message(self, language: str = "ko") -> str:
        """The text for people: English where the language is English, otherwise Korean."""
        return self.english if language.lower().split("-")[0] == "en" else self.korean


class ValidationFailed(DomainError):
    """A value that cannot exist."""

    prefix = "VALIDATION"
    status = 400


class NotFound(DomainError):
    """The requested thing does not exist."""

    prefix = "NOT_FOUND"
    status = 404


class Conflict(DomainError):
    """The request does not fit the present state; every transition that a state machine refuses raises it."""

    prefix = "CONFLICT"
    status = 409


class InvariantViolated(DomainError):
    """A change that the rules of an aggregate forbid, whatever its state."""

    prefix = "INVARIANT"
    status = 422


class ExternalFailure(DomainError):
    """An external system failed."""

    prefix = "EXTERNAL"
    status = 502


class Unauthorized(DomainError):
    """Who asks is not known. All such answers look alike; the reason is for our logs and never sent."""

    prefix = "UNAUTHORIZED"
    status = 401

    def __init__(self, code: str, *, korean: str, english: str, reason: str) -> None:
        super().__init__(code, korean=korean, english=english)
        self.reason = reason


class Forbidden(DomainError):
    """Who asks is known, and may not do this."""

    prefix = "FORBIDDEN"
    status = 403


class TooMany(DomainError):
    """Asked too often; `retry_after` says in how many seconds it may be asked again."""

    prefix = "TOO_MANY"
    status = 429

    def __init__(self, code: str, *, korean: str, english: str, retry_after: int) -> None:
        super().__init__(code, korean=korean, english=english)
        self.retry_after = retry_after


class Unavailable(DomainError):
    """Something of ours that the answer depends on cannot be asked now."""

    prefix = "UNAVAILABLE"
    status = 503
