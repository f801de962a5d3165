"""EventBridge's rules compared with the schedules, and made as the schedules are."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from mustit_pipeline.aws.rule_relay import RelayedRules, relay_rules
from mustit_pipeline.aws.rules import EventBridge, PresentRule, Rule
from mustit_pipeline.domain.schedule import RULE_PREFIX
from mustit_pipeline.domain.values import ScheduleId, SellerId
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.sellers import registry
from mustit_pipeline.sellers.sql import sellers
from mustit_pipeline.settings import Settings, SettingsError


class Difference(StrEnum):
    """How a rule differs from the schedule of its seller."""

    MISSING = "there is no rule"
    OTHER = "its rate, state, target or message is another one"
    LEFT_OVER = "its seller is INACTIVE"
    # Perhaps another installation's: it is not touched.
    UNKNOWN = "no seller here has it"


@dataclass(frozen=True, slots=True)
class DifferentRule:
    """A rule that is not as its schedule says; without a seller it cannot be mended from here."""

    name: str
    difference: Difference
    seller_id: SellerId | None = None
    schedule_id: ScheduleId | None = None


def different_rules(database: Database, settings: Settings) -> list[DifferentRule]:
    """Every rule that differs from its schedule, by name."""
    if settings.trigger_target_arn is None:
        raise SettingsError(
            "MUSTIT_TRIGGER_TARGET_ARN is not set: there are no rules to compare",
            korean="MUSTIT_TRIGGER_TARGET_ARN이 설정되지 않아 비교할 규칙이 없습니다",
        )
    present = {one.name: one for one in EventBridge(settings).present(RULE_PREFIX)}
    found: list[DifferentRule] = []
    with database.reading() as connection:
        known = sellers.with_schedules(connection)
    for seller, schedule in known:
        ours = present.pop(schedule.rule_name, None)
        wanted = Rule(
            schedule.rule_name,
            schedule.expression,
            settings.trigger_target_arn,
            registry.rule_input(schedule.seller_id),
        )
        difference = _difference(wanted if seller.is_active else None, ours)
        if difference is not None:
            found.append(DifferentRule(schedule.rule_name, difference, seller.seller_id, schedule.id))
    found += [DifferentRule(name, Difference.UNKNOWN) for name in present]
    return sorted(found, key=lambda one: one.name)


def mend_rules(
    database: Database, settings: Settings, clock: Callable[[], datetime], found: Sequence[DifferentRule]
) -> RelayedRules:
    """Tell EventBridge of these schedules again, through the outbox as always."""
    for one in found:
        if one.schedule_id is not None:
            registry.resend(database, clock(), one.schedule_id)
    return relay_rules(database, settings, clock)


def _difference(wanted: Rule | None, present: PresentRule | None) -> Difference | None:
    if wanted is None:
        return None if present is None else Difference.LEFT_OVER
    if present is None:
        return Difference.MISSING
    return None if present.is_enabled and present.rule == wanted else Difference.OTHER
