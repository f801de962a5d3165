"""The console's cookies: out of reach for scripts and other sites, and for HTTPS alone where that is spoken."""

from dataclasses import dataclass
from enum import StrEnum

from fastapi import Response
from fastapi.requests import HTTPConnection


class Cookie(StrEnum):
    """What is kept in the browser."""

    SESSION = "mustit_session"
    LOGIN = "mustit_login"
    NOTICE = "mustit_notice"
    LANGUAGE = "mustit_language"
    THEME = "mustit_theme"


@dataclass(frozen=True, slots=True)
class Cookies:
    """Cookies of one server; under HTTPS their names tell the browser that no other host may set them."""

    https: bool

    def read(self, request: HTTPConnection, cookie: Cookie) -> str | None:
        """A cookie of a request."""
        return request.cookies.get(self._name(cookie))

    def set(self, response: Response, cookie: Cookie, value: str, *, seconds: int | None = None) -> None:
        """Give the browser a cookie; without a time it lasts until the browser is closed."""
        response.set_cookie(
            self._name(cookie), value, max_age=seconds, path="/", secure=self.https, httponly=True, samesite="lax"
        )

    def drop(self, response: Response, cookie: Cookie) -> None:
        """Take a cookie back."""
        response.delete_cookie(self._name(cookie), path="/", secure=self.https, httponly=True, samesite="lax")

    def _name(self, cookie: Cookie) -> str:
        return f"__Host-{cookie}" if self.https else cookie.value
