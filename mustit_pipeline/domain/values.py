"""Values that are valid from the moment they exist."""

import re
import unicodedata
from dataclasses import InitVar, dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import ClassVar, Self
from uuid import UUID, uuid4

from mustit_pipeline.domain.errors import ValidationFailed
from mustit_pipeline.domain.states import TaskType

LONGEST_SELLER_ID = 200
LARGEST_ITEM_NO = 2**63 - 1


def has_control_characters(text: str) -> bool:
    """Whether a text holds characters that break a header, a log line or UTF-8 (lone surrogates)."""
    # isprintable() is fast and true for almost every text; a printable text holds none of them.
    return not text.isprintable() and any(
        unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} for character in text
    )


@dataclass(frozen=True, slots=True, order=True)
class SellerId:
    """The marketplace's own id of a seller, in NFC so that one seller has one spelling."""

    value: str

    def __post_init__(self) -> None:
        if not self.value.strip():
            raise ValidationFailed(
                "VALIDATION_SELLER_ID_BLANK",
                korean="SellerId는 비어있을 수 없습니다",
                english="A SellerId cannot be blank",
            )
        # Three dots in a row mean a range of partition keys to Dagster; one or two alone are steps through a path.
        if has_control_characters(self.value) or "..." in self.value or self.value in (".", ".."):
            raise ValidationFailed(
                "VALIDATION_SELLER_ID_CHARACTERS",
                korean="SellerId에는 제어 문자나 연속된 마침표 세 개를 사용할 수 없고, 마침표로만 이루어질 수 없습니다",
                english="A SellerId cannot contain control characters or three dots in a row, nor be dots alone",
            )
        object.__setattr__(self, "value", unicodedata.normalize("NFC", self.value))
        if len(self.value) > LONGEST_SELLER_ID:
            raise ValidationFailed(
                "VALIDATION_SELLER_ID_LENGTH",
                korean=f"SellerId는 {LONGEST_SELLER_ID}자를 넘을 수 없습니다",
                english=f"A SellerId has at most {LONGEST_SELLER_ID} characters",
            )

    def __str__(self) -> str:
        return self.value


class IntervalUnit(StrEnum):
    DAYS = "DAYS"
    HOURS = "HOURS"


@dataclass(frozen=True, slots=True)
class CrawlingInterval:
    """How often a seller is crawled: every 1–30 days or every 1–23 hours."""

    amount: int
    unit: IntervalUnit

    DEFAULT: ClassVar["CrawlingInterval"]

    def __post_init__(self) -> None:
        if self.unit is IntervalUnit.DAYS and not 1 <= self.amount <= 30:
            raise ValidationFailed(
                "VALIDATION_INTERVAL_DAYS",
                korean="크롤링 주기는 1-30일 사이여야 합니다",
                english="A crawling interval is 1-30 days",
            )
        if self.unit is IntervalUnit.HOURS and not 1 <= self.amount <= 23:
            raise ValidationFailed(
                "VALIDATION_INTERVAL_HOURS",
                korean="크롤링 주기는 1-23시간 사이여야 합니다",
                english="A crawling interval is 1-23 hours",
            )

    @classmethod
    def days(cls, amount: int) -> "CrawlingInterval":
        """Every so many days."""
        return cls(amount, IntervalUnit.DAYS)

    @classmethod
    def hours(cls, amount: int) -> "CrawlingInterval":
        """Every so many hours."""
        return cls(amount, IntervalUnit.HOURS)

    @classmethod
    def parse(cls, text: str) -> "CrawlingInterval":
        """Read `7d` or `6h`."""
        match = re.fullmatch(r"([0-9]{1,4})([dh])", text)
        if match is None:
            raise ValidationFailed(
                "VALIDATION_INTERVAL_FORMAT",
                korean="크롤링 주기는 1d 또는 6h 형식이어야 합니다",
                english="A crawling interval is written like 1d or 6h",
            )
        return cls(int(match[1]), IntervalUnit.DAYS if match[2] == "d" else IntervalUnit.HOURS)

    @property
    def expression(self) -> str:
        """The interval as EventBridge writes it."""
        unit = self.unit.lower().removesuffix("s") if self.amount == 1 else self.unit.lower()
        return f"rate({self.amount} {unit})"

    @property
    def timedelta(self) -> timedelta:
        """The interval as a duration."""
        return timedelta(days=self.amount) if self.unit is IntervalUnit.DAYS else timedelta(hours=self.amount)

    def __str__(self) -> str:
        return f"{self.amount}{'d' if self.unit is IntervalUnit.DAYS else 'h'}"


CrawlingInterval.DEFAULT = CrawlingInterval.days(1)


@dataclass(frozen=True, slots=True, order=True)
class ItemNo:
    """The marketplace's number of a product."""

    value: int

    def __post_init__(self) -> None:
        if self.value <= 0:
            raise ValidationFailed(
                "VALIDATION_ITEM_NO_POSITIVE", korean="ItemNo는 양수여야 합니다", english="An ItemNo is positive"
            )
        if self.value > LARGEST_ITEM_NO:
            raise ValidationFailed(
                "VALIDATION_ITEM_NO_LARGE", korean="ItemNo가 너무 큽니다", english="The ItemNo is too large"
            )

    def __str__(self) -> str:
        return str(self.value)


_PRODUCT_PATHS = {
    TaskType.PRODUCT_DETAIL: (
        "VALIDATION_REQUEST_URL_PRODUCT_DETAIL",
        "/item/{itemNo}/detail/top",
        re.compile(r"/item/[0-9]+/detail/top\Z"),
    ),
    TaskType.PRODUCT_OPTION: (
        "VALIDATION_REQUEST_URL_PRODUCT_OPTION",
        "/auction_products/{itemNo}/options",
        re.compile(r"/auction_products/[0-9]+/options\Z"),
    ),
}


@dataclass(frozen=True, slots=True)
class RequestUrl:
    """The URL of one crawl task, checked against its task type."""

    value: str
    task_type: TaskType
    listing_segment: InitVar[str] = "/searchmini-shop-search"

    def __post_init__(self, listing_segment: str) -> None:
        if not self.value.strip():
            raise ValidationFailed(
                "VALIDATION_REQUEST_URL_BLANK",
                korean="RequestUrl은 비어있을 수 없습니다",
                english="A RequestUrl cannot be blank",
            )
        # Only the path is checked: the same words in a query would fetch something else.
        path = re.split(r"[?#]", self.value, maxsplit=1)[0]
        if self.task_type is TaskType.MINISHOP:
            if listing_segment not in path:
                raise ValidationFailed(
                    "VALIDATION_REQUEST_URL_MINISHOP",
                    korean=f"MINISHOP URL은 {listing_segment} 패턴을 포함해야 합니다",
                    english=f"A MINISHOP URL contains {listing_segment}",
                )
            return
        code, shape, pattern = _PRODUCT_PATHS[self.task_type]
        if pattern.search(path) is None:
            raise ValidationFailed(
                code,
                korean=f"{self.task_type} URL은 {shape} 패턴이어야 합니다",
                english=f"A {self.task_type} URL looks like {shape}",
            )

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Token:
    """A marketplace session token; logs and reprs show `***`, only `.value` holds the text."""

    value: str = field(repr=False)

    def __post_init__(self) -> None:
        if not self.value.strip():
            raise ValidationFailed(
                "VALIDATION_TOKEN_BLANK", korean="Token은 비어있을 수 없습니다", english="A Token cannot be blank"
            )
        # It is sent in a header: a line break would forge another header.
        if has_control_characters(self.value):
            raise ValidationFailed(
                "VALIDATION_TOKEN_CHARACTERS",
                korean="Token에는 제어 문자를 사용할 수 없습니다",
                english="A Token cannot contain control characters",
            )

    def __str__(self) -> str:
        return "Token(***)"

    __repr__ = __str__


@dataclass(frozen=True, slots=True, init=False)
class UuidValue:
    """An id of our own; ids of different things are never equal."""

    value: UUID

    def __init__(self, value: UUID | str) -> None:
        object.__setattr__(self, "value", value if isinstance(value, UUID) else self._read(value))

    @classmethod
    def new(cls) -> Self:
        """A fresh id."""
        return cls(uuid4())

    @classmethod
    def _read(cls, text: str) -> UUID:
        try:
            value = UUID(text)
        except ValueError:
            value = None
        # UUID() also takes braces, urn: and stray hyphens, which would give one id many spellings.
        if value is None or str(value) != text.lower():
            raise ValidationFailed(
                "VALIDATION_UUID",
                korean=f"{cls.__name__}는 UUID 형식이어야 합니다",
                english=f"A {cls.__name__} is a UUID",
            )
        return value

    def __str__(self) -> str:
        return str(self.value)


class TaskId(UuidValue):
    __slots__ = ()


class UserAgentId(UuidValue):
    __slots__ = ()


class ProductId(UuidValue):
    __slots__ = ()


class OutboxId(UuidValue):
    __slots__ = ()


class ScheduleId(UuidValue):
    __slots__ = ()


class ExecutionId(UuidValue):
    __slots__ = ()
