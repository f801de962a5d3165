"""What the tables of all rooms have in common; the migrations create them."""

from collections.abc import Iterable
from enum import StrEnum

from sqlalchemy import CheckConstraint, Column, DateTime, MetaData, func

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# True of every row. An index with this condition serves only statements that state it too, which are those that go by
# time: one that looks up a version by its key cannot be led astray by what the planner believes of a seller or a state.
BY_TIME = "version > 0"


def timestamp(name: str, *, nullable: bool = False, default: bool = False) -> Column[object]:
    """A point in time; the database's clock fills it where it has a default."""
    return Column(name, DateTime(timezone=True), nullable=nullable, server_default=func.now() if default else None)


def one_of(column: str, states: type[StrEnum]) -> CheckConstraint:
    """The column takes the states of the domain, and no other."""
    values = ", ".join(f"'{state.value}'" for state in states)
    return CheckConstraint(f"{column} IN ({values})", name=f"{column}_known")


def listed(statuses: Iterable[StrEnum]) -> str:
    """States as SQL literals: a partial index is used only where its condition can be proven from the text."""
    return ", ".join(f"'{status.value}'" for status in sorted(statuses))
