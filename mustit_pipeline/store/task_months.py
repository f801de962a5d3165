"""The month partitions of the task table."""

from datetime import date

from sqlalchemy import Connection, text


def ensure_month(connection: Connection, month: date) -> None:
    """Make the partition that holds a month's tasks; two callers at once are fine."""
    following = date(month.year + month.month // 12, month.month % 12 + 1, 1)
    name = f"crawler_tasks_{month:%Y_%m}"
    if connection.execute(text("SELECT to_regclass(:name)"), {"name": name}).scalar_one() is not None:
        return
    connection.execute(text("SELECT pg_advisory_xact_lock(hashtext('crawler_tasks partitions'))"))
    connection.exec_driver_sql(
        f"CREATE TABLE IF NOT EXISTS {name} PARTITION OF crawler_tasks FOR VALUES FROM ('{month}') TO ('{following}')"
    )
