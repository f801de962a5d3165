"""What can be wrong with the lake's storage, and whether a retry may help."""

from collections.abc import Generator
from contextlib import contextmanager

from mustit_pipeline.domain.errors import ExternalFailure

# What S3 says, as pyarrow repeats it, when asking again brings the same.
REFUSALS = (
    "ACCESS_DENIED",
    "INVALID_ACCESS_KEY_ID",
    "INVALID_CLIENT_TOKEN_ID",
    "NO_SUCH_BUCKET",
    "PERMANENT_REDIRECT",
    "SIGNATURE_DOES_NOT_MATCH",
)


# A name that something else has, or that is not ours, or not there.
WRONG_NAMES = (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError, PermissionError)


class LakeRefused(ExternalFailure):
    """A file of the lake cannot be written or read, and a retry does not help."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(
            "EXTERNAL_LAKE_REFUSED",
            korean=f"데이터 레이크 파일을 사용할 수 없습니다 ({address}: {reason})",
            english=f"{address} cannot be used; look at MUSTIT_LAKE_URI, MUSTIT_AWS_ENDPOINT_URL and the AWS_ "
            f"variables of the process that does the runs: {reason}",
        )


class LakeUnreachable(ExternalFailure):
    """A file of the lake cannot be written or read for now."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(
            "EXTERNAL_LAKE_UNREACHABLE",
            korean=f"데이터 레이크에 연결할 수 없습니다 ({address}: {reason})",
            english=f"{address} cannot be reached: {reason}",
        )


@contextmanager
def lake_failures(address: str) -> Generator[None]:
    """Turn what a file system says into one of the two failures."""
    try:
        yield
    except WRONG_NAMES as error:
        raise LakeRefused(address, str(error)) from None
    except OSError as error:
        refused = any(f"AWS Error {refusal} " in str(error) for refusal in REFUSALS)
        raise (LakeRefused if refused else LakeUnreachable)(address, str(error)) from None
