"""The only publisher: history, product and outbox row of a version are written in one transaction."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection

from mustit_pipeline.catalog.sql import publication
from mustit_pipeline.catalog.sql.publication import NewVersion, SentAgain
from mustit_pipeline.domain.outbox import ProductOutbox
from mustit_pipeline.domain.values import ExecutionId, SellerId
from mustit_pipeline.outbox.sql import outbox
from mustit_pipeline.tallies.sql import tallies
from mustit_pipeline.tallies.sql.tallies import Subject


def publish_versions(
    connection: Connection,
    seller_id: SellerId,
    execution_id: ExecutionId,
    versions: Sequence[NewVersion],
    at: datetime,
) -> None:
    """Publish the versions that an execution found; the caller has locked the products."""
    publication.publish(connection, seller_id.value, execution_id.value, versions)
    outbox.enqueue(connection, [ProductOutbox.announcing(one.product, one.life_cycle, at) for one in versions])
    kinds = Counter((kind,) for one in versions for kind in one.kinds)
    tallies.count(connection, Subject.CHANGE, kinds)


def publish_again(connection: Connection, seller_id: SellerId, again: Sequence[SentAgain], at: datetime) -> None:
    """Publish the newest state of products again under new versions; the caller has locked the products."""
    life_cycles = publication.repeat(connection, seller_id.value, again)
    events = [ProductOutbox.announcing(one.product, life_cycles[one.item_no], at) for one in again]
    outbox.enqueue(connection, events)
