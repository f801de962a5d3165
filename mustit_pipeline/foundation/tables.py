"""Metadata and column types shared by the tables of all rooms; the migrations create the tables."""

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

# True for every row. PostgreSQL uses an index with this condition only for statements that contain it: those ordered by
# time. So wrong statistics about a seller or a state cannot make a lookup by key use that index.
BY_TIME = "version > 0"
# A statement that names the seller so can use an index by time alone: whatever the planner believes of a seller, it
# cannot go through the index by seller and item instead.
SELLER_BY_TIME = "(seller_id || '')"


def timestamp(name: str, *, nullable: bool = False, default: bool = False) -> Column[object]:
    """A point in time; the database's clock fills it where it has a default."""
    return Column(name, DateTime(timezone=True), nullable=nullable, server_default=func.now() if default else None)


def one_of(column: str, states: type[StrEnum]) -> CheckConstraint:
    """A check that the column holds a state of the domain."""
    values = ", ".join(f"'{state.value}'" for state in states)
    return CheckConstraint(f"{column} IN ({values})", name=f"{column}_known")


def listed(statuses: Iterable[StrEnum]) -> str:
    """States as SQL literals: a partial index is used only where its condition can be proven from the text."""
    return ", ".join(f"'{status.value}'" for status in sorted(statuses))
