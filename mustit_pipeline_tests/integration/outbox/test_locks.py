"""Statements that wait for outbox rows take them in one order, whatever their plan and their ids."""

import threading
from collections.abc import Callable

import pytest
from sqlalchemy import Connection, text

from mustit_pipeline.domain.states import OutboxStatus
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.outbox.sql import outbox, outbox_list
from mustit_pipeline_tests.integration.crawling.child import wait_until
from mustit_pipeline_tests.integration.crawls import register

# In the order of their bytes; people would sort them the other way round.
IN_ORDER = [("B", 1), ("a", 1), ("a", 2)]
BEING_WAITED_FOR = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype IN ('transactionid', 'tuple')"


def retry(connection: Connection) -> None:
    outbox_list.retry_all(connection, status=OutboxStatus.FAILED, seller_id=None)


def supersede(connection: Connection) -> None:
    outbox.supersede(connection, IN_ORDER[::-1])


@pytest.mark.parametrize("act", [retry, supersede])
def test_rows_are_locked_in_the_order_of_seller_item_and_version(
    database: Database, act: Callable[[Connection], None]
) -> None:
    for seller in ("B", "a"):
        register(database, seller)
    with database.transaction() as connection:
        # In the table, and by their ids, they stand the other way round.
        for number, (seller, item) in enumerate(reversed(IN_ORDER)):
            for version, status in ((1, "FAILED"), (2, "COMPLETED")):
                connection.execute(
                    text("""INSERT INTO product_outbox (outbox_id, seller_id, item_no, version, event_type,
                                                        idempotency_key, status)
                            VALUES (CAST(:id AS uuid), :seller, :item, :version, 'PRODUCT_UPDATED', :id, :status)"""),
                    {
                        "id": f"00000000-0000-4000-8000-0000000000{number}{version}",
                        "seller": seller,
                        "item": item,
                        "version": version,
                        "status": status,
                    },
                )
    middle, last = IN_ORDER[1:]

    def run() -> None:
        with database.transaction() as connection:
            act(connection)

    with database.transaction() as holding:
        held = text("SELECT FROM product_outbox WHERE (seller_id, item_no, version) = (:seller, :item, 1) FOR UPDATE")
        holding.execute(held, {"seller": middle[0], "item": middle[1]})
        acting = threading.Thread(target=run)
        acting.start()
        with database.transaction() as looking:
            wait_until(lambda: looking.execute(text(BEING_WAITED_FOR)).scalar_one() > 0)
            free = text("SELECT seller_id, item_no FROM product_outbox WHERE version = 1 FOR UPDATE SKIP LOCKED")
            found = [tuple(row) for row in looking.execute(free)]
    acting.join()

    assert found == [last]
