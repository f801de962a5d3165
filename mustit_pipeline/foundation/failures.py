"""Failures of external calls as types: which of them a retry may fix, and the one reader of status codes."""

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import ClassVar, TypeAlias

from mustit_pipeline.domain.errors import ExternalFailure

RetryAfter: TypeAlias = float
"""Seconds from the moment the answer arrived; never negative, always finite, not capped."""

# A valid answer about another seller's product.
WRONG_SELLER = "EXTERNAL_WRONG_SELLER"
# A readable answer in which a field of MUSTIT_DRIFT_BLOCK changed.
BLOCKED_DRIFT = "EXTERNAL_BLOCKED_DRIFT"
_DELAY = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?")
# No cap in any practical sense (31,000 years); it keeps arithmetic on the value finite.
_LONGEST_DELAY = 1e12


class FetchError(ExternalFailure):
    """A call without a usable answer; `transient` says whether a retry may help."""

    transient: ClassVar[bool] = True

    def __init__(self, code: str, path: str, *, korean: str, english: str) -> None:
        super().__init__(code, korean=korean, english=english)
        self.path = path


class NetworkReason(StrEnum):
    """Where a call broke before a whole answer had arrived."""

    CONNECT = "CONNECT"
    CONNECT_TIMEOUT = "CONNECT_TIMEOUT"
    READ_TIMEOUT = "READ_TIMEOUT"
    DEADLINE = "DEADLINE"
    BROKEN = "BROKEN"


_NETWORK_TEXTS = {
    NetworkReason.CONNECT: ("연결할 수 없습니다", "no connection could be opened"),
    NetworkReason.CONNECT_TIMEOUT: ("연결 시간이 초과되었습니다", "opening the connection took too long"),
    NetworkReason.READ_TIMEOUT: ("응답 대기 시간이 초과되었습니다", "the answer stopped arriving"),
    NetworkReason.DEADLINE: ("전체 제한 시간이 초과되었습니다", "the whole call took too long"),
    NetworkReason.BROKEN: ("응답 도중 연결이 끊어졌습니다", "the connection broke before the answer was whole"),
}


class NetworkFailure(FetchError):
    """No complete answer arrived; `answered` says whether a part of it did, `server` names the address."""

    def __init__(self, path: str, reason: NetworkReason, *, answered: bool = False, server: str = "") -> None:
        korean, english = _NETWORK_TEXTS[reason]
        where = f"{path} at {server}" if server else path
        super().__init__(
            f"EXTERNAL_NETWORK_{reason}",
            path,
            korean=f"네트워크 오류: {korean} ({where})",
            english=f"Network failure: {english} ({where})",
        )
        self.reason = reason
        self.answered = answered

    @property
    def may_still_arrive(self) -> bool:
        """Whether the server may still receive and count the request: it was sent, and no answer arrived."""
        return not self.answered and self.reason not in (NetworkReason.CONNECT, NetworkReason.CONNECT_TIMEOUT)


class StatusFailure(FetchError):
    """An answer whose status code says that there is no result in it."""

    def __init__(self, code: str, path: str, status: int, *, korean: str, english: str) -> None:
        super().__init__(
            code, path, korean=f"{korean} (HTTP {status}, {path})", english=f"{english} ({status}, {path})"
        )


class ServerFailure(StatusFailure):
    """5xx: the server could not answer."""

    def __init__(self, path: str, status: int) -> None:
        super().__init__(
            "EXTERNAL_SERVER_ERROR",
            path,
            status,
            korean="서버가 오류를 응답했습니다",
            english="The server answered with an error",
        )


class Throttled(StatusFailure):
    """429: too many requests; `retry_after` is what the server asks for, if it says."""

    def __init__(self, path: str, retry_after: RetryAfter | None = None) -> None:
        super().__init__(
            "EXTERNAL_THROTTLED",
            path,
            429,
            korean="요청이 너무 많아 서버가 거부했습니다",
            english="The server refuses more requests for now",
        )
        self.retry_after = retry_after


class ThrottledUrl(Throttled):
    """429 for this URL to every agent, while other URLs are answered: not retried before the next crawl."""

    transient = False


class Unauthorized(StatusFailure):
    """401 or 403: the session is not accepted; a new token may help."""

    def __init__(self, path: str, status: int) -> None:
        super().__init__(
            "EXTERNAL_UNAUTHORIZED",
            path,
            status,
            korean="세션이 거부되었습니다",
            english="The session was not accepted",
        )


class NotFoundAnswer(StatusFailure):
    """404 or 410: it does not exist."""

    transient = False

    def __init__(self, path: str, status: int) -> None:
        super().__init__(
            "EXTERNAL_NOT_FOUND",
            path,
            status,
            korean="대상을 찾을 수 없다고 서버가 응답했습니다",
            english="The server says that it does not exist",
        )


class UnexpectedStatus(StatusFailure):
    """Any other status that is no success, redirects included: a retry does not help."""

    transient = False

    def __init__(self, path: str, status: int) -> None:
        super().__init__(
            "EXTERNAL_UNEXPECTED_STATUS",
            path,
            status,
            korean="예상하지 못한 응답 상태입니다",
            english="The answer has an unexpected status",
        )


class MalformedBody(FetchError):
    """A success with an invalid body: a failed fetch, never "no items"."""

    def __init__(
        self, source: str, reason: str, excerpt: str = "", path: str = "", document: bytes | None = None
    ) -> None:
        where = f"{source} {path}" if path else source
        super().__init__(
            "EXTERNAL_MALFORMED_BODY",
            path,
            korean=f"응답 본문을 해석할 수 없습니다 ({where}: {reason})",
            english=f"The answer cannot be understood ({where}: {reason})",
        )
        self.source = source
        self.reason = reason
        self.excerpt = excerpt[:200]
        # The body, if it is JSON: only its shape was refused, and a corrected parser may read it.
        self.document = document


class BodyTooLarge(FetchError):
    """A body beyond the limit, counted after decompression; the rest of it was not read."""

    transient = False

    def __init__(self, path: str, limit: int) -> None:
        super().__init__(
            "EXTERNAL_BODY_TOO_LARGE",
            path,
            korean=f"응답 본문이 제한({limit}바이트)을 초과했습니다 ({path})",
            english=f"The body is larger than the limit of {limit} bytes ({path})",
        )
        self.limit = limit


class ForbiddenHost(FetchError):
    """A URL outside the configured server; no connection was opened."""

    transient = False

    def __init__(self, path: str, host: str) -> None:
        super().__init__(
            "EXTERNAL_FORBIDDEN_HOST",
            path,
            korean=f"허용되지 않은 호스트입니다: {host} ({path})",
            english=f"Calls to this host are not allowed: {host} ({path})",
        )
        self.host = host


class SessionRefused(FetchError):
    """The marketplace gave no usable session token."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            "EXTERNAL_SESSION_REFUSED",
            path,
            korean=f"세션 토큰을 발급받지 못했습니다 ({path}: {reason})",
            english=f"No session token was issued ({path}: {reason})",
        )
        self.reason = reason


def failure_of_status(status: int, path: str, retry_after: str | None, now: datetime) -> FetchError | None:
    """What a status code means, or None for a success."""
    if status == 200:
        return None
    if 200 < status < 300:
        # 206 or 202, for example: the body may be partial or empty.
        return MalformedBody("answer", f"its status is {status}, not 200", path=path)
    if status == 429:
        return Throttled(path, parse_retry_after(retry_after, now))
    if status in (401, 403):
        return Unauthorized(path, status)
    if status in (404, 410):
        return NotFoundAnswer(path, status)
    if status == 408:
        # 408: the server says that the call timed out, so it is handled as a timeout.
        return NetworkFailure(path, NetworkReason.READ_TIMEOUT, answered=True)
    if 500 <= status < 600:
        return ServerFailure(path, status)
    return UnexpectedStatus(path, status)


def parse_retry_after(text: str | None, now: datetime) -> RetryAfter | None:
    """Seconds to wait: 0 for zero, negative or past values, None for none or garbage; the caller caps it."""
    if text is None:
        return None
    text = text.strip()
    if _DELAY.fullmatch(text):
        return min(max(0.0, float(text)), _LONGEST_DELAY)
    moment = parse_http_date(text)
    return None if moment is None else max(0.0, (moment - now).total_seconds())


def parse_http_date(text: str) -> datetime | None:
    """An HTTP or cookie date in any of its usual forms; without a zone it is UTC."""
    try:
        moment = parsedate_to_datetime(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
