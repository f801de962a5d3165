"""The days that the lake lacks."""

from collections.abc import Collection
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from mustit_pipeline.foundation.database import Database
from mustit_pipeline.monitoring.metrics import LOOK_BACK_DAYS, SEOUL
from mustit_pipeline.sellers.sql import sellers


def missing_days(database: Database, now: datetime, stored: Collection[date]) -> list[date]:
    """Yesterday, and days of the last week that are not stored, but for those before the first seller.

    After an outage Dagster repeats only the last missed tick. A day that is stored is never stale: versions and their
    times do not change.
    """
    with database.reading() as connection:
        registered = sellers.first_registered(connection)
    zone = ZoneInfo(SEOUL)
    yesterday = now.astimezone(zone).date() - timedelta(days=1)
    first = yesterday if registered is None else registered.astimezone(zone).date()
    days = [yesterday - timedelta(days=back) for back in range(LOOK_BACK_DAYS, -1, -1)]
    return [day for day in days if day not in stored and (day >= first or day == yesterday)]
