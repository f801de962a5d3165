"""The settings of the web server: REST API, console and metrics."""

import ipaddress
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator
from pydantic_settings import BaseSettings

from mustit_pipeline.settings.http_url import HttpUrl
from mustit_pipeline.settings.wrong_setting import WrongSetting

LOOPBACK = ("127.0.0.1", "::1")
YES, NO = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")


def listening_address(value: str) -> str:
    """An IP address of this host; localhost is one of them."""
    try:
        return str(ipaddress.ip_address("127.0.0.1" if value == "localhost" else value))
    except ValueError:
        raise WrongSetting(
            "takes an IP address of this host, such as 127.0.0.1 or 0.0.0.0",
            korean="127.0.0.1이나 0.0.0.0 같은 이 호스트의 IP 주소여야 합니다",
        ) from None


def _proxies(value: str) -> str:
    """The addresses in the one form that the server takes; a plain yes is a proxy on this host."""
    said = value.strip().lower()
    if said in NO:
        return ""
    if said in YES:
        return ",".join(LOOPBACK)
    try:
        return ",".join(str(ipaddress.ip_network(part.strip())) for part in said.split(","))
    except ValueError:
        raise WrongSetting(
            "takes yes, or the proxy's addresses: 10.0.0.5,10.1.0.0/16",
            korean="yes 또는 프록시의 주소여야 합니다: 10.0.0.5,10.1.0.0/16",
        ) from None


def _file(value: Path) -> Path:
    if not value.is_file():
        raise WrongSetting("there is no file at this path", korean="이 경로에 파일이 없습니다")
    return value


class ApiSettings(BaseSettings):
    """The settings of the web server."""

    api_port: int = Field(8000, ge=1, le=65535, description="Port of REST API, console and metrics")
    api_host: Annotated[str, AfterValidator(listening_address)] = Field(
        "127.0.0.1",
        description="Address that they listen on; any but this host's own needs API_TLS_CERT or API_BEHIND_PROXY",
    )
    api_tls_cert: Annotated[Path, AfterValidator(_file)] | None = Field(
        None, description="Certificate chain (PEM) for TLS; needs API_TLS_KEY"
    )
    api_tls_key: Annotated[Path, AfterValidator(_file)] | None = Field(None, description="Its private key (PEM)")
    api_behind_proxy: Annotated[str, AfterValidator(_proxies)] = Field(
        "",
        description="A proxy does TLS: `yes` for one on this host, or its addresses; their X-Forwarded headers count",
    )
    console_url: HttpUrl | None = Field(
        None,
        description="Address at which people open the console, for links from Dagster; without it that of this host",
    )
    console_images: bool = Field(
        False,
        description="Show pictures of products in the console: browsers then ask the marketplace's servers for them",
    )

    @model_validator(mode="after")
    def _safe_address(self) -> "ApiSettings":
        if (self.api_tls_cert is None) != (self.api_tls_key is None):
            raise WrongSetting(
                "MUSTIT_API_TLS_CERT and MUSTIT_API_TLS_KEY: set both or neither",
                korean="MUSTIT_API_TLS_CERT와 MUSTIT_API_TLS_KEY는 둘 다 설정하거나 둘 다 비워야 합니다",
            )
        loopback = ipaddress.ip_address(self.api_host).is_loopback
        if not loopback and self.api_tls_cert is None and not self.api_behind_proxy:
            raise WrongSetting(
                f"MUSTIT_API_HOST is {self.api_host}, which others can reach: set MUSTIT_API_TLS_CERT and "
                "MUSTIT_API_TLS_KEY, or MUSTIT_API_BEHIND_PROXY where a proxy does TLS",
                korean=f"MUSTIT_API_HOST {self.api_host}은(는) 다른 호스트에서 접근할 수 있습니다. "
                "MUSTIT_API_TLS_CERT와 MUSTIT_API_TLS_KEY를, "
                "또는 프록시가 TLS를 처리하면 MUSTIT_API_BEHIND_PROXY를 설정하세요",
            )
        return self

    @property
    def api_is_https(self) -> bool:
        """Whether browsers reach the server by HTTPS, so that cookies are for HTTPS only."""
        return self.api_tls_cert is not None or bool(self.api_behind_proxy)

    @property
    def api_address(self) -> str:
        """Where a browser on this host finds the server."""
        host = "127.0.0.1" if self.api_host in ("0.0.0.0", "::") else self.api_host
        scheme = "https" if self.api_tls_cert is not None else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.api_port}"
