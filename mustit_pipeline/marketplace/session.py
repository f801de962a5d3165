"""Session tokens: how they are issued, and the headers of a request."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from mustit_pipeline.domain.values import Token
from mustit_pipeline.foundation.failures import SessionRefused, parse_http_date

if TYPE_CHECKING:
    from mustit_pipeline.marketplace.client import MarketplaceClient

USUAL_LIFETIME = timedelta(hours=2)
# Whatever a cookie says: so a rotated-out key is needed for no longer than a day.
LONGEST_LIFETIME = timedelta(days=1)

# The characters that RFC 6265 allows in a cookie's value: it is sent in headers, where others could inject.
_COOKIE_VALUE = re.compile(r"[!#-+\--:<-\[\]-~]+")
_SECONDS = re.compile(r"-?[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Session:
    """A token and its cookies, valid for `lifetime` until `expires_at`; only headers() shows them."""

    token: Token = field(repr=False)
    nid: str = field(repr=False)
    mustit_uid: str = field(repr=False)
    expires_at: datetime
    lifetime: timedelta = USUAL_LIFETIME

    @property
    def issued_at(self) -> datetime:
        """When it was requested."""
        return self.expires_at - self.lifetime

    def headers(self, user_agent: str) -> dict[str, str]:
        """The headers of a request of this session."""
        headers = {"User-Agent": user_agent, "Authorization": f"Bearer {self.token.value}"}
        if self.nid and self.mustit_uid:
            headers["Cookie"] = f"nid={self.nid}; mustit_uid={self.mustit_uid}"
        return headers


async def issue_session(client: "MarketplaceClient", user_agent: str, now: datetime) -> Session:
    """A new session from the marketplace's front page, or SessionRefused."""
    answer = await client.call(client.endpoints.session(), {"User-Agent": user_agent, "Accept": "text/html"})
    return read_session(answer.set_cookies, now)


def read_session(set_cookies: Iterable[str], now: datetime) -> Session:
    """The session in an answer's Set-Cookie headers; if a name occurs twice, the last cookie counts."""
    cookies: dict[str, tuple[str, dict[str, str]]] = {}
    for header in set_cookies:
        pair, *attributes = header.split(";")
        name, _, value = pair.partition("=")
        value = value.strip()
        if len(value) > 1 and value[0] == value[-1] == '"':
            value = value[1:-1]
        named = (attribute.partition("=") for attribute in attributes)
        cookies[name.strip()] = value, {key.strip().lower(): text.strip() for key, _, text in named}
    if "token" not in cookies:
        raise SessionRefused("/", "there is no cookie named token")
    token, attributes = cookies["token"]
    if not _COOKIE_VALUE.fullmatch(token):
        raise SessionRefused("/", "the cookie named token is blank or not a cookie value")
    lifetime = _lifetime(attributes, now)
    if lifetime <= timedelta(0):
        raise SessionRefused("/", "the cookie named token is deleted, not set")
    return Session(
        token=Token(token),
        nid=_companion(cookies, "nid", now),
        mustit_uid=_companion(cookies, "mustit_uid", now),
        expires_at=now + lifetime,
        lifetime=lifetime,
    )


def _companion(cookies: dict[str, tuple[str, dict[str, str]]], name: str, now: datetime) -> str:
    value, attributes = cookies.get(name, ("", {}))
    return value if _COOKIE_VALUE.fullmatch(value) and _lifetime(attributes, now) > timedelta(0) else ""


def _lifetime(attributes: dict[str, str], now: datetime) -> timedelta:
    """Max-Age, else Expires, else two hours; zero or negative if the server deletes it, and at most a day."""
    max_age = attributes.get("max-age", "").strip('"')
    if _SECONDS.fullmatch(max_age):
        return timedelta(seconds=max(0, min(int(max_age), LONGEST_LIFETIME.total_seconds())))
    expires = parse_http_date(attributes.get("expires", "").strip('"'))
    return USUAL_LIFETIME if expires is None else min(expires - now, LONGEST_LIFETIME)
