"""What goes out: changes are judged together, then history, product and outbox row of a version in one transaction."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

import orjson
import structlog
from sqlalchemy import Connection

from mustit_pipeline.catalog.diff import FieldChange, diff
from mustit_pipeline.catalog.sql import change_holds, publication
from mustit_pipeline.catalog.sql.publication import NewVersion, SentAgain, Unpublished
from mustit_pipeline.domain.change_hold import BeliefRules, Suspicion
from mustit_pipeline.domain.outbox import ProductOutbox
from mustit_pipeline.domain.states import LifeCycle
from mustit_pipeline.domain.values import ExecutionId, SellerId
from mustit_pipeline.outbox.sql import outbox
from mustit_pipeline.settings import Settings
from mustit_pipeline.tallies.sql import tallies
from mustit_pipeline.tallies.sql.tallies import Subject

log = structlog.get_logger(__name__)


def belief_rules(settings: Settings) -> BeliefRules:
    """The publication guard's rules, of the settings."""
    return BeliefRules(settings.price_jump_factor, settings.suspicious_share, settings.suspicious_least)


def judge_changes(connection: Connection, seller_id: SellerId, rules: BeliefRules, at: datetime) -> Suspicion | None:
    """The publication guard: open a hold if the changes that are ready look wrong, close it if they look right."""
    suspicion = change_holds.suspicious(connection, seller_id.value, rules.jump_factor)
    if rules.may_be_many(suspicion.suspicious):
        suspicion = change_holds.among_all(connection, seller_id.value, suspicion)
    if suspicion.is_believable(rules):
        change_holds.close(connection, seller_id.value, at)
        return None
    change_holds.hold(connection, seller_id.value, suspicion)
    log.warning(
        "changes held back",
        seller_id=seller_id.value,
        jumped=suspicion.jumped,
        emptied=suspicion.emptied,
        looked_at=suspicion.looked_at,
    )
    return suspicion


def publish_ready(
    connection: Connection, seller_id: SellerId, ready: Sequence[Unpublished], at: datetime
) -> list[NewVersion]:
    """Turn products that are ready into versions."""
    execution_id = publication.publishing_execution(connection, seller_id) if ready else None
    if execution_id is None:
        return []
    versions: list[NewVersion] = []
    for entry in ready:
        product, life_cycle = entry.product, LifeCycle.CREATED
        if product.version > 0:
            life_cycle = LifeCycle.RESTORED if product.is_deleted else LifeCycle.UPDATED
        if product.is_deleted:
            product.restore()
        product.publish()
        changes: list[FieldChange] = []
        if life_cycle is LifeCycle.UPDATED and entry.data is not None and entry.published_data is not None:
            changes = diff(orjson.loads(entry.published_data), orjson.loads(entry.data))
        types = sorted({change.type.value for change in changes})
        details = [change.as_json() for change in changes]
        versions.append(NewVersion(product, life_cycle, types, details, None, entry.data_hash))
    publish_versions(connection, seller_id, execution_id, versions, at)
    return versions


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
