"""The short version of the growth benchmark: no time is judged on a busy machine."""

from dataclasses import replace
from pathlib import Path

from sqlalchemy import text

from benchmarks import growth, growth_plot
from benchmarks.growth import Growth, Plan
from mustit_pipeline.foundation.database import Database

# Rows that belong together, table by table; each of these finds none.
ODD = {
    "tasks that add up to no execution": """
        SELECT e.execution_id FROM crawling_schedule_executions e
        LEFT JOIN (SELECT execution_id, task_month, count(*) AS total,
                          count(*) FILTER (WHERE status = 'COMPLETED') AS completed,
                          count(*) FILTER (WHERE status = 'FAILED') AS failed
                   FROM crawler_tasks GROUP BY execution_id, task_month) t USING (execution_id, task_month)
        WHERE (t.total, t.completed, t.failed) IS DISTINCT FROM (e.total_tasks, e.completed_tasks, e.failed_tasks)
    """,
    "tasks of another month than their execution's": """
        SELECT task_id FROM crawler_tasks t JOIN crawling_schedule_executions e USING (execution_id)
        WHERE t.task_month <> e.task_month OR date_trunc('month', t.created_at) <> date_trunc('month', e.created_at)
           OR t.seller_id <> e.seller_id
    """,
    "calls that name another product or seller": """
        SELECT task_id FROM crawler_tasks
        WHERE (item_no IS NOT NULL AND (task_key <> task_type || ':' || item_no
                                        OR request_url NOT LIKE '%/' || item_no || '/%'))
           OR (item_no IS NULL AND request_url NOT LIKE '%sellerId=' || seller_id || '&%')
    """,
    "bodies without their task": """
        SELECT raw_id FROM product_raw_data r
        WHERE NOT EXISTS (SELECT FROM crawler_tasks t WHERE t.task_id = r.task_id AND t.execution_id = r.execution_id
                          AND t.seller_id = r.seller_id AND t.item_no IS NOT DISTINCT FROM r.item_no)
    """,
    "products whose versions have no change set or event": """
        SELECT p.item_no FROM products p
        WHERE p.version <> (SELECT count(*) FROM product_change_sets c
                            WHERE (c.seller_id, c.item_no) = (p.seller_id, p.item_no))
           OR p.version <> (SELECT count(*) FROM product_outbox o
                            WHERE (o.seller_id, o.item_no) = (p.seller_id, p.item_no))
    """,
    "events with another key than their version's": """
        SELECT outbox_id FROM product_outbox
        WHERE idempotency_key <> seller_id || ':' || item_no || ':' || version
    """,
    "what happened in the wrong order": """
        SELECT execution_id FROM crawling_schedule_executions
        WHERE NOT (created_at <= started_at AND started_at <= ended_at AND ended_at <= now())
    """,
}


def test_copies_of_a_crawled_seller_fit_together_like_what_was_crawled() -> None:
    odd: dict[str, object] = {}
    plan = replace(growth.QUICK, sizes=(80,))

    def look(database: Database) -> None:
        with database.reading() as connection:
            found = {what: connection.execute(text(query)).scalars().all() for what, query in ODD.items()}
        odd.update({what: rows for what, rows in found.items() if rows})

    grown = growth.run(plan, look)

    assert odd == {}
    [stored] = grown.stored.values()
    assert stored["products"] >= 80
    assert stored["tasks"] >= 10 * 80
    assert all(80 in measured for measured in grown.seconds.values())
    assert {"first crawl", "re-crawl: publish"} < {one for one, at in grown.seconds.items() if growth.EMPTY in at}


def test_growth_is_judged_by_the_slowest_size_and_short_operations_with_an_allowance() -> None:
    taken = {
        "flat": (1.0, 1.2, 1.1),
        "grows": (1.0, 1.1, 1.31),
        "has a bad plan in between": (1.0, 3.0, 1.0),
        "moves by milliseconds": (0.001, 0.002, 0.006),
        "is short and grows": (0.001, 0.002, 0.019),
    }
    grown = Growth(Plan((100, 1000)))
    for operation, times in taken.items():
        for size, seconds in zip((growth.EMPTY, 100, 1000), times, strict=True):
            grown.note(operation, size, seconds)

    met = dict(zip(taken, (target.is_met for target in grown.targets()), strict=True))

    assert [operation for operation, is_met in met.items() if is_met] == ["flat", "moves by milliseconds"]


def test_the_picture_has_a_line_for_every_operation(tmp_path: Path) -> None:
    grown = Growth(Plan((10, 100)))
    for size in (10, 100):
        grown.note("recovery", size, 1.0)

    growth_plot.draw(grown, tmp_path / "growth.svg")

    assert "recovery" in (tmp_path / "growth.svg").read_text()
