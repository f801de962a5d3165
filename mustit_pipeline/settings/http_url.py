"""An address that is called over HTTP."""

from typing import Annotated

from pydantic import AnyHttpUrl, BeforeValidator

from mustit_pipeline.settings.wrong_setting import WrongSetting


def _http_url(value: object) -> str:
    url = AnyHttpUrl(str(value))
    if url.username is not None or url.password is not None:
        # A password would be shown wherever the address is shown.
        raise WrongSetting(
            "takes an address without a user name or password in it",
            korean="사용자 이름이나 비밀번호가 없는 주소여야 합니다",
        )
    return str(url).rstrip("/")


HttpUrl = Annotated[str, BeforeValidator(_http_url)]
