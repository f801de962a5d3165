"""What holds whatever was broken: each promise is one check, and every scenario ends with all of them."""

from sqlalchemy import text

from mustit_pipeline.crawling.sql import executions
from mustit_pipeline.domain.values import ExecutionId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.settings import Settings
from mustit_pipeline.upkeep.sql import stuck
from mustit_pipeline_tests.conftest import JWT_SECRET, TOKEN_KEY
from mustit_pipeline_tests.faults.world import World
from mustit_pipeline_tests.integration.crawls import differences

# How every token of the simulated marketplace begins.
ANY_TOKEN = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9."
SECRETS = (ANY_TOKEN, "Bearer ", TOKEN_KEY, JWT_SECRET)

_UNEVEN = """
    SELECT p.item_no FROM products p
    WHERE p.version <> (SELECT count(*) FROM product_change_sets c
                        WHERE (c.seller_id, c.item_no) = (p.seller_id, p.item_no) AND c.version <= p.version)
       OR p.version <> (SELECT count(*) FROM product_outbox o
                        WHERE (o.seller_id, o.item_no) = (p.seller_id, p.item_no) AND o.version <= p.version)
"""
_STRAYS = """
    SELECT (SELECT count(*) FROM product_change_sets) + (SELECT count(*) FROM product_outbox)
         - (SELECT coalesce(2 * sum(version), 0) FROM products)
"""
# A probe whose product is gone has brought no body, and that is its success. A failed task has a body only where that
# was refused, and what drift has blocked is always kept.
_OUTCOMES = """
    SELECT count(*) AS tasks,
           count(*) FILTER (WHERE status = 'COMPLETED') AS completed,
           count(*) FILTER (WHERE status = 'FAILED') AS failed,
           count(*) FILTER (WHERE bodies > 1) AS stored_twice,
           count(*) FILTER (WHERE bodies > 0 AND status <> 'COMPLETED' AND NOT (status = 'FAILED' AND error_code IN (
               'EXTERNAL_MALFORMED_BODY', 'EXTERNAL_BLOCKED_DRIFT'))) AS without_state,
           count(*) FILTER (WHERE bodies = 0 AND ((status = 'COMPLETED' AND NOT probe)
                                                  OR error_code = 'EXTERNAL_BLOCKED_DRIFT')) AS without_body
    FROM (SELECT t.status, t.probe, t.error_code, count(r.task_id) AS bodies
          FROM crawler_tasks t LEFT JOIN product_raw_data r USING (task_id) WHERE t.execution_id = :id
          GROUP BY t.task_id, t.status, t.probe, t.error_code) AS ended
"""


def check_all(world: World, seller_id: str, settings: Settings | None = None) -> int:
    """Every promise, once all is delivered; returns how many effects the product server has seen."""
    world.deliver(settings or world.settings)
    check_convergence(world, seller_id)
    check_versions_and_events(world)
    check_limits(world, settings or world.settings)
    check_deletions(world, seller_id)
    check_orphans(world)
    check_secrets(world)
    check_outcomes(world)
    return check_effects(world)


def check_convergence(world: World, seller_id: str) -> None:
    """The product server equals the marketplace, field by field."""
    found = differences(world.market, world.receiver, seller_id)
    if found:
        raise AssertionError(f"{len(found)} products differ, such as {next(iter(found.items()))}")


def check_effects(world: World) -> int:
    """Each version took effect once, versions only grew, and the server was told no nonsense."""
    newest: dict[tuple[str, int], int] = {}
    log = world.receiver.log()
    for effect in log:
        key = (effect.seller_id, effect.item_no)
        if effect.version <= newest.get(key, 0):
            raise AssertionError(f"{key}: version {effect.version} after {newest[key]}")
        newest[key] = effect.version
    audit = world.receiver.audit()
    if audit["rejected"] or audit["repeatsWithOtherContent"] or audit["updatesOfUnknown"]:
        raise AssertionError(f"the server was told nonsense: {audit}")
    return len(log)


def check_versions_and_events(world: World) -> None:
    """Every version has one change set and one outbox row, and there is none without a version."""
    with world.database.reading() as connection:
        uneven = list(connection.execute(text(_UNEVEN)).scalars())
        strays = connection.execute(text(_STRAYS)).scalar_one()
    if uneven or strays:
        raise AssertionError(f"versions, change sets and events differ: items {uneven[:5]}, {strays} too many")


def check_limits(world: World, settings: Settings) -> None:
    """No window ever held more than the limit, and no agent asked twice at once, as the marketplace counts it."""
    audit = world.market.audit()
    if audit["maxInWindow"] > settings.requests_per_hour or audit["limit429"]:
        raise AssertionError(f"{audit['maxInWindow']} requests in a window, {audit['limit429']} answers of 429")
    if audit["maxInFlightPerAgent"] > 1:
        raise AssertionError(f"one agent had {audit['maxInFlightPerAgent']} requests in flight")


def check_deletions(world: World, seller_id: str) -> None:
    """Nothing that is on sale is deleted, here or at the product server."""
    on_sale = {product["itemNo"] for product in world.market.products(seller_id)}
    with world.database.reading() as connection:
        query = text("SELECT item_no FROM products WHERE seller_id = :seller AND deleted_at IS NOT NULL")
        deleted = set(connection.execute(query, {"seller": seller_id}).scalars())
    deleted |= {held.item_no for held in world.receiver.state(seller_id) if held.deleted}
    if deleted & on_sale:
        raise AssertionError(f"on sale, but deleted: {sorted(deleted & on_sale)[:5]}")


def check_orphans(world: World) -> None:
    """Nothing outlives its lease: no task without a worker, no event without a sender."""
    with world.database.reading() as connection:
        found = stuck.counts(connection, utc_now())
    if found.tasks or found.events:
        raise AssertionError(f"left behind: {found}")


def check_secrets(world: World) -> None:
    """No token and no key in anything that was stored, sent or logged."""
    patterns = [f"%{secret}%" for secret in SECRETS]
    with world.database.reading() as connection:
        tables = connection.execute(text("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")).scalars().all()
        for table in tables:
            query = text(f'SELECT count(*) FROM "{table}" AS t WHERE CAST(t AS text) LIKE ANY(:patterns)')
            if connection.execute(query, {"patterns": patterns}).scalar_one():
                raise AssertionError(f"a secret is in the table {table}")
    told = world.logged() + str(world.receiver.log())
    if any(secret in told for secret in SECRETS):
        raise AssertionError("a secret was logged or sent")


def check_outcomes(world: World) -> None:
    """What has ended adds up to what was planned; a completed task has exactly its body, a refused one at most that."""
    with world.database.reading() as connection:
        for execution_id in connection.execute(text("SELECT execution_id FROM crawling_schedule_executions")).scalars():
            counted = executions.get(connection, ExecutionId(execution_id)).execution
            row = connection.execute(text(_OUTCOMES), {"id": execution_id}).one()
            told = (counted.total_tasks, counted.completed_tasks, counted.failed_tasks)
            if told != (row.tasks, row.completed, row.failed):
                raise AssertionError(f"{execution_id} counts {told}, its tasks are {row}")
            if row.stored_twice or row.without_state or row.without_body:
                raise AssertionError(f"{execution_id}: bodies and states differ: {row}")
