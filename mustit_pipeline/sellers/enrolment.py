"""Registering many sellers at once, from a file."""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from mustit_pipeline.domain.errors import ValidationFailed
from mustit_pipeline.domain.schedule import CrawlingSchedule
from mustit_pipeline.domain.seller import Seller
from mustit_pipeline.domain.values import CrawlingInterval, ScheduleId, SellerId
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.sellers.registry import schedule_messages
from mustit_pipeline.sellers.sql import scheduler_outbox, sellers


@dataclass(frozen=True, slots=True)
class EnrolmentReport:
    """The registered sellers, the number of sellers known already, and the lines that could not be read."""

    added: tuple[str, ...]
    known: int
    rejected: tuple[tuple[int, str], ...]


def enrol(database: Database, lines: Iterable[str], now: datetime) -> EnrolmentReport:
    """Register the sellers of a CSV, `id,name[,interval]` a line; a known seller is not changed."""
    wanted: dict[str, tuple[Seller, CrawlingSchedule]] = {}
    rejected: list[tuple[int, str]] = []
    read = 0
    for number, line in enumerate(lines, start=1):
        text = line.removeprefix("\ufeff").strip()
        if not text or text.startswith("#"):
            continue
        try:
            seller, schedule = _seller(text, now)
        except (ValidationFailed, csv.Error) as error:
            rejected.append((number, error.english if isinstance(error, ValidationFailed) else str(error)))
            continue
        read += 1
        wanted.setdefault(seller.seller_id.value, (seller, schedule))
    with database.transaction() as connection:
        added = sellers.add_new(connection, list(wanted.values()))
        messages = [message for seller_id in added for message in schedule_messages(wanted[seller_id][1])]
        scheduler_outbox.enqueue(connection, messages)
    return EnrolmentReport(tuple(added), read - len(added), tuple(rejected))


def _seller(line: str, now: datetime) -> tuple[Seller, CrawlingSchedule]:
    [fields] = csv.reader([line], skipinitialspace=True, strict=True)
    if len(fields) not in (2, 3):
        raise ValidationFailed(
            "VALIDATION_SELLER_LINE",
            korean="한 줄은 id,name[,interval] 형식이어야 합니다",
            english="A line is written like id,name or id,name,6h",
        )
    interval = CrawlingInterval.parse(fields[2].strip()) if len(fields) == 3 else CrawlingInterval.DEFAULT
    seller_id = SellerId(fields[0].strip())
    seller = Seller.register(seller_id, fields[1].strip(), now, interval)
    return seller, CrawlingSchedule.register(ScheduleId.new(), seller_id, interval, now)
