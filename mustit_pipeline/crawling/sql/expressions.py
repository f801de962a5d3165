"""The recrawl policy's formulas as SQL: its functions compute with these expressions as they do with numbers."""

from dataclasses import dataclass
from typing import cast


@dataclass(frozen=True, slots=True)
class Sql:
    """An SQL expression of type double precision, or boolean where it is a comparison."""

    text: str

    def __str__(self) -> str:
        return self.text

    def __add__(self, other: "Operand") -> "Sql":
        return Sql(f"({self} + {_sql(other)})")

    def __radd__(self, other: "Operand") -> "Sql":
        return Sql(f"({_sql(other)} + {self})")

    def __sub__(self, other: "Operand") -> "Sql":
        return Sql(f"({self} - {_sql(other)})")

    def __rsub__(self, other: "Operand") -> "Sql":
        return Sql(f"({_sql(other)} - {self})")

    def __mul__(self, other: "Operand") -> "Sql":
        return Sql(f"({self} * {_sql(other)})")

    def __rmul__(self, other: "Operand") -> "Sql":
        return Sql(f"({_sql(other)} * {self})")

    def __truediv__(self, other: "Operand") -> "Sql":
        return Sql(f"({self} / {_sql(other)})")

    def __rtruediv__(self, other: "Operand") -> "Sql":
        return Sql(f"({_sql(other)} / {self})")

    def __neg__(self) -> "Sql":
        return Sql(f"(-{self})")

    def __lt__(self, other: "Operand") -> "Sql":
        return Sql(f"({self} < {_sql(other)})")

    def __le__(self, other: "Operand") -> "Sql":
        return Sql(f"({self} <= {_sql(other)})")

    def __gt__(self, other: "Operand") -> "Sql":
        return Sql(f"({self} > {_sql(other)})")

    def __ge__(self, other: "Operand") -> "Sql":
        return Sql(f"({self} >= {_sql(other)})")


Operand = Sql | float


class SqlArithmetic:
    """The policy's `Arithmetic` on expressions."""

    def exp(self, x: Operand, /) -> float:
        return _as_number(f"exp({_sql(x)})")

    def log(self, x: Operand, /) -> float:
        return _as_number(f"ln({_sql(x)})")

    def minimum(self, x: Operand, y: Operand, /) -> float:
        return _as_number(f"least({_sql(x)}, {_sql(y)})")

    def maximum(self, x: Operand, y: Operand, /) -> float:
        return _as_number(f"greatest({_sql(x)}, {_sql(y)})")

    def where(self, condition: Operand, then: Operand, otherwise: Operand, /) -> float:
        return _as_number(f"CASE WHEN {_sql(condition)} THEN {_sql(then)} ELSE {_sql(otherwise)} END")


SQL = SqlArithmetic()


def column(name: str) -> float:
    """A column, to be given to a function of the policy where that takes a number."""
    return _as_number(name)


def hours_between(earlier: str, later: str) -> str:
    """The hours from one moment to another, at least 0; NULL where the earlier one is."""
    return f"CAST(extract(epoch FROM greatest({later}, {earlier}) - {earlier}) / 3600 AS float8)"


def _as_number(text: str) -> float:
    return cast("float", Sql(text))


def _sql(x: Operand) -> str:
    # Without the type PostgreSQL would compute with numeric, a hundred times slower.
    return str(x) if isinstance(x, Sql) else f"float8 '{float(x)!r}'"
