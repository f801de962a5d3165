"""Registering sellers and changing how they are crawled."""

import json

import pytest
from sqlalchemy import text

from mustit_pipeline.crawling.steering import deactivate_seller, open_or_join
from mustit_pipeline.domain.errors import Conflict, NotFound, ValidationFailed
from mustit_pipeline.domain.states import SellerStatus
from mustit_pipeline.domain.values import CrawlingInterval, SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.sellers import registry
from mustit_pipeline.sellers.sql import sellers

IDS = ["dmont", "한글 셀러", "a b", "a&b=c", "50%", "a//b", "a/../b", "'; DROP TABLE sellers; --", "x" * 200]


def messages(database: Database) -> list[tuple[str, dict[str, object]]]:
    query = text("SELECT event_type, payload FROM scheduler_outbox ORDER BY created_at, event_type")
    with database.reading() as connection:
        return [(row.event_type, json.loads(row.payload)) for row in connection.execute(query)]


def add(database: Database, seller_id: str, interval: CrawlingInterval = CrawlingInterval.DEFAULT) -> None:
    registry.register(database, SellerId(seller_id), "이름", interval, utc_now())


def test_sellers_with_any_printable_id_are_registered_and_read_back(database: Database) -> None:
    for seller_id in IDS:
        add(database, seller_id)
    with database.reading() as connection:
        assert sorted(sellers.all_ids(connection)) == sorted(IDS)
        for seller_id in IDS:
            seller, schedule = sellers.get(connection, SellerId(seller_id))
            assert (seller.seller_id.value, schedule.seller_id.value) == (seller_id, seller_id)
    assert [json.loads(str(payload["input"])) for _, payload in messages(database)] == [
        {"sellerId": one} for one in IDS
    ]
    assert len({str(payload["ruleName"]) for _, payload in messages(database)}) == len(IDS)


def test_a_known_id_is_a_conflict_and_nothing_of_the_second_is_stored(database: Database) -> None:
    add(database, "dmont", CrawlingInterval.days(7))
    with pytest.raises(Conflict) as refused:
        add(database, "dmont", CrawlingInterval.days(1))
    assert refused.value.code == "CONFLICT_SELLER_EXISTS"
    with database.reading() as connection:
        counts = connection.execute(
            text("""
                SELECT (SELECT count(*) FROM sellers), (SELECT count(*) FROM crawling_schedules),
                       (SELECT count(*) FROM scheduler_outbox)
            """)
        ).one()
        seller, _ = sellers.get(connection, SellerId("dmont"))
    assert tuple(counts) == (1, 1, 1)
    assert seller.interval == CrawlingInterval.days(7)


def test_wrong_ids_and_intervals_are_refused_before_anything_is_stored(database: Database) -> None:
    for wrong in ("", "   "):
        with pytest.raises(ValidationFailed, match="SellerId"):
            add(database, wrong)
    for days in (0, 31):
        with pytest.raises(ValidationFailed):
            add(database, "dmont", CrawlingInterval.days(days))
    for hours in (0, 24):
        with pytest.raises(ValidationFailed):
            add(database, "dmont", CrawlingInterval.hours(hours))
    with database.reading() as connection:
        assert sellers.all_ids(connection) == []
    assert messages(database) == []


def test_every_change_leaves_its_message_for_the_outside_scheduler(database: Database) -> None:
    seller_id = SellerId("dmont")
    add(database, "dmont")
    registry.change_interval(database, seller_id, CrawlingInterval.hours(6), utc_now())
    deactivate_seller(database, seller_id, utc_now())
    registry.activate(database, seller_id, utc_now())
    assert [(kind, payload["scheduleExpression"]) for kind, payload in messages(database)] == [
        ("SCHEDULE_REGISTERED", "rate(1 day)"),
        ("SCHEDULE_UPDATED", "rate(6 hours)"),
        ("SCHEDULE_DEACTIVATED", "rate(6 hours)"),
        ("SCHEDULE_REGISTERED", "rate(6 hours)"),
    ]
    assert {payload["ruleName"] for _, payload in messages(database)} == {"mustit-crawler-dmont"}


def test_a_change_whose_message_cannot_be_stored_does_not_happen(database: Database) -> None:
    add(database, "dmont")
    with database.transaction() as connection:
        connection.execute(text("ALTER TABLE scheduler_outbox ADD CHECK (event_type = 'SCHEDULE_REGISTERED')"))
    with pytest.raises(Exception, match="scheduler_outbox"):
        deactivate_seller(database, SellerId("dmont"), utc_now())
    with database.reading() as connection:
        seller, schedule = sellers.get(connection, SellerId("dmont"))
    assert (seller.status, schedule.status.value) == (SellerStatus.ACTIVE, "ACTIVE")


def test_an_unknown_seller_is_not_found_and_an_inactive_one_is_not_crawled(database: Database) -> None:
    with pytest.raises(NotFound):
        deactivate_seller(database, SellerId("unregistered"), utc_now())
    add(database, "dmont")
    deactivate_seller(database, SellerId("dmont"), utc_now())
    with pytest.raises(Conflict) as refused:
        open_or_join(database, SellerId("dmont"), triggered_by="api", now=utc_now())
    assert refused.value.code == "CONFLICT_SELLER_INACTIVE"
