"""The publication guard: if too many of a seller's products look wrong at once, none of its changes is published."""

from datetime import datetime

import structlog
from sqlalchemy import Connection

from mustit_pipeline.catalog.sql import change_holds
from mustit_pipeline.domain.change_hold import BeliefRules, Suspicion
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.settings import Settings

log = structlog.get_logger(__name__)


def belief_rules(settings: Settings) -> BeliefRules:
    """The rules of the settings."""
    return BeliefRules(settings.price_jump_factor, settings.suspicious_share, settings.suspicious_least)


def judge_changes(connection: Connection, seller_id: SellerId, rules: BeliefRules, at: datetime) -> Suspicion | None:
    """Judge all changes that are ready to be published: open a hold if they look wrong, close it if they look right."""
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
