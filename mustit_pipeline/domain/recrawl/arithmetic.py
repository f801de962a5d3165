"""What the recrawl policy computes with: floats, arrays and SQL expressions go through the same formulas.

No exponent exceeds `MOST_EXPECTED`, because PostgreSQL raises an error where a double would underflow.
"""

import math
from typing import Protocol

MOST_EXPECTED = 50.0


class Arithmetic(Protocol):
    """What the formulas need beyond + - * / and comparisons."""

    def exp(self, x: float, /) -> float: ...
    def log(self, x: float, /) -> float: ...
    def minimum(self, x: float, y: float, /) -> float: ...
    def maximum(self, x: float, y: float, /) -> float: ...
    def where(self, condition: bool, then: float, otherwise: float, /) -> float: ...


class FloatArithmetic:
    """The arithmetic of single numbers."""

    def exp(self, x: float, /) -> float:
        """e to the power of x."""
        return math.exp(x)

    def log(self, x: float, /) -> float:
        """The natural logarithm."""
        return math.log(x)

    def minimum(self, x: float, y: float, /) -> float:
        """The smaller one."""
        return min(x, y)

    def maximum(self, x: float, y: float, /) -> float:
        """The larger one."""
        return max(x, y)

    def where(self, condition: bool, then: float, otherwise: float, /) -> float:
        """One of two numbers, both of which are computed."""
        return then if condition else otherwise


FLOATS = FloatArithmetic()


def clamped(x: float, low: float, high: float, arithmetic: Arithmetic) -> float:
    return arithmetic.minimum(arithmetic.maximum(x, low), high)
