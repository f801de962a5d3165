"""The base of all bodies: camelCase outside, unknown fields refused, times in UTC."""

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, Self, TypeVar

from pydantic import AfterValidator, AliasGenerator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer
from pydantic.alias_generators import to_camel

T = TypeVar("T")


class Body(BaseModel):
    """What a client sends: a field that the route does not know is an error."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", strict=False, frozen=True)


class Answer(BaseModel):
    """What a client gets; where a field is found in a row under another name, its alias says so."""

    # Outside only: a row would be asked for each field under its camelCase name first, which takes ten times as long.
    model_config = ConfigDict(
        alias_generator=AliasGenerator(serialization_alias=to_camel),
        populate_by_name=True,
        frozen=True,
        from_attributes=True,
    )

    @classmethod
    def of(cls, found: object) -> Self:
        """The answer about a row or an aggregate, field by field."""
        return cls.model_validate(found)

    def document(self) -> dict[str, Any]:
        """The answer as JSON has it."""
        return self.model_dump(mode="json", by_alias=True)

    @classmethod
    def document_of(cls, found: object) -> dict[str, Any]:
        """The same of a row or an aggregate."""
        return cls.of(found).document()


class Pages(Answer, Generic[T]):
    """One page of a list that is short enough to be counted."""

    content: list[T]
    page: int = Field(description="Number of this page, from 0", examples=[0])
    size: int = Field(examples=[20])
    total_elements: int = Field(examples=[1])
    total_pages: int = Field(examples=[1])


class CursorPage(Answer, Generic[T]):
    """One page of a list that may be very long: `nextCursor` asks for what follows."""

    content: list[T]
    size: int = Field(examples=[20])
    next_cursor: str | None = Field(description="For the next page; null on the last one", examples=["WyJkbW9udCIsMV0"])
    total_elements: int | None = Field(
        default=None, description="How many there are in all, where that is cheap to know", examples=[1000000]
    )
    total_is_estimate: bool = False


def _dated(value: object) -> object:
    """Pydantic would take any number, 1e9 too, for seconds or milliseconds since 1970."""
    if not isinstance(value, datetime) and not (isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\d", value)):
        raise ValueError("takes a time such as 2026-11-16T09:30:00+09:00")
    return value


def _utc(value: datetime) -> datetime:
    try:
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError:
        # The first or the last day that there is, in another zone.
        return value.replace(tzinfo=UTC)


def _written(value: object) -> object:
    return None if value is None else str(value)


def rounded(digits: int) -> AfterValidator:
    """For a number of an answer."""
    return AfterValidator(lambda value: round(value, digits))


# PostgreSQL stores any character but NUL.
Text = Annotated[str, Field(pattern=r"^[^\x00]*$")]
# A UUID or another id as its text.
Id = Annotated[str, BeforeValidator(_written)]
Rounded = Annotated[float, rounded(2)]
Time = Annotated[
    datetime,
    BeforeValidator(_dated),
    AfterValidator(_utc),
    PlainSerializer(lambda value: _utc(value).isoformat(), return_type=str),
]
