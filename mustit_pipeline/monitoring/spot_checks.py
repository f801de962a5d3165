"""Spot checks: a uniform sample of products is fetched again, with booked agents like any request, and compared.

How many are stale is counted by source and size of seller (`staleness.py`). Whether the catalog is wrong takes longer.

A difference alone proves nothing: the product may have changed since the last crawl. So it is stored with the hash of
the marketplace's data, and judged later:
- the catalog has become equal: a crawl has noticed the change, the difference is explained;
- a whole crawl has fetched the product since, and the marketplace still has the data from before that crawl: the
  crawl should have stored it, so the catalog is wrong;
- the marketplace has other data again: the product waits for the next crawl once more;
- no crawl has fetched it within two of its intervals (or its maximum age) plus the time allowed for a delivery: wrong,
  because stale;
- the product is gone there, and was not deleted here within the sweeps that prove it and one more: wrong;
- its seller is no longer active: no crawl will notice, so the difference is dropped.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import md5

import orjson
from sqlalchemy import Connection

from mustit_pipeline.agents.pool import AgentPool
from mustit_pipeline.catalog import canonical
from mustit_pipeline.crawling.fetching import Fetcher, NoAgentFree, RequestCounter
from mustit_pipeline.crawling.recrawl import pool_means
from mustit_pipeline.domain.states import TruthVerdict
from mustit_pipeline.domain.values import ItemNo, SellerId
from mustit_pipeline.foundation import event_loop
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database, addresses
from mustit_pipeline.foundation.failures import FetchError, NotFoundAnswer
from mustit_pipeline.marketplace.client import MarketplaceClient
from mustit_pipeline.marketplace.models import ProductDetail, ProductOption
from mustit_pipeline.marketplace.parsing import parse_detail, parse_options
from mustit_pipeline.monitoring import staleness
from mustit_pipeline.monitoring.sql import spot_checks
from mustit_pipeline.monitoring.sql.spot_checks import Drawn, Known, Sample, Suspect
from mustit_pipeline.monitoring.staleness import Comparison, Sampled
from mustit_pipeline.settings import Settings
from mustit_pipeline.tallies.sql import tallies
from mustit_pipeline.tallies.sql.tallies import Subject

AT_ONCE = 10
GONE = "gone"
SAMPLED = {"detail": Sampled.DETAIL, "options": Sampled.OPTIONS, GONE: Sampled.LISTING}


@dataclass(frozen=True, slots=True)
class Said:
    """The marketplace's present data of a product; empty if it is gone."""

    detail: ProductDetail | None = None
    options: tuple[ProductOption, ...] = ()


@dataclass(frozen=True, slots=True)
class TruthReport:
    """The numbers of compared products, of products without an answer, and of requests."""

    compared: int
    unanswered: int
    requests: int


def spot_check(database: Database, settings: Settings) -> TruthReport:
    """Compare a few products with the marketplace, and judge earlier differences."""
    if not settings.truth_sample:
        return TruthReport(0, 0, 0)
    with database.transaction() as connection:
        number = _sample_size(connection, settings)
        spot_checks.forget_inactive(connection)
        suspects, drawn = spot_checks.suspects(connection, number), spot_checks.draw(connection, number)
        before = spot_checks.known(connection, [*(one.product for one in suspects), *drawn])
    calls = RequestCounter()
    wanted = [product for product, known in before.items() if not known.deleted]
    answers = event_loop.run(_ask(database, settings, wanted, calls)) if wanted else {}
    with database.reading() as connection:
        # Data that a crawl stored meanwhile counts as well.
        after = spot_checks.known(connection, list(before))
    now = utc_now()
    looks = {one: _Look(before[one], after[one], answer) for one, answer in answers.items() if one in after}
    samples = [_compare(one, looks[one]) for one in drawn if one in looks and not after[one].deleted]
    judged = [
        (one, Sample(one.product, TruthVerdict.EXPLAINED, one.said_hash))
        for one in suspects
        if one.product not in after or after[one.product].deleted
    ]
    judged += [
        (one, _judge(settings, one, looks[one.product], now))
        for one in suspects
        if one.product in looks and not after[one.product].deleted
    ]
    with database.transaction() as connection:
        spot_checks.add(connection, samples, now)
        spot_checks.judge(connection, judged, now)
        staleness.record(
            connection, [_comparison(one, looks) for one in drawn if one in after and not after[one].deleted]
        )
        tallies.add(connection, Subject.FETCH, calls.durations)
    return TruthReport(len(answers), len(wanted) - len(answers), calls.requests)


def _sample_size(connection: Connection, settings: Settings) -> int:
    pool = pool_means(connection, settings, due_pages=0.0)
    products = spot_checks.listed_products(connection)
    return staleness.sample_size(products, pool.requests_per_hour, settings.truth_sample, spot_checks.CHANCE)


@dataclass(frozen=True, slots=True)
class _Look:
    """The catalog before and after the request, and the answer."""

    before: Known
    after: Known
    said: Said

    @property
    def differs(self) -> bool:
        return bool(differences(self.before, self.said)) and bool(differences(self.after, self.said))

    @property
    def stale(self) -> frozenset[Sampled]:
        """The sources that differed before the request and after it."""
        both = {*differences(self.before, self.said)} & {*differences(self.after, self.said)}
        return frozenset(SAMPLED[source] for source in both)

    @property
    def difference(self) -> str:
        return ", ".join(differences(self.after, self.said))


def _comparison(product: Drawn, looks: Mapping[Drawn, _Look]) -> Comparison:
    return Comparison(product.seller_products, looks[product].stale if product in looks else None)


def _compare(product: Drawn, look: _Look) -> Sample:
    """The first comparison: equal, or a suspect."""
    if not look.differs:
        return Sample(product, TruthVerdict.EQUAL)
    return Sample(product, TruthVerdict.OPEN, said_hash(look.after, look.said), look.difference)


def _judge(settings: Settings, suspect: Suspect, look: _Look, now: datetime) -> Sample:
    """The judgement of a product that differed before."""
    if not look.differs:
        return Sample(suspect.product, TruthVerdict.EXPLAINED, suspect.said_hash)
    gone, hashed = look.said.detail is None, said_hash(look.after, look.said)
    proven = suspect.refetched and not gone and hashed == suspect.said_hash
    if proven or now > deadline(settings, suspect, gone=gone):
        return Sample(suspect.product, TruthVerdict.WRONG, hashed, look.difference)
    # Until a crawl has fetched it, the first hash stays the evidence.
    evidence = hashed if suspect.refetched else suspect.said_hash
    return Sample(suspect.product, TruthVerdict.OPEN, evidence, look.difference)


def deadline(settings: Settings, suspect: Suspect, *, gone: bool) -> datetime:
    """Until when a crawl should have noticed the difference."""
    looks = (settings.deletion_sweeps + 1 if gone else 2) * suspect.interval
    # Only its age makes an adaptive crawl fetch a product whose change the listing does not show.
    if settings.recrawl == "adaptive" and not gone:
        looks = max(looks, suspect.interval + timedelta(hours=settings.max_age_hours))
    return suspect.sampled_at + looks + timedelta(hours=settings.delivery_hours)


def differences(known: Known, said: Said) -> list[str]:
    """The sources in which the catalog differs from the marketplace."""
    if said.detail is None:
        return [GONE]
    return [
        source
        for source, ours, theirs in (
            ("detail", known.detail_hash, _detail_hash(known, said.detail)),
            ("options", known.option_hash, canonical.content_hash(canonical.options_json(said.options))),
        )
        if ours != theirs
    ]


def said_hash(known: Known, said: Said) -> str:
    """The hash of the marketplace's data."""
    if said.detail is None:
        return GONE
    both = _detail_hash(known, said.detail) + canonical.content_hash(canonical.options_json(said.options))
    return md5(both.encode(), usedforsecurity=False).hexdigest()


def _detail_hash(known: Known, detail: ProductDetail) -> str:
    # A missing module keeps the earlier values, as in a crawl.
    previous = None if known.detail is None else orjson.loads(known.detail)
    return canonical.content_hash(canonical.detail_json(detail, previous))


async def _ask(
    database: Database, settings: Settings, products: Sequence[Drawn], calls: RequestCounter
) -> dict[Drawn, Said]:
    """Fetch products from the marketplace; those without an answer in time are left out."""
    loop = asyncio.get_running_loop()
    async with (
        MarketplaceClient(settings) as client,
        AgentPool(settings, database, client, redis_url=addresses(settings).redis_url) as pool,
    ):
        fetcher = Fetcher(
            settings,
            client,
            pool,
            deadline=loop.time() + settings.truth_seconds,
            token_patience=settings.session_patience_seconds,
        )
        turns = asyncio.Semaphore(AT_ONCE)

        async def ask(product: Drawn) -> Said | None:
            async with turns:
                try:
                    return await _said(client, fetcher, product, calls)
                except (FetchError, NoAgentFree):
                    return None

        answers = await asyncio.gather(*(ask(product) for product in products))
    return {product: said for product, said in zip(products, answers, strict=True) if said is not None}


async def _said(client: MarketplaceClient, fetcher: Fetcher, product: Drawn, calls: RequestCounter) -> Said:
    item = ItemNo(product.item_no)

    def control() -> str:
        return client.endpoints.count(SellerId(product.seller_id)).value

    def read_detail(body: bytes) -> ProductDetail:
        return parse_detail(body, item_no=item.value)

    def read_options(body: bytes) -> tuple[ProductOption, ...]:
        return tuple(parse_options(body, item_no=item.value))

    try:
        detail = (await fetcher.fetch(client.endpoints.detail(item).value, read_detail, calls, control=control)).value
    except NotFoundAnswer:
        return Said()
    if not detail.is_of(product.seller_id):
        return Said()
    options = await fetcher.fetch(client.endpoints.options(item).value, read_options, calls, control=control)
    return Said(detail, options.value)
