"""The base of all bodies: camelCase outside, unknown fields refused, times in UTC."""

from datetime import UTC, datetime
from typing import Annotated, Generic, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, WithJsonSchema
from pydantic.alias_generators import to_camel

T = TypeVar("T")


class Body(BaseModel):
    """What a client sends: a field that the route does not know is an error."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", strict=False, frozen=True)


class Answer(BaseModel):
    """What a client gets."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)


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


def _printable(value: str) -> str:
    if "\0" in value or any("\ud800" <= sign <= "\udfff" for sign in value):
        raise ValueError("contains characters that cannot be stored")
    return value


def _utc(value: datetime) -> datetime:
    try:
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError:
        # The first or the last day that there is, in another zone.
        return value.replace(tzinfo=UTC)


Text = Annotated[str, AfterValidator(_printable), WithJsonSchema({"type": "string", "pattern": "^[^\\u0000]*$"})]
Time = Annotated[
    datetime, AfterValidator(_utc), PlainSerializer(lambda value: _utc(value).isoformat(), return_type=str)
]
