"""A token that travels in a header."""

from typing import Annotated

from pydantic import AfterValidator, SecretStr

from mustit_pipeline.settings.wrong_setting import WrongSetting


def _in_a_header(value: SecretStr) -> SecretStr:
    # A file that holds it usually ends with a line break.
    token = value.get_secret_value().strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise WrongSetting(
            "takes printable ASCII characters without a blank among them",
            korean="공백이 없는 출력 가능한 ASCII 문자여야 합니다",
        )
    return SecretStr(token)


BearerToken = Annotated[SecretStr, AfterValidator(_in_a_header)]
