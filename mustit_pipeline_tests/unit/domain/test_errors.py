"""Errors: their classes, and the list of codes that clients may rely on."""

import ast
import re
from pathlib import Path

import pytest

from mustit_pipeline import domain
from mustit_pipeline.domain.errors import (
    Conflict,
    DomainError,
    ExternalFailure,
    Forbidden,
    InvariantViolated,
    NotFound,
    TooMany,
    Unauthorized,
    Unavailable,
    ValidationFailed,
)

CLASSES = [
    (ValidationFailed, "VALIDATION", 400),
    (NotFound, "NOT_FOUND", 404),
    (Conflict, "CONFLICT", 409),
    (InvariantViolated, "INVARIANT", 422),
    (ExternalFailure, "EXTERNAL", 502),
    (Forbidden, "FORBIDDEN", 403),
    (Unavailable, "UNAVAILABLE", 503),
]

# Clients branch on these: adding one is free, renaming or removing one breaks them.
STABLE_CODES = {
    "CONFLICT_AGENT_ALREADY_BLOCKED",
    "CONFLICT_AGENT_NOT_BLOCKED",
    "CONFLICT_CHANGE_HOLD_ENDED",
    "CONFLICT_DELETION_HOLD_DECIDED",
    "CONFLICT_EXECUTION_CANCEL",
    "CONFLICT_EXECUTION_PAUSE",
    "CONFLICT_EXECUTION_RESUME",
    "CONFLICT_SCHEDULE_ALREADY_ACTIVE",
    "CONFLICT_SCHEDULE_ALREADY_FAILED",
    "CONFLICT_SCHEDULE_ALREADY_INACTIVE",
    "CONFLICT_SELLER_ALREADY_ACTIVE",
    "CONFLICT_SELLER_ALREADY_INACTIVE",
    "CONFLICT_AGENT_RECOVER",
    "INVARIANT_AGENT_RESTING",
    "CONFLICT_AGENT_SUSPEND",
    "CONFLICT_EXECUTION_COMPLETE",
    "CONFLICT_EXECUTION_FAIL",
    "CONFLICT_EXECUTION_START",
    "INVARIANT_EXECUTION_UNFINISHED",
    "CONFLICT_OUTBOX_COMPLETE",
    "INVARIANT_OUTBOX_EVENT_TYPE",
    "CONFLICT_OUTBOX_FAIL",
    "INVARIANT_OUTBOX_PERMANENT",
    "CONFLICT_OUTBOX_RELEASE",
    "INVARIANT_OUTBOX_RETRIES_EXCEEDED",
    "CONFLICT_OUTBOX_RETRY",
    "CONFLICT_OUTBOX_SEND",
    "CONFLICT_OUTBOX_SUPERSEDE",
    "INVARIANT_PRODUCT_DELETED",
    "INVARIANT_PRODUCT_INCOMPLETE",
    "INVARIANT_PRODUCT_NOT_ABSENT",
    "INVARIANT_PRODUCT_NOT_DELETED",
    "INVARIANT_PRODUCT_UNPUBLISHED",
    "CONFLICT_RAW_FAIL",
    "CONFLICT_RAW_PROCESS",
    "CONFLICT_RAW_REPLAY",
    "CONFLICT_RAW_RETRY",
    "CONFLICT_SCHEDULE_INTERVAL",
    "CONFLICT_TASK_CANCEL",
    "CONFLICT_TASK_COMPLETE",
    "CONFLICT_TASK_EXHAUST",
    "CONFLICT_TASK_FAIL",
    "INVARIANT_TASK_PERMANENT",
    "CONFLICT_TASK_PUBLISH",
    "CONFLICT_TASK_RELEASE",
    "CONFLICT_TASK_REPUBLISH",
    "INVARIANT_TASK_RETRIES_EXCEEDED",
    "CONFLICT_TASK_RETRY",
    "CONFLICT_TASK_START",
    "CONFLICT_TASK_WITHDRAW",
    "VALIDATION_CHANGE_TYPE",
    "VALIDATION_DURATION",
    "VALIDATION_EXECUTION_COUNT",
    "VALIDATION_ID",
    "VALIDATION_INTERVAL_DAYS",
    "VALIDATION_INTERVAL_FORMAT",
    "VALIDATION_INTERVAL_HOURS",
    "VALIDATION_ITEM_NO_LARGE",
    "VALIDATION_ITEM_NO_POSITIVE",
    "VALIDATION_KEY_NAME",
    "VALIDATION_OUTBOX_PAYLOAD",
    "VALIDATION_PASSWORD_LENGTH",
    "VALIDATION_PASSWORD_NAME",
    "VALIDATION_REQUEST_URL_BLANK",
    "VALIDATION_REQUEST_URL_MINISHOP",
    "VALIDATION_REQUEST_URL_PRODUCT_DETAIL",
    "VALIDATION_REQUEST_URL_PRODUCT_OPTION",
    "VALIDATION_SELLER_ID_BLANK",
    "VALIDATION_SELLER_ID_CHARACTERS",
    "VALIDATION_SELLER_ID_LENGTH",
    "VALIDATION_SELLER_NAME",
    "VALIDATION_SELLER_PRODUCT_COUNT",
    "VALIDATION_TIME",
    "VALIDATION_TOKEN_BLANK",
    "VALIDATION_TOKEN_CHARACTERS",
    "VALIDATION_USER_AGENT",
    "VALIDATION_USER_NAME",
    "VALIDATION_UUID",
}

CODE = re.compile(r"(?:VALIDATION|NOT_FOUND|CONFLICT|INVARIANT|EXTERNAL)_[A-Z0-9_]+")
SOURCES = sorted(Path(domain.__path__[0]).glob("*.py"))


def nodes() -> list[ast.AST]:
    return [node for path in SOURCES for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]


def literal_text(node: ast.expr) -> str:
    """The fixed part of a string or f-string."""
    values = node.values if isinstance(node, ast.JoinedStr) else [node]
    return "".join(v.value for v in values if isinstance(v, ast.Constant) and isinstance(v.value, str))


def test_the_codes_of_the_domain_are_the_stable_ones() -> None:
    constants = {n.value for n in nodes() if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    assert {text for text in constants if CODE.fullmatch(text)} == STABLE_CODES


def test_every_inline_error_has_a_korean_and_an_english_text() -> None:
    classes = {cls.__name__ for cls, _, _ in CLASSES}
    calls = [n for n in nodes() if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id in classes]
    # A state machine has its texts in its table.
    raised = [call for call in calls if isinstance(call.args[0], ast.Constant)]
    assert len(raised) >= 20
    for call in raised:
        texts = {keyword.arg: literal_text(keyword.value) for keyword in call.keywords}
        assert re.search("[가-힣]", texts["korean"]), ast.unparse(call)
        assert re.search("[a-z]", texts["english"]), ast.unparse(call)
        assert not re.search("[가-힣]", texts["english"]), ast.unparse(call)


@pytest.mark.parametrize(("cls", "prefix", "status"), CLASSES)
def test_an_error_carries_code_status_and_both_messages(cls: type[DomainError], prefix: str, status: int) -> None:
    error = cls(f"{prefix}_SELLER", korean="셀러", english="Seller")
    assert (error.code, error.status, error.korean, error.english) == (f"{prefix}_SELLER", status, "셀러", "Seller")
    assert str(error) == f"Seller [{prefix}_SELLER]"


@pytest.mark.parametrize(
    ("language", "text"),
    [("ko", "셀러"), ("en", "Seller"), ("en-US", "Seller"), ("EN", "Seller"), ("fr", "셀러"), ("", "셀러")],
)
def test_the_message_is_korean_unless_english_is_asked_for(language: str, text: str) -> None:
    error = NotFound("NOT_FOUND_SELLER", korean="셀러", english="Seller")
    assert error.message(language) == text
    assert error.message() == "셀러"


@pytest.mark.parametrize(("cls", "prefix", "_status"), CLASSES)
def test_a_code_of_another_class_is_refused(cls: type[DomainError], prefix: str, _status: int) -> None:
    others = [other for _, other, _ in CLASSES if other != prefix]
    for code in [*(f"{other}_SELLER" for other in others), prefix, f"{prefix}_", f"{prefix}_seller", ""]:
        with pytest.raises(ValueError, match="is not a code of"):
            cls(code, korean="셀러", english="Seller")


def test_a_refusal_keeps_its_reason_out_of_what_is_said() -> None:
    refused = Unauthorized("UNAUTHORIZED_TOKEN", korean="로그인", english="Log in", reason="expired")
    assert (refused.status, refused.reason) == (401, "expired")
    assert "expired" not in f"{refused} {refused.message('en')} {refused.message('ko')}"


def test_who_asks_too_often_is_told_when_to_ask_again() -> None:
    refused = TooMany("TOO_MANY_LOGINS", korean="잠시 후", english="Later", retry_after=7)
    assert (refused.status, refused.retry_after) == (429, 7)


def test_the_base_class_is_never_raised_itself() -> None:
    with pytest.raises(ValueError, match="is not a code of DomainError"):
        DomainError("_SELLER", korean="셀러", english="Seller")
