"""People and machines that may ask for something: their names, what they may do, and how logins are slowed."""

import re
import unicodedata
from dataclasses import dataclass, field
from enum import StrEnum

from mustit_pipeline.domain.errors import ValidationFailed

LONGEST_USER_NAME = 64
SHORTEST_PASSWORD, LONGEST_PASSWORD = 12, 256
# A shorter name is part of too many words to be looked for in a password.
NAME_IN_PASSWORD = 4
KEYS_PER_NAME = 2

# Failures that cost nothing, and the longest wait: of one account from one address, of an account from all addresses,
# of an address over all accounts.
FREE_FAILURES, FREE_OF_ACCOUNT, FREE_OF_ADDRESS = 2, 10, 20
LONGEST_WAIT, LONGEST_ACCOUNT_WAIT, LONGEST_ADDRESS_WAIT = 300.0, 60.0, 300.0


class Role(StrEnum):
    """What a person may do: a viewer reads, an admin changes too."""

    ADMIN = "admin"
    VIEWER = "viewer"

    def includes(self, needed: "Role") -> bool:
        """Whether this role may do what another one may."""
        return self is Role.ADMIN or self is needed


class Scope(StrEnum):
    """What an API key opens."""

    TRIGGER = "trigger"
    METRICS = "metrics"


class KeyState(StrEnum):
    """Whether a key opens something."""

    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"


class ActorKind(StrEnum):
    """Who made a change: a person over the API or the console, an API key, the command line, or the pipeline itself."""

    PERSON = "person"
    KEY = "key"
    CLI = "cli"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True, order=True)
class UserName:
    """A person's name for logging in; case and Unicode form make no difference."""

    value: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", unicodedata.normalize("NFKC", self.value).strip().casefold())
        if re.fullmatch(r"\w[\w.@+-]{0,63}", self.value) is None:
            raise ValidationFailed(
                "VALIDATION_USER_NAME",
                korean=f"사용자 이름은 글자나 숫자로 시작하는 1-{LONGEST_USER_NAME}자(글자, 숫자, .@+-_)여야 합니다",
                english=f"A user name is a letter or digit, and up to {LONGEST_USER_NAME} of those or . @ + - _ in all",
            )

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class KeyName:
    """What an API key is for; two active keys may share it while one replaces the other."""

    value: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", unicodedata.normalize("NFC", self.value).strip())
        if not 1 <= len(self.value) <= LONGEST_USER_NAME or not self.value.isprintable():
            raise ValidationFailed(
                "VALIDATION_KEY_NAME",
                korean=f"API 키 이름은 1-{LONGEST_USER_NAME}자의 출력 가능한 문자여야 합니다",
                english=f"An API key's name has 1-{LONGEST_USER_NAME} printable characters",
            )

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Password:
    """A password that may be set for a user; only `.value` shows it."""

    value: str = field(repr=False)
    user_name: UserName

    def __post_init__(self) -> None:
        # A person types the same word on two systems, and gets two sequences of code points.
        object.__setattr__(self, "value", unicodedata.normalize("NFC", self.value))
        if not SHORTEST_PASSWORD <= len(self.value) <= LONGEST_PASSWORD or re.search("[\ud800-\udfff]", self.value):
            raise ValidationFailed(
                "VALIDATION_PASSWORD_LENGTH",
                korean=f"비밀번호는 {SHORTEST_PASSWORD}-{LONGEST_PASSWORD}자여야 합니다",
                english=f"A password has {SHORTEST_PASSWORD}-{LONGEST_PASSWORD} characters",
            )
        name = self.user_name.value
        if len(name) >= NAME_IN_PASSWORD and name in unicodedata.normalize("NFKC", self.value).casefold():
            raise ValidationFailed(
                "VALIDATION_PASSWORD_NAME",
                korean="비밀번호에 사용자 이름을 넣을 수 없습니다",
                english="A password cannot contain the user's name",
            )

    def __str__(self) -> str:
        return "Password(***)"

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class FailedLogins:
    """How many logins failed lately, and how many seconds ago the last one did."""

    number: int
    seconds_ago: float


def login_wait(pair: FailedLogins, account: FailedLogins, address: FailedLogins, *, known_address: bool) -> float:
    """Seconds until a login is tried; 0 where that is now.

    The pair of account and address waits twice as long after each failure. Failures of the account from anywhere, and
    of the address with any account, slow all but a person at an address from which this account has logged in: an
    attack from elsewhere does not lock its owner out.
    """
    waits = [_left(pair, FREE_FAILURES, LONGEST_WAIT)]
    if not known_address:
        waits.append(_left(account, FREE_OF_ACCOUNT, LONGEST_ACCOUNT_WAIT))
        waits.append(_left(address, FREE_OF_ADDRESS, LONGEST_ADDRESS_WAIT))
    return max(waits)


def _left(failed: FailedLogins, free: int, longest: float) -> float:
    if failed.number <= free:
        return 0.0
    return max(0.0, min(longest, 2.0 ** min(failed.number - free, 60)) - failed.seconds_ago)
