"""Access to AWS: clients created on demand, and errors as failures that a retry may fix or not."""

from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

from mustit_pipeline.domain.errors import ExternalFailure
from mustit_pipeline.settings import Settings

CONNECT_SECONDS, READ_SECONDS, TRIES = 3, 5, 2
LONGEST_REASON = 300
# 4xx errors that a retry may fix.
PASSING = {
    "InternalException",
    "InternalFailure",
    "ConcurrentModificationException",
    "KmsThrottled",
    "OverLimit",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "RequestTimeout",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "TooManyRequestsException",
}


class AwsRefused(ExternalFailure):
    """AWS refuses, and a retry does not help; `answer` is AWS's error code, if it answered."""

    def __init__(self, where: str, reason: str, answer: str | None = None) -> None:
        super().__init__(
            "EXTERNAL_AWS_REFUSED",
            korean=f"AWS가 요청을 거부했습니다 ({where}: {reason})",
            english=f"AWS refuses {where}; look at its name, at MUSTIT_AWS_ENDPOINT_URL and at the AWS_ variables of "
            f"this process: {reason}",
        )
        self.answer = answer


class AwsUnreachable(ExternalFailure):
    """AWS does not answer, or refuses only for now."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(
            "EXTERNAL_AWS_UNREACHABLE",
            korean=f"AWS에 연결할 수 없습니다 ({where}: {reason})",
            english=f"{where} cannot be reached: {reason}",
        )


@cache
def _descriptions() -> Any:
    """Of AWS's services, read once in a process: that takes a tenth of a second, and each queue has a client."""
    return import_module("botocore.loaders").create_loader()


def aws_client(settings: Settings, service: str) -> Any:
    """A client of one service; the usual AWS_ variables set credentials and region."""
    config = import_module("botocore.config")
    with aws_failures(service):
        session = import_module("botocore.session").Session()
        session.register_component("data_loader", _descriptions())
        return session.create_client(
            service,
            endpoint_url=settings.aws_endpoint_url,
            config=config.Config(
                connect_timeout=CONNECT_SECONDS,
                read_timeout=READ_SECONDS,
                retries={"total_max_attempts": TRIES, "mode": "standard"},
            ),
        )


@contextmanager
def aws_failures(where: str) -> Generator[None]:
    """Turn errors of a call into one of the two failures; `where` names the resource."""
    errors, parsers = import_module("botocore.exceptions"), import_module("botocore.parsers")
    network = (
        errors.HTTPClientError,
        errors.ConnectionError,
        errors.CredentialRetrievalError,
        errors.MetadataRetrievalError,
        parsers.ResponseParserError,
    )
    try:
        yield
    except errors.ClientError as error:
        raise failure_of_answer(where, error.response) from None
    except network as error:
        raise AwsUnreachable(where, _short(str(error))) from None
    except (errors.BotoCoreError, ValueError) as error:
        # No credentials, no region, or an invalid parameter or endpoint.
        raise AwsRefused(where, _short(str(error))) from None


def failure_of_answer(where: str, answer: dict[str, Any]) -> AwsRefused | AwsUnreachable:
    """The failure for an error answer of AWS."""
    code = str(answer.get("Error", {}).get("Code", "unknown"))
    reason = _short(f"{code}: {answer.get('Error', {}).get('Message', '')}")
    passing = code in PASSING or answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 500) >= 500
    return AwsUnreachable(where, reason) if passing else AwsRefused(where, reason, code)


def _short(text: str) -> str:
    # PostgreSQL stores neither lone surrogates nor NUL.
    return " ".join(text.split())[:LONGEST_REASON].encode(errors="replace").decode().replace("\0", "\ufffd")
