"""Registration of sellers, and whether and how often they are crawled."""

import json
from datetime import datetime

from sqlalchemy import Connection

from mustit_pipeline.domain.outbox import SchedulerOutbox
from mustit_pipeline.domain.schedule import CrawlingSchedule, ScheduleEvent
from mustit_pipeline.domain.seller import Seller
from mustit_pipeline.domain.values import CrawlingInterval, OutboxId, ScheduleId, SellerId
from mustit_pipeline.foundation.audited import State, Target
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.sellers.sql import scheduler_outbox, sellers


def register(database: Database, seller_id: SellerId, name: str, interval: CrawlingInterval, now: datetime) -> Seller:
    """A new seller with its schedule; its first crawl is due at once."""
    seller = Seller.register(seller_id, name, now, interval)
    schedule = CrawlingSchedule.register(ScheduleId.new(), seller_id, interval, now)
    with database.transaction() as connection:
        sellers.add(connection, seller, schedule)
        scheduler_outbox.enqueue(connection, schedule_messages(schedule))
    return seller


def change_interval(database: Database, seller_id: SellerId, interval: CrawlingInterval, now: datetime) -> Seller:
    """Crawl a seller at another interval."""
    with database.transaction() as connection:
        seller, schedule = sellers.get(connection, seller_id, lock=True)
        schedule.change_interval(interval, now)
        seller.change_interval(interval, now)
        sellers.save(connection, seller, schedule)
        scheduler_outbox.enqueue(connection, schedule_messages(schedule))
    return seller


def activate(database: Database, seller_id: SellerId, now: datetime) -> Seller:
    """Crawl a seller again."""
    with database.transaction() as connection:
        seller, schedule = sellers.get(connection, seller_id, lock=True)
        seller.activate(now)
        schedule.activate(now)
        sellers.save(connection, seller, schedule)
        scheduler_outbox.enqueue(connection, schedule_messages(schedule))
    return seller


def deactivate(connection: Connection, seller_id: SellerId, now: datetime) -> Seller:
    """Stop crawling a seller, inside the caller's transaction; the seller's row stays locked."""
    seller, schedule = sellers.get(connection, seller_id, lock=True)
    seller.deactivate(now)
    schedule.deactivate(now)
    sellers.save(connection, seller, schedule)
    scheduler_outbox.enqueue(connection, schedule_messages(schedule))
    return seller


def target(seller_id: SellerId) -> Target:
    """A seller as the audit log shows it."""

    def seen(connection: Connection) -> State:
        seller, _ = sellers.get(connection, seller_id)
        return {"name": seller.name, "status": seller.status.value, "interval": str(seller.interval)}

    return Target(f"seller {seller_id}", seen)


def resend(database: Database, now: datetime, schedule_id: ScheduleId | None = None) -> int:
    """Send one schedule, or all, to EventBridge again; a FAILED one is tried again. Returns their number."""
    with database.reading() as connection:
        seller_ids = sellers.of_schedules(connection, schedule_id)
    for seller_id in seller_ids:
        with database.transaction() as connection:
            seller, schedule = sellers.get(connection, seller_id, lock=True)
            schedule.resend(now, active=seller.is_active)
            sellers.save(connection, seller, schedule)
            scheduler_outbox.enqueue(connection, schedule_messages(schedule))
    return len(seller_ids)


def schedule_messages(schedule: CrawlingSchedule) -> list[SchedulerOutbox]:
    """The messages to EventBridge about a schedule's changes."""
    return [
        SchedulerOutbox(
            id=OutboxId.new(),
            created_at=event.occurred_at,
            schedule_id=event.schedule_id,
            event_type=event.event_type,
            payload=_payload(event),
        )
        for event in schedule.pull_events()
    ]


def rule_input(seller_id: SellerId) -> str:
    """What a seller's rule says when it fires: a JSON text, as EventBridge takes it."""
    return json.dumps({"sellerId": seller_id.value}, ensure_ascii=False)


def _payload(event: ScheduleEvent) -> str:
    return json.dumps(
        {
            "ruleName": event.rule_name,
            "scheduleExpression": event.expression,
            # Known when it is sent: a setting of that moment.
            "targetArn": None,
            "input": rule_input(event.seller_id),
        },
        ensure_ascii=False,
    )
