"""Registering many sellers from a file."""

import time

from sqlalchemy import text

from mustit_pipeline.domain.values import CrawlingInterval, SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.scheduling.sql.next_sellers import next_sellers
from mustit_pipeline.sellers import registry
from mustit_pipeline.sellers.enrolment import enrol
from mustit_pipeline.sellers.sql import sellers

COUNTS = text("""
    SELECT (SELECT count(*) FROM sellers) AS sellers, (SELECT count(*) FROM crawling_schedules) AS schedules,
           (SELECT count(*) FROM scheduler_outbox) AS messages
""")


def counts(database: Database) -> tuple[int, int, int]:
    with database.reading() as connection:
        return tuple(connection.execute(COUNTS).one())


def test_every_line_becomes_a_due_seller_with_its_schedule_and_message(database: Database) -> None:
    lines = ["\ufeff# our sellers", "", "dmont,D.MONT", '"a,b", "쉼표, 셀러", 6h']

    report = enrol(database, lines, utc_now())

    assert (report.added, report.known, report.rejected) == (("dmont", "a,b"), 0, ())
    assert counts(database) == (2, 2, 2)
    with database.reading() as connection:
        seller, schedule = sellers.get(connection, SellerId("a,b"))
        assert {one.seller_id for one in next_sellers(connection, 10, busy=(), slice_seconds=600)} == {"dmont", "a,b"}
    assert (seller.name, seller.interval, schedule.interval) == ("쉼표, 셀러", *[CrawlingInterval.hours(6)] * 2)


def test_known_sellers_stay_as_they_are_and_bad_lines_are_named(database: Database) -> None:
    registry.register(database, SellerId("dmont"), "first", CrawlingInterval.days(7), utc_now())

    lines = ["dmont,second,1h", "new,New", "new,again", " ,blank", "only-an-id", "x,X,soon", '"open,quote']
    report = enrol(database, lines, utc_now())

    assert (report.added, report.known) == (("new",), 2)
    assert [number for number, _ in report.rejected] == [4, 5, 6, 7]
    assert "id,name" in report.rejected[1][1]
    assert counts(database) == (2, 2, 2)
    with database.reading() as connection:
        seller, _ = sellers.get(connection, SellerId("dmont"))
    assert (seller.name, seller.interval) == ("first", CrawlingInterval.days(7))


def test_a_thousand_sellers_are_registered_in_a_moment(database: Database) -> None:
    began = time.monotonic()
    report = enrol(database, [f"seller-{number},Seller {number}" for number in range(1000)], utc_now())
    took = time.monotonic() - began

    assert len(report.added) == 1000
    assert counts(database) == (1000, 1000, 1000)
    # One by one it takes several seconds, even on an idle machine.
    assert took < 5
    assert enrol(database, [f"seller-{number},Again" for number in range(1000)], utc_now()).known == 1000
