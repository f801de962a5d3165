"""What fetches and signals teach of change rates, and of how far a seller's listing can be trusted."""

import math
from dataclasses import dataclass

from mustit_pipeline.domain.recrawl.arithmetic import FLOATS, MOST_EXPECTED, Arithmetic, clamped
from mustit_pipeline.domain.recrawl.worth import Listing, Source, change_chance, unseen_changes

# A source's own evidence counts beside half a change at its seller's mean rate: rates differ by orders of magnitude.
PRIOR_SHAPE = 0.5
# A seller's first days: a change in ten days for each source.
PRIOR_CHANGES = 2.0
PRIOR_HOURS = 480.0
# The listing is taken to show half of the changes, and believed until fetches disprove it.
PRIOR_LISTED_CHANGES = 2.0
PRIOR_FALSE_SIGNALS = 0.1
PRIOR_WATCHED_HOURS = 1000.0
HALF_LIFE_HOURS = 28 * 24.0
LOWEST_RATE, HIGHEST_RATE = 1e-5, 2.0
LOWEST_SHOWN, HIGHEST_SHOWN = 0.001, 0.98
LOWEST_FALSE_RATE, HIGHEST_FALSE_RATE = 1e-6, 2.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """Changes of one source in so many hours, older ones forgotten in part."""

    changes: float = 0.0
    hours: float = 0.0


@dataclass(frozen=True, slots=True)
class SellerEvidence:
    """What fetches said of a seller's sources of one kind, older ones forgotten in part; or what one fetch says.

    Expected changes are those of the believed rates in the same hours, so that the share which the listing shows is
    compared for the same sources. Quiet are fetches without a signal: only these show how much the listing hides.
    """

    changes: float = 0.0
    hours: float = 0.0
    expected_changes: float = 0.0
    shown_changes: float = 0.0
    quiet_expected: float = 0.0
    quiet_changes: float = 0.0
    false_signals: float = 0.0


def seller_rate(evidence: SellerEvidence, arithmetic: Arithmetic = FLOATS) -> float:
    """The mean change rate of a seller's sources of one kind; a usual one for a seller's first days."""
    rate = (PRIOR_CHANGES + evidence.changes) / (PRIOR_HOURS + evidence.hours)
    return clamped(rate, LOWEST_RATE, HIGHEST_RATE, arithmetic)


def source_rate(evidence: Evidence, prior: float, arithmetic: Arithmetic = FLOATS) -> float:
    """The change rate of one source: the mean of a Gamma distribution around its seller's rate."""
    rate = (PRIOR_SHAPE + evidence.changes) / (PRIOR_SHAPE / prior + evidence.hours)
    return clamped(rate, LOWEST_RATE, HIGHEST_RATE, arithmetic)


def listing(evidence: SellerEvidence, arithmetic: Arithmetic = FLOATS) -> Listing:
    """The share of changes that the listing shows, and how often it signals a change that is none."""
    shows = (PRIOR_LISTED_CHANGES + evidence.shown_changes) / (2.0 * PRIOR_LISTED_CHANGES + evidence.expected_changes)
    hides = (PRIOR_LISTED_CHANGES + evidence.quiet_changes) / (2.0 * PRIOR_LISTED_CHANGES + evidence.quiet_expected)
    false_rate = (PRIOR_FALSE_SIGNALS + evidence.false_signals) / (PRIOR_WATCHED_HOURS + evidence.hours)
    return Listing(
        clamped(shows / (shows + hides), LOWEST_SHOWN, HIGHEST_SHOWN, arithmetic),
        clamped(false_rate, LOWEST_FALSE_RATE, HIGHEST_FALSE_RATE, arithmetic),
    )


def kept_share(hours: float, arithmetic: Arithmetic = FLOATS) -> float:
    """The share of older evidence that is left after so many hours."""
    return arithmetic.exp(-arithmetic.minimum(hours * (math.log(2.0) / HALF_LIFE_HOURS), MOST_EXPECTED))


def fetched_evidence(source: Source, seen: Listing, changed: float, arithmetic: Arithmetic = FLOATS) -> SellerEvidence:
    """What one unconditional fetch says; `changed` is 1 or 0. A seller's evidence grows by the sum over its fetches.

    Where something changed, the changes are counted as expected under what is believed: hidden ones by the age, shown
    ones by the signals, given that there was at least one.
    """
    other = seen.false_rate + source.other_shown_rate
    true_share = seen.shown * source.rate / (seen.shown * source.rate + other)
    chance = change_chance(unseen_changes(source, seen, arithmetic), arithmetic)
    # A change right after a fetch, which nothing announced, is one hidden change; and no division by nothing.
    expects = chance > 1e-6
    certain = arithmetic.maximum(chance, 1e-6)
    expected = source.rate * source.age
    shown = changed * arithmetic.where(expects, source.signals * true_share / certain, 0.0)
    hidden = changed * arithmetic.where(expects, (1.0 - seen.shown) * expected / certain, 1.0)
    quiet = source.signals < 0.5
    return SellerEvidence(
        changes=shown + hidden,
        hours=source.age,
        expected_changes=expected,
        shown_changes=shown,
        quiet_expected=arithmetic.where(quiet, expected, 0.0),
        quiet_changes=arithmetic.where(quiet, hidden, 0.0),
        false_signals=arithmetic.maximum(source.signals - shown, 0.0) * seen.false_rate / other,
    )


def learnt(before: Evidence, fetched: SellerEvidence, kept: float) -> Evidence:
    """The evidence of a source after a fetch, with the share of the older evidence that is kept."""
    return Evidence(before.changes * kept + fetched.changes, before.hours * kept + fetched.hours)


def learnt_of_seller(before: SellerEvidence, fetched: SellerEvidence, kept: float) -> SellerEvidence:
    """The evidence of a seller after fetches, with the share of the older evidence that is kept."""
    return SellerEvidence(
        changes=before.changes * kept + fetched.changes,
        hours=before.hours * kept + fetched.hours,
        expected_changes=before.expected_changes * kept + fetched.expected_changes,
        shown_changes=before.shown_changes * kept + fetched.shown_changes,
        quiet_expected=before.quiet_expected * kept + fetched.quiet_expected,
        quiet_changes=before.quiet_changes * kept + fetched.quiet_changes,
        false_signals=before.false_signals * kept + fetched.false_signals,
    )
