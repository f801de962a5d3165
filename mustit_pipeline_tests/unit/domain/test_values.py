"""Value objects: what they accept, what they refuse and what they say then."""

import unicodedata
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustit_pipeline.domain.errors import ValidationFailed
from mustit_pipeline.domain.states import TaskType
from mustit_pipeline.domain.values import (
    CrawlingInterval,
    ExecutionId,
    IntervalUnit,
    ItemNo,
    OutboxId,
    ProductId,
    RequestUrl,
    ScheduleId,
    SellerId,
    TaskId,
    Token,
    UserAgentId,
    UuidValue,
)

ID = "00000000-0000-4000-8000-00000000000a"
BASE = "https://m.web.mustit.co.kr"
LISTING = f"{BASE}/mustit-api/facade-api/v1/searchmini-shop-search?sellerId=dmont&pageNo=0&pageSize=500&order=LATEST"
DETAIL = f"{BASE}/mustit-api/facade-api/v1/item/118005032/detail/top"
OPTIONS = f"{BASE}/mustit-api/legacy-api/v1/auction_products/118005032/options"


def refusal(make: Callable[[], object]) -> ValidationFailed:
    with pytest.raises(ValidationFailed) as refused:
        make()
    return refused.value


@pytest.mark.parametrize("text", ["dmont", " 앞뒤 공백 ", "한글셀러", "a/b?c", "x" * 200, "👜"])
def test_a_seller_id_is_kept_as_it_is(text: str) -> None:
    assert SellerId(text).value == text
    assert str(SellerId(text)) == text


@pytest.mark.parametrize("text", ["", " ", "\t\n", "\u3000"])
def test_a_blank_seller_id_is_refused(text: str) -> None:
    error = refusal(lambda: SellerId(text))
    assert error.code == "VALIDATION_SELLER_ID_BLANK"
    assert error.korean == "SellerId는 비어있을 수 없습니다"


@pytest.mark.parametrize("character", ["\x00", "\n", "\r", "\x1b", "\x7f", "\x85", "\u2028", "\ud800"])
def test_a_seller_id_with_control_characters_is_refused(character: str) -> None:
    assert refusal(lambda: SellerId(f"dm{character}ont")).code == "VALIDATION_SELLER_ID_CHARACTERS"


@pytest.mark.parametrize("dots", [".", "..", "a...b"])
def test_a_seller_id_that_means_something_else_in_a_path_or_a_range_is_refused(dots: str) -> None:
    assert refusal(lambda: SellerId(dots)).code == "VALIDATION_SELLER_ID_CHARACTERS"


def test_a_seller_id_of_201_characters_is_refused() -> None:
    assert refusal(lambda: SellerId("x" * 201)).code == "VALIDATION_SELLER_ID_LENGTH"


def test_two_spellings_of_one_seller_id_are_one_seller() -> None:
    decomposed = unicodedata.normalize("NFD", "디몬트")
    assert decomposed != "디몬트"
    assert SellerId(decomposed) == SellerId("디몬트")
    assert len({SellerId(decomposed), SellerId("디몬트")}) == 1


def test_the_length_of_a_seller_id_is_counted_after_normalisation() -> None:
    assert SellerId(unicodedata.normalize("NFD", "각" * 200)).value == "각" * 200


@pytest.mark.parametrize("amount", [-1, 0, 31, 1000])
def test_an_interval_outside_1_to_30_days_is_refused(amount: int) -> None:
    error = refusal(lambda: CrawlingInterval.days(amount))
    assert error.code == "VALIDATION_INTERVAL_DAYS"
    assert error.korean == "크롤링 주기는 1-30일 사이여야 합니다"


@pytest.mark.parametrize("amount", [-1, 0, 24, 1000])
def test_an_interval_outside_1_to_23_hours_is_refused(amount: int) -> None:
    error = refusal(lambda: CrawlingInterval.hours(amount))
    assert error.code == "VALIDATION_INTERVAL_HOURS"
    assert error.korean == "크롤링 주기는 1-23시간 사이여야 합니다"


@pytest.mark.parametrize(
    ("interval", "expression", "text", "duration"),
    [
        (CrawlingInterval.days(1), "rate(1 day)", "1d", timedelta(days=1)),
        (CrawlingInterval.days(2), "rate(2 days)", "2d", timedelta(days=2)),
        (CrawlingInterval.days(7), "rate(7 days)", "7d", timedelta(days=7)),
        (CrawlingInterval.days(30), "rate(30 days)", "30d", timedelta(days=30)),
        (CrawlingInterval.hours(1), "rate(1 hour)", "1h", timedelta(hours=1)),
        (CrawlingInterval.hours(6), "rate(6 hours)", "6h", timedelta(hours=6)),
        (CrawlingInterval.hours(23), "rate(23 hours)", "23h", timedelta(hours=23)),
    ],
)
def test_an_interval_renders_in_every_form(
    interval: CrawlingInterval, expression: str, text: str, duration: timedelta
) -> None:
    assert (interval.expression, str(interval), interval.timedelta) == (expression, text, duration)
    assert CrawlingInterval.parse(text) == interval


@pytest.mark.parametrize("text", ["", "1", "d", "1m", "1 d", "-1d", "1.5d", "1D", "1d\n", "١d", "99999d"])
def test_an_unreadable_interval_is_refused(text: str) -> None:
    assert refusal(lambda: CrawlingInterval.parse(text)).code == "VALIDATION_INTERVAL_FORMAT"


@pytest.mark.parametrize(
    ("text", "code"),
    [("0d", "VALIDATION_INTERVAL_DAYS"), ("31d", "VALIDATION_INTERVAL_DAYS"), ("24h", "VALIDATION_INTERVAL_HOURS")],
)
def test_a_readable_interval_out_of_range_names_its_range(text: str, code: str) -> None:
    assert refusal(lambda: CrawlingInterval.parse(text)).code == code


def test_the_default_interval_is_one_day() -> None:
    assert CrawlingInterval(1, IntervalUnit.DAYS) == CrawlingInterval.DEFAULT


@given(st.integers(), st.sampled_from(IntervalUnit))
def test_an_interval_is_either_in_range_or_refused(amount: int, unit: IntervalUnit) -> None:
    try:
        duration = CrawlingInterval(amount, unit).timedelta
    except ValidationFailed:
        assert not 1 <= amount <= (30 if unit is IntervalUnit.DAYS else 23)
    else:
        assert timedelta(hours=1) <= duration <= timedelta(days=30)


@pytest.mark.parametrize("number", [1, 118005032, 2**63 - 1])
def test_a_positive_item_no_is_accepted(number: int) -> None:
    assert ItemNo(number).value == number
    assert str(ItemNo(number)) == str(number)


@pytest.mark.parametrize("number", [0, -1])
def test_an_item_no_that_is_not_positive_is_refused(number: int) -> None:
    error = refusal(lambda: ItemNo(number))
    assert (error.code, error.korean) == ("VALIDATION_ITEM_NO_POSITIVE", "ItemNo는 양수여야 합니다")


def test_an_item_no_that_no_database_column_holds_is_refused() -> None:
    assert refusal(lambda: ItemNo(2**63)).code == "VALIDATION_ITEM_NO_LARGE"


@pytest.mark.parametrize(
    ("url", "task_type"),
    [
        (LISTING, TaskType.MINISHOP),
        (DETAIL, TaskType.PRODUCT_DETAIL),
        (f"{DETAIL}?x=1#y", TaskType.PRODUCT_DETAIL),
        (OPTIONS, TaskType.PRODUCT_OPTION),
    ],
)
def test_a_request_url_of_its_type_is_accepted(url: str, task_type: TaskType) -> None:
    assert RequestUrl(url, task_type).value == url
    assert str(RequestUrl(url, task_type)) == url


@pytest.mark.parametrize("task_type", TaskType)
@pytest.mark.parametrize("url", ["", "  "])
def test_a_blank_request_url_is_refused(url: str, task_type: TaskType) -> None:
    error = refusal(lambda: RequestUrl(url, task_type))
    assert (error.code, error.korean) == ("VALIDATION_REQUEST_URL_BLANK", "RequestUrl은 비어있을 수 없습니다")


@pytest.mark.parametrize("url", [DETAIL, OPTIONS, f"{BASE}/other?next=/searchmini-shop-search"])
def test_a_listing_url_without_the_listing_path_is_refused(url: str) -> None:
    error = refusal(lambda: RequestUrl(url, TaskType.MINISHOP))
    assert error.code == "VALIDATION_REQUEST_URL_MINISHOP"
    assert error.korean == "MINISHOP URL은 /searchmini-shop-search 패턴을 포함해야 합니다"


def test_the_listing_path_can_be_configured() -> None:
    url = f"{BASE}/v2/shop-items?sellerId=dmont"
    assert RequestUrl(url, TaskType.MINISHOP, "/shop-items").value == url
    error = refusal(lambda: RequestUrl(LISTING, TaskType.MINISHOP, listing_segment="/shop-items"))
    assert error.korean == "MINISHOP URL은 /shop-items 패턴을 포함해야 합니다"


@pytest.mark.parametrize(
    ("url", "task_type"),
    [
        (LISTING, TaskType.PRODUCT_DETAIL),
        (OPTIONS, TaskType.PRODUCT_DETAIL),
        (f"{BASE}/item/abc/detail/top", TaskType.PRODUCT_DETAIL),
        (f"{BASE}/item//detail/top", TaskType.PRODUCT_DETAIL),
        (f"{DETAIL}/more", TaskType.PRODUCT_DETAIL),
        (f"{DETAIL}\n", TaskType.PRODUCT_DETAIL),
        (f"{BASE}/?u=/item/1/detail/top", TaskType.PRODUCT_DETAIL),
        (LISTING, TaskType.PRODUCT_OPTION),
        (DETAIL, TaskType.PRODUCT_OPTION),
        (f"{BASE}/auction_products/1x/options", TaskType.PRODUCT_OPTION),
        (f"{BASE}/auction_products/1/option", TaskType.PRODUCT_OPTION),
    ],
)
def test_a_product_url_of_another_shape_is_refused(url: str, task_type: TaskType) -> None:
    error = refusal(lambda: RequestUrl(url, task_type))
    assert error.code == f"VALIDATION_REQUEST_URL_{task_type}"
    assert error.korean.startswith(f"{task_type} URL은 ")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "VALIDATION_TOKEN_BLANK"),
        (" ", "VALIDATION_TOKEN_BLANK"),
        ("a\r\nX-Forged: 1", "VALIDATION_TOKEN_CHARACTERS"),
    ],
)
def test_a_token_that_cannot_be_sent_is_refused_without_showing_it(text: str, code: str) -> None:
    error = refusal(lambda: Token(text))
    assert error.code == code
    assert "X-Forged" not in str(error) + error.korean


def test_a_blank_token_is_refused_with_the_specified_words() -> None:
    assert refusal(lambda: Token(" ")).korean == "Token은 비어있을 수 없습니다"


def test_a_token_shows_its_value_only_where_it_is_asked_for() -> None:
    token = Token("s3cr3t")
    assert token.value == "s3cr3t"
    shown = f"{token} {token!r} {token!s} {[token]}"
    assert "s3cr3t" not in shown


IDS: list[type[UuidValue]] = [TaskId, UserAgentId, ProductId, OutboxId, ScheduleId, ExecutionId]


@pytest.mark.parametrize("cls", IDS)
def test_an_id_reads_a_uuid_and_its_text(cls: type[UuidValue]) -> None:
    assert cls(ID) == cls(UUID(ID)) == cls(ID.upper())
    assert cls(ID).value == UUID(ID)
    assert str(cls(ID)) == ID
    assert hash(cls(ID)) == hash(cls(ID.upper()))


@pytest.mark.parametrize("cls", IDS)
@pytest.mark.parametrize("text", ["", "1", "x" * 36, ID.replace("-", ""), f"{{{ID}}}", f"urn:uuid:{ID}", f"{ID} "])
def test_an_id_of_another_spelling_is_refused(cls: type[UuidValue], text: str) -> None:
    error = refusal(lambda: cls(text))
    assert error.code == "VALIDATION_UUID"
    assert cls.__name__ in error.korean
    assert cls.__name__ in error.english


@pytest.mark.parametrize("cls", IDS)
def test_a_new_id_is_different_each_time(cls: type[UuidValue]) -> None:
    first, second = cls.new(), cls.new()
    assert type(first) is cls
    assert first != second


def test_ids_of_different_things_are_never_equal() -> None:
    assert len({cls(ID) for cls in IDS}) == len(IDS)


@pytest.mark.parametrize(
    "value",
    [
        SellerId("dmont"),
        CrawlingInterval.DEFAULT,
        ItemNo(1),
        RequestUrl(DETAIL, TaskType.PRODUCT_DETAIL),
        Token("t"),
        TaskId(ID),
    ],
)
def test_a_value_can_be_neither_changed_nor_extended(value: Any) -> None:
    field = "amount" if isinstance(value, CrawlingInterval) else "value"
    with pytest.raises(FrozenInstanceError):
        setattr(value, field, "x")
    assert not hasattr(value, "__dict__")
    hash(value)
