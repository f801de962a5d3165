"""An address that is called over HTTP."""

from typing import Annotated

from pydantic import AnyHttpUrl, BeforeValidator


def _http_url(value: object) -> str:
    url = AnyHttpUrl(str(value))
    if url.username is not None or url.password is not None:
        # A password would be shown wherever the address is shown.
        raise ValueError("takes an address without a user name or password in it")
    return str(url).rstrip("/")


HttpUrl = Annotated[str, BeforeValidator(_http_url)]
