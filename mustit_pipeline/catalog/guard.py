"""The publication guard: where too many of a seller's products look wrong at once, none of its changes goes out."""

from datetime import datetime

import structlog
from sqlalchemy import Connection

from mustit_pipeline.domain.change_hold import BeliefRules, ChangeHold, Suspicion
from mustit_pipeline.domain.errors import Conflict
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.settings import Settings
from mustit_pipeline.store import change_holds, raw
from mustit_pipeline.store.database import Database

log = structlog.get_logger(__name__)


def belief_rules(settings: Settings) -> BeliefRules:
    """The rules as they are set."""
    return BeliefRules(settings.price_jump_factor, settings.suspicious_share, settings.suspicious_least)


def judge_changes(connection: Connection, seller_id: SellerId, rules: BeliefRules, at: datetime) -> Suspicion | None:
    """Look at all that is ready to be published; what cannot be believed is held, and what was held may be fine now."""
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


def open_hold(database: Database, seller_id: SellerId) -> ChangeHold:
    """The hold that somebody wants to decide on."""
    with database.reading() as connection:
        hold = change_holds.find_open(connection, seller_id)
        if change_holds.crawl_under_way(connection, seller_id.value):
            raise Conflict(
                "CONFLICT_CRAWL_UNDER_WAY",
                korean=f"크롤링이 진행 중인 셀러입니다: {seller_id}",
                english=f"A crawl of {seller_id} is under way, and what it has still to fetch would be held again: "
                "release it when that has ended, or cancel it with `mustit execution cancel`",
            )
    return hold


def mark_released(database: Database, hold: ChangeHold, at: datetime) -> None:
    """Write down that an admin let the changes through; they have been published by then."""
    hold.release(at)
    with database.transaction() as connection:
        raw.take_turns(connection, hold.seller_id.value)
        change_holds.release(connection, hold)
