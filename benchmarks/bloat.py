"""What many re-crawls of one seller leave behind: sizes of tables and indexes, and rows that are dead."""

import sys
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import text

from benchmarks.job import Stopwatch
from benchmarks.ours import crawl_seller, settings_of
from benchmarks.report import Table, Target
from benchmarks.resting import alter_system, wait_for_autovacuum
from benchmarks.world import AGENTS, connected, opened
from mustit_pipeline.delivery.relay import relay
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.simulator.process import start_product_server
from mustit_pipeline.upkeep.maintenance import maintain

SELLER = "again"
MOST = 1.3
# Autovacuum looks every minute, and a day has 1,440 of them: here it looks every second, and the next day waits for it.
NAP = "1s"
LOOK_SECONDS, LONGEST_SECONDS = 0.5, 20.0
# Below this a table is a few pages, and its bytes per row say nothing.
JUDGED_BYTES = 1024 * 1024
TABLES = (
    "crawling_schedule_executions",
    "crawler_tasks",
    "product_raw_data",
    "products",
    "product_change_sets",
    "product_outbox",
    "agent_bookings",
)

# A partitioned table has no file of its own.
_SIZES = text("""
    SELECT sum(pg_table_size(part)) AS heap, sum(pg_indexes_size(part)) AS indexes,
           sum(pg_stat_get_dead_tuples(part)) AS dead
    FROM (SELECT CAST(CAST(:table AS regclass) AS oid) AS part
          UNION ALL SELECT inhrelid FROM pg_inherits WHERE inhparent = CAST(:table AS regclass)) AS parts
""")


@dataclass(frozen=True, slots=True)
class Plan:
    """One seller, after which of its re-crawls is looked, and how many of them back overtaken bodies are kept."""

    products: int = 1_000
    looks: tuple[int, ...] = (10, 25, 50)
    kept: int = 10


QUICK = Plan(40, (2, 3, 4), kept=2)


@dataclass(frozen=True, slots=True)
class Size:
    """A table after so many re-crawls."""

    live: int
    dead: int
    table_bytes: int
    index_bytes: int

    @property
    def bytes_per_row(self) -> float:
        return (self.table_bytes + self.index_bytes) / max(1, self.live)

    @property
    def dead_share(self) -> float:
        return self.dead / max(1, self.live + self.dead)


@dataclass(slots=True)
class Bloat:
    """Every table at every look."""

    plan: Plan
    sizes: dict[int, dict[str, Size]] = field(default_factory=dict[int, dict[str, Size]])

    def targets(self) -> list[Target]:
        first, last = self.sizes[self.plan.looks[0]], self.sizes[self.plan.looks[-1]]
        return [
            Target(
                f"bytes per live row of {table}, {self.plan.looks[-1]} against {self.plan.looks[0]} re-crawls",
                last[table].bytes_per_row / first[table].bytes_per_row,
                at_most=MOST,
            )
            for table in TABLES
            if last[table].table_bytes >= JUDGED_BYTES
        ]

    def table(self) -> Table:
        rows = [
            [
                table,
                str(look),
                f"{size.live:,}",
                f"{size.table_bytes / 1024:,.0f}",
                f"{size.index_bytes / 1024:,.0f}",
                f"{size.bytes_per_row:,.0f}",
                f"{100 * size.dead_share:.0f} %",
            ]
            for table in TABLES
            for look, size in ((look, sizes[table]) for look, sizes in self.sizes.items())
        ]
        title = f"re-crawls of {self.plan.products:,} products, 1 to 5 % changed, with a night's maintenance after each"
        return Table(title, ["table", "re-crawls", "live rows", "table KB", "index KB", "bytes/row", "dead"], rows)

    def document(self) -> dict[str, object]:
        looks = {look: {table: asdict(size) for table, size in sizes.items()} for look, sizes in self.sizes.items()}
        return {"products": self.plan.products, "recrawls": looks}


def run(plan: Plan) -> Bloat:
    """Crawl, relay and maintain again and again; autovacuum is PostgreSQL's own and has its time after each."""
    bloat = Bloat(plan)
    with opened() as world, start_product_server(state=world.home / "receiver") as receiver:
        url = world.fresh_database()
        world.add_seller(SELLER, plan.products)
        world.prepare_ours(url, SELLER, AGENTS)
        # A day lasts as long as a re-crawl here: bodies that the newest only repeat go the same night.
        settings = settings_of(
            world.job(SELLER, url, first=True), product_server_url=receiver.url, raw_unchanged_days=0
        )
        with connected(url) as database:
            alter_system(database, f"SET autovacuum_naptime = '{NAP}'")
            begun: list[datetime] = []
            for crawled in range(plan.looks[-1] + 1):
                begun.append(utc_now())
                crawl_seller(database, settings, SellerId(SELLER), Stopwatch())
                relay(database, settings)
                kept = utc_now() - begun[-1 - min(crawled, plan.kept)]
                night = settings.model_copy(update={"raw_retention_days": kept / timedelta(days=1)})
                maintain(database, night, utc_now())
                wait_for_autovacuum(database, LONGEST_SECONDS, LOOK_SECONDS)
                if crawled in plan.looks:
                    bloat.sizes[crawled] = _sizes(database)
                    print(f"{crawled} re-crawls: {bloat.sizes[crawled]}", file=sys.stderr, flush=True)
                world.market.random_changes(SELLER, max(1, plan.products * (1 + crawled % 5) // 100))
    return bloat


def _sizes(database: Database) -> dict[str, Size]:
    with database.reading() as connection:
        found: dict[str, Size] = {}
        for table in TABLES:
            live = connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()
            row = connection.execute(_SIZES, {"table": table}).one()
            found[table] = Size(live, int(row.dead), int(row.heap), int(row.indexes))
    return found
