"""Why a setting is refused, in English and in Korean."""

from pydantic_core import ErrorDetails


class WrongSetting(ValueError):
    """A value that a setting does not take; the texts say what it takes."""

    def __init__(self, english: str, *, korean: str) -> None:
        super().__init__(english)
        self.korean = korean


# Of pydantic's own checks, by the type of the error.
_KOREAN = {
    "bool_parsing": "true 또는 false여야 합니다",
    "finite_number": "유한한 숫자여야 합니다",
    "float_parsing": "숫자여야 합니다",
    "greater_than": "{gt}보다 커야 합니다",
    "greater_than_equal": "{ge} 이상이어야 합니다",
    "int_from_float": "정수여야 합니다",
    "int_parsing": "정수여야 합니다",
    "less_than": "{lt}보다 작아야 합니다",
    "less_than_equal": "{le} 이하여야 합니다",
    "literal_error": "다음 중 하나여야 합니다: {expected}",
    "url_parsing": "올바른 URL이어야 합니다",
    "url_scheme": "URL은 다음으로 시작해야 합니다: {expected_schemes}",
}


def korean_of(problem: ErrorDetails) -> str:
    """What is wrong with a value, in Korean."""
    context = problem.get("ctx", {})
    ours = context.get("error")
    if isinstance(ours, WrongSetting):
        return ours.korean
    known = _KOREAN.get(problem["type"], "올바르지 않은 값입니다")
    return known.format(**{name: str(value).replace(" or ", ", ") for name, value in context.items()})
