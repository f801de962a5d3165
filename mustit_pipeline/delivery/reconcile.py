"""Compares what we believe the product server has with what it answers, and sends again what differs."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from itertools import groupby
from typing import Any, cast

import orjson
from sqlalchemy import Connection

from mustit_pipeline.catalog.diff import diff
from mustit_pipeline.catalog.publishing import publish_again
from mustit_pipeline.catalog.sql import products, raw
from mustit_pipeline.catalog.sql.publication import SentAgain
from mustit_pipeline.delivery import reports
from mustit_pipeline.delivery.product_server import ProductServer
from mustit_pipeline.delivery.reports import Finding, Report
from mustit_pipeline.delivery.sql import reconciliation
from mustit_pipeline.delivery.sql.reconciliation import Belief, Correction
from mustit_pipeline.domain.errors import ExternalFailure
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation import event_loop
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.settings import Settings

BATCH = 500
MOST_EXAMPLES = 100
_TEXT_OF = {
    Finding.UNREACHABLE: ("UNREACHABLE", "상품 서버에 연결할 수 없습니다", "The product server cannot be reached"),
    Finding.REFUSED: ("REFUSED", "상품 서버가 조회를 거부했습니다", "The product server refuses to be asked"),
    Finding.NO_ROUTE: (
        "CANNOT_REPORT",
        "상품 서버가 보유 상품을 알려줄 수 없습니다",
        "The product server cannot report what it has",
    ),
}


class Kind(StrEnum):
    """How the product server's word differs from our belief."""

    MISSING = "MISSING"
    STALE = "STALE"
    NEWER = "NEWER"
    DIFFERENT = "DIFFERENT"
    SHOULD_BE_GONE = "SHOULD_BE_GONE"


@dataclass(frozen=True, slots=True)
class Difference:
    """One product on which the two do not agree."""

    kind: Kind
    belief: Belief
    reported_version: int
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unanswered:
    """One product of which nothing could be learned."""

    belief: Belief
    reason: str


@dataclass(slots=True)
class Reconciliation:
    """What was found; only so many of each kind are kept as examples, all of them are counted."""

    compared: int = 0
    under_way: int = 0
    unanswered: int = 0
    resent: int = 0
    kinds: Counter[Kind] = field(default_factory=Counter[Kind])
    examples: list[Difference] = field(default_factory=list[Difference])
    silent: list[Unanswered] = field(default_factory=list[Unanswered])

    @property
    def differences(self) -> int:
        """How many products differ."""
        return self.kinds.total()

    @property
    def in_order(self) -> bool:
        """Whether nothing is left that differs, or of which nothing could be learned."""
        return self.differences == self.resent and not self.unanswered


def reconcile(
    database: Database,
    settings: Settings,
    *,
    seller_id: SellerId | None,
    resend: bool,
    now: Callable[[], datetime],
    progress: Callable[[int], None] | None = None,
) -> Reconciliation:
    """Ask for every product of which something was delivered; with `resend`, let what differs be sent again."""
    work = _Reconciling(database, settings, seller_id, now if resend else None, progress)
    return event_loop.run(work.run())


def compare(belief: Belief, report: Report) -> Difference | None:
    """Whether the product server has what we believe it has."""
    if report.finding is Finding.NOT_HELD or report.data is None:
        return None if belief.data is None else Difference(Kind.MISSING, belief, report.version)
    if belief.data is None:
        return Difference(Kind.SHOULD_BE_GONE, belief, report.version)
    fields = differing_fields(report.data, orjson.loads(belief.data))
    if report.version != belief.delivered_version:
        kind = Kind.STALE if report.version < belief.delivered_version else Kind.NEWER
        return Difference(kind, belief, report.version, fields)
    return Difference(Kind.DIFFERENT, belief, report.version, fields) if fields else None


def differing_fields(theirs: dict[str, Any], ours: dict[str, Any]) -> tuple[str, ...]:
    """The names of fields that are not what was sent; what the server adds of its own is its affair."""
    names = [name for name in ("itemNo", "sellerId") if theirs.get(name) != ours.get(name)]
    options = theirs.get("options")
    readable = isinstance(options, list) and all(map(_is_option, cast("list[object]", options)))
    if not readable:
        names.append("options")
        theirs, ours = theirs | {"options": []}, ours | {"options": []}
    return (*names, *(change.field for change in diff(theirs, ours)))


def _is_option(value: object) -> bool:
    return isinstance(value, dict) and isinstance(cast("dict[str, object]", value).get("optionNo"), int)


class _Reconciling:
    def __init__(
        self,
        database: Database,
        settings: Settings,
        seller_id: SellerId | None,
        resend_at: Callable[[], datetime] | None,
        progress: Callable[[int], None] | None,
    ) -> None:
        self._database = database
        self._settings = settings
        self._seller_id = seller_id
        self._resend_at = resend_at
        self._progress = progress
        self._found = Reconciliation()
        self._places = asyncio.Semaphore(settings.relay_concurrent_sends)
        self._call_is_known = False
        self._answered = self._unreachable = 0

    async def run(self) -> Reconciliation:
        last: Belief | None = None
        async with ProductServer(self._settings, connections=self._settings.relay_concurrent_sends) as server:
            while batch := await asyncio.to_thread(self._next, last):
                last = batch[-1]
                settled = [belief for belief in batch if not belief.under_way]
                self._found.under_way += len(batch) - len(settled)
                answers = await asyncio.gather(*(self._ask(server, belief) for belief in settled))
                self._require_an_answer(answers)
                await self._require_the_call(server, settled, answers)
                await asyncio.to_thread(self._conclude, settled, answers)
                if self._progress is not None:
                    self._progress(self._found.compared + self._found.under_way + self._found.unanswered)
        return self._found

    def _next(self, last: Belief | None) -> list[Belief]:
        with self._database.reading() as connection:
            return reconciliation.beliefs(connection, self._seller_id, last, BATCH)

    async def _ask(self, server: ProductServer, belief: Belief) -> Report:
        async with self._places:
            pause = self._settings.retry_base_seconds
            report = await reports.ask(server, belief.seller_id, belief.item_no, pause_seconds=pause)
        if report.finding is Finding.REFUSED:
            raise self._failure(report)
        if report.finding is not Finding.UNREACHABLE:
            self._answered += 1
        elif not self._answered:
            self._unreachable += 1
            if self._unreachable >= self._settings.product_server_breaker_failures:
                raise self._failure(report)
        return report

    def _require_an_answer(self, answers: Sequence[Report]) -> None:
        """One product that breaks every connection says nothing about the server; all of them do."""
        if answers and not self._answered:
            raise self._failure(answers[0])

    async def _require_the_call(
        self, server: ProductServer, beliefs: Sequence[Belief], answers: Sequence[Report]
    ) -> None:
        """A server that has no such call says 404 to everything: that is no list of missing products."""
        if self._call_is_known:
            return
        pairs = zip(beliefs, answers, strict=True)
        denied = [one for belief, one in pairs if belief.data is not None and one.finding is Finding.NOT_HELD]
        self._call_is_known = any(one.finding is Finding.HELD for one in answers)
        unknown = next((one for one in answers if one.finding in (Finding.NO_ROUTE, Finding.UNREADABLE)), None)
        if unknown is not None and not self._call_is_known:
            raise self._failure(replace(unknown, finding=Finding.NO_ROUTE))
        if denied and not self._call_is_known:
            if not await reports.knows_the_call(server, denied[0]):
                raise self._failure(
                    Report(Finding.NO_ROUTE, reason="it answers like for an address that it does not have")
                )
            self._call_is_known = True

    def _conclude(self, beliefs: Sequence[Belief], answers: Sequence[Report]) -> None:
        """Count one batch; a belief that has changed since it was read is no difference."""
        differing: list[Difference] = []
        for belief, report in zip(beliefs, answers, strict=True):
            if report.finding not in (Finding.HELD, Finding.NOT_HELD):
                self._found.unanswered += 1
                if len(self._found.silent) < MOST_EXAMPLES:
                    self._found.silent.append(Unanswered(belief, report.reason))
                continue
            self._found.compared += 1
            difference = compare(belief, report)
            if difference is not None:
                differing.append(difference)
        for seller, of_seller in groupby(differing, key=lambda one: one.belief.seller_id):
            self._report(SellerId(seller), list(of_seller))

    def _report(self, seller_id: SellerId, differing: list[Difference]) -> None:
        with self._database.reading() as connection:
            beliefs = [one.belief for one in differing]
            still = reconciliation.unchanged(connection, seller_id.value, beliefs)
        real = [one for one in differing if one.belief.item_no in still]
        self._found.compared -= len(differing) - len(real)
        self._found.under_way += len(differing) - len(real)
        self._found.kinds.update(one.kind for one in real)
        self._found.examples.extend(real[: MOST_EXAMPLES - len(self._found.examples)])
        if self._resend_at is None or not real:
            return
        corrections = [Correction(one.belief, one.reported_version, one.kind is Kind.MISSING) for one in real]
        with self._database.transaction() as connection:
            self._found.resent += resend(connection, seller_id, corrections, self._resend_at())

    def _failure(self, report: Report) -> ExternalFailure:
        code, korean, english = _TEXT_OF[report.finding]
        resent = self._found.resent
        return ExternalFailure(
            f"EXTERNAL_PRODUCT_SERVER_{code}",
            korean=f"{korean} ({report.reason})" + (f"; 이미 {resent}개 상품이 재전송을 기다립니다" if resent else ""),
            english=f"{english} ({report.reason})" + (f"; {resent} products wait to be sent again" if resent else ""),
        )


def resend(connection: Connection, seller_id: SellerId, corrections: Sequence[Correction], at: datetime) -> int:
    """Give one seller's products a new version of their state with its outbox row; what has moved on is left alone."""
    # Versions are made under the seller's catalog lock and the products' locks: from here on nothing gets under way. A
    # processor that only waited for the products would not see our version, and publish its own without changes.
    raw.lock_catalog(connection, seller_id.value)
    locked = products.lock(connection, seller_id.value, [one.belief.item_no for one in corrections])
    still = reconciliation.unchanged(connection, seller_id.value, [one.belief for one in corrections])
    again: list[SentAgain] = []
    for one in corrections:
        if one.belief.item_no in still:
            product = locked[one.belief.item_no]
            product.resend(beyond=one.reported_version)
            # What the server says it has is what the next event's changes run from; of a version that is not ours we
            # know nothing, and what it does not hold it has to create.
            has = 0 if one.missing else min(one.reported_version, one.belief.delivered_version)
            again.append(SentAgain(product, repeats=one.belief.version, delivered=has))
    if again:
        publish_again(connection, seller_id, again, at)
    return len(again)
