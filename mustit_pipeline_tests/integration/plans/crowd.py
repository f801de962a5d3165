"""A database with a long history, and two sellers in it that came after the planner had looked."""

from datetime import date

from sqlalchemy import Connection, text

from mustit_pipeline.agents import roster
from mustit_pipeline.crawling.sql import task_months
from mustit_pipeline.foundation.database import Database
from mustit_pipeline_tests.integration.rows import MONTH

OLD_MONTH = date(2026, 9, 1)
SELLERS, DAYS, PRODUCTS = 30, 60, 1_000
# Of each of the newcomers: one whose bodies wait to be processed, one whose products wait to be published.
NEW_PRODUCTS = 1_000
WAITING, READY = "newcomer", "newcomer with changes"
BUSY = [WAITING, READY]
LEASED, EXPIRED = 100, 20

_SELLERS = """
    INSERT INTO sellers (seller_id, name, status, interval_amount, interval_unit, total_product_count, created_at)
    SELECT seller, 'n', 'ACTIVE', 1, 'DAYS', 10, now() - interval '300 days'
    FROM unnest(CAST(:sellers AS text[])) seller
"""
_SCHEDULES = """
    INSERT INTO crawling_schedules (schedule_id, seller_id, rule_name, expression, status, next_due_at)
    SELECT gen_random_uuid(), seller, seller, 'rate(1 day)', 'ACTIVE', now() + interval '1 hour'
    FROM unnest(CAST(:sellers AS text[])) seller
"""
_HISTORY = (
    f"""INSERT INTO crawling_schedule_executions (execution_id, seller_id, schedule_id, status, triggered_by,
                                                  task_month, sweep_status, started_at, ended_at, total_tasks,
                                                  completed_tasks, listed_count, created_at, updated_at)
        SELECT gen_random_uuid(), c.seller_id, c.schedule_id,
               CASE WHEN d > {DAYS // 2} AND c.seller_id <> 'seller 2' THEN 'FAILED' ELSE 'COMPLETED' END, 't',
               DATE '{OLD_MONTH}', 'COMPLETE',
               now() - d * interval '1 day', now() - d * interval '1 day', 2, 2, 4, now() - d * interval '1 day',
               now() - d * interval '1 day'
        FROM generate_series(1, {DAYS}) d, crawling_schedules c""",
    f"""INSERT INTO products (seller_id, item_no, minishop_data_hash, detail_data_hash, option_data_hash, data,
                              data_hash, published_hash, version, delivered_version, created_at)
        SELECT 'seller ' || s, s * 100000 + n, 'a', 'b', 'c', '{{}}', 'x', 'x', 1, 1, now() - interval '100 days'
        FROM generate_series(1, {SELLERS}) s, generate_series(1, {PRODUCTS}) n""",
    """INSERT INTO recrawl_products (seller_id, item_no, detail_fetched_at, option_fetched_at, detail_hours)
       SELECT seller_id, item_no, now() - interval '50 days', now() - interval '50 days', 1000 FROM products""",
    """INSERT INTO recrawl_sellers (seller_id, swept_at, products, detail_rates, option_rates)
       SELECT seller_id, now() - interval '2 hours', 1000, ARRAY[1000], ARRAY[0, 1000] FROM sellers""",
    """INSERT INTO product_change_sets (seller_id, item_no, version, life_cycle, change_types, changes, product_data,
                                        execution_id, detected_at)
       SELECT seller_id, item_no, 1, 'CREATED', '{}', '[]', '{}', md5(seller_id)::uuid, now() - interval '50 days'
       FROM products""",
    """INSERT INTO product_outbox (seller_id, item_no, version, event_type, idempotency_key, status, created_at,
                                   next_attempt_at, completed_at, attempts, last_status)
       SELECT seller_id, item_no, 1, 'PRODUCT_CREATED', item_no || '-1', 'COMPLETED', now() - interval '50 days',
              now() - interval '50 days', now() - interval '50 days', 1, 200
       FROM products""",
    """INSERT INTO product_raw_data (seller_id, execution_id, task_id, source, item_no, body, content_hash, status,
                                     fetched_at, processed_at)
       SELECT seller_id, md5(seller_id)::uuid, gen_random_uuid(), source, item_no, '{}', 'b', 'PROCESSED',
              now() - interval '50 days', now() - interval '50 days'
       FROM products, unnest(ARRAY['PRODUCT_DETAIL', 'PRODUCT_OPTION']) source""",
    """INSERT INTO product_raw_data (seller_id, execution_id, task_id, source, item_no, body, status, fetched_at)
       SELECT seller_id, md5(seller_id)::uuid, gen_random_uuid(), 'PRODUCT_DETAIL', item_no, '{}', 'FAILED',
              now() - n * interval '1 day'
       FROM products, generate_series(41, 45) n WHERE seller_id = 'seller 5'""",
    """INSERT INTO crawler_tasks (task_month, task_id, execution_id, seller_id, task_type, task_key, item_no,
                                  request_url, status, priority, created_at, completed_at)
       SELECT (CAST(:months AS date[]))[1 + item_no / 100000 % 2], gen_random_uuid(), md5(seller_id)::uuid, seller_id,
              kind, kind || chr(58) || item_no, item_no, '/', 'COMPLETED', 20, now() - interval '50 days',
              now() - interval '50 days'
       FROM products, unnest(ARRAY['PRODUCT_DETAIL', 'PRODUCT_OPTION']) kind""",
    """INSERT INTO agent_bookings (booking_id, agent_id, booked_at, expires_at, answered_at)
       SELECT gen_random_uuid(), agent_id, at, at, at
       FROM user_agents, generate_series(1, 400) n, LATERAL (SELECT now() - n * interval '50 seconds' AS at) t""",
    """INSERT INTO alerts (subject, kind, title, detail, opened_at, last_seen_at, ended_at)
       SELECT 'run ' || n, 'RUN_FAILED', 't', 'd', now() - n * interval '1 minute', now() - n * interval '1 minute',
              now()
       FROM generate_series(1, 20000) n""",
    """INSERT INTO truth_samples (seller_id, item_no, verdict, sampled_at, judged_at, said_hash)
       SELECT 'seller 7', n, 'EQUAL', now() - n * interval '1 hour', now() - n * interval '1 hour', 'x'
       FROM generate_series(1, 20000) n""",
    """INSERT INTO trigger_messages (queue, message_id, received_at)
       SELECT 'queue', n, now() - n * interval '1 minute' FROM generate_series(1, 20000) n""",
    """INSERT INTO crawling_slices (run_id, execution_id, outcome, ended_at)
       SELECT 'run ' || n, e.execution_id, 'WORKED_THROUGH', now() - n * interval '1 minute'
       FROM (SELECT execution_id, row_number() OVER () AS position FROM crawling_schedule_executions) e,
            generate_series(1, 20000) n
       WHERE e.position = 1 + n % 1000""",
    f"""INSERT INTO scheduler_outbox (outbox_id, schedule_id, event_type, payload, status, created_at, next_attempt_at,
                                      completed_at)
        SELECT gen_random_uuid(), schedule_id, 'SCHEDULE_UPDATED', '{{}}', 'COMPLETED', at, at, at
        FROM crawling_schedules, generate_series(1, {20_000 // SELLERS}) n,
             LATERAL (SELECT now() - n * interval '30 minutes' AS at) t""",
    # Most changes are made by one key, and all logins from one address.
    """INSERT INTO audit_log (at, actor_kind, actor, action, target)
       SELECT now() - (20000 - n) * interval '1 minute', 'key', CASE WHEN n % 1000 = 0 THEN 'kim' ELSE 'key' END,
              CASE WHEN n % 1000 = 1 THEN 'user.add' ELSE 'crawl' END, 'seller ' || n % 500
       FROM generate_series(1, 20000) n""",
    """INSERT INTO login_failures (account, address, failures, failed_at, seen_at)
       SELECT CASE WHEN n % 2 = 0 THEN 'kim' ELSE 'account ' || n END,
              CASE WHEN n % 2 = 0 THEN 'address ' || n ELSE '127.0.0.1' END, 1,
              now() - n * interval '1 minute', now() - n * interval '1 minute'
       FROM generate_series(1, 20000) n""",
    """INSERT INTO users (user_name, role) VALUES ('kim', 'admin')""",
    """INSERT INTO revoked_tokens (jti, expires_at)
       SELECT md5(n::text)::uuid, now() - n * interval '1 minute' FROM generate_series(1, 20000) n""",
    """INSERT INTO login_links (link_id, secret_hash, user_name, expires_at)
       SELECT n, '', 'kim', now() - n * interval '1 minute' FROM generate_series(1, 20000) n""",
    # Two years of hours.
    """INSERT INTO tallies (subject, hour, labels, slot, number, seconds, buckets)
       SELECT 'FETCH', date_trunc('hour', now()) - n * interval '1 hour', ARRAY['PRODUCT_DETAIL', 'ok'], slot, 1, 0.1,
              array_fill(1, ARRAY[15])
       FROM generate_series(1, 17520) n, generate_series(0, 1) slot""",
    """INSERT INTO tallies (subject, hour, labels, slot, number, seconds, buckets)
       SELECT 'FETCH', 'infinity', ARRAY['PRODUCT_DETAIL', 'ok'], slot, 1, 0.1, array_fill(1, ARRAY[15])
       FROM generate_series(0, 20) slot""",
    """INSERT INTO schema_drift (path, kind, observed, expected, sample, count, seller_id)
       SELECT 'field ' || n, 'NEW', 'text', 'nothing', 'x', 1, 'seller 7' FROM generate_series(1, 100) n""",
)
_NEWCOMERS = (
    f"""INSERT INTO crawling_schedule_executions (execution_id, seller_id, schedule_id, status, triggered_by,
                                                  task_month, sweep_status, started_at, total_tasks, listed_count,
                                                  slice_no)
        SELECT md5(seller_id)::uuid, seller_id, schedule_id, 'RUNNING', 't', DATE '{MONTH}', 'COMPLETE', now(),
               {2 * NEW_PRODUCTS}, {NEW_PRODUCTS}, 1
        FROM crawling_schedules WHERE seller_id = ANY(CAST(:busy AS text[]))""",
    # One in nine has changed; of the second seller every product.
    f"""INSERT INTO products (seller_id, item_no, minishop_data_hash, detail_data_hash, option_data_hash, data,
                              data_hash, published_hash, version, last_seen_execution_id, last_seen_at)
        SELECT s.seller_id, s.position * 10000000 + n, 'a', 'b', 'c', '{{}}', 'x',
               CASE WHEN s.seller_id = '{READY}' THEN 'old' ELSE 'x' END, 1, md5(s.seller_id)::uuid, now()
        FROM unnest(CAST(:busy AS text[])) WITH ORDINALITY AS s(seller_id, position),
             generate_series(1, {NEW_PRODUCTS}) n""",
    """INSERT INTO recrawl_products (seller_id, item_no, detail_fetched_at, option_fetched_at)
       SELECT seller_id, item_no, now() - interval '1 hour', now() - interval '30 hours' FROM products
       WHERE seller_id = ANY(CAST(:busy AS text[]))""",
    """INSERT INTO product_change_sets (seller_id, item_no, version, life_cycle, change_types, changes, product_data,
                                        execution_id)
       SELECT seller_id, item_no, 1, 'CREATED', '{}', '[]', '{}', md5('before')::uuid FROM products
       WHERE seller_id = ANY(CAST(:busy AS text[]))""",
    """INSERT INTO product_outbox (seller_id, item_no, version, event_type, idempotency_key, status)
       SELECT seller_id, item_no, 1, 'PRODUCT_CREATED', item_no || '-1', CASE WHEN item_no % 50 = 0 THEN 'FAILED'
              ELSE 'WAITING' END FROM products WHERE seller_id = ANY(CAST(:busy AS text[]))""",
    """UPDATE product_outbox SET status = 'SENDING', lease_owner = 'x', lease_no = 1, attempts = 1,
              lease_expires_at = now() + CASE WHEN item_no % 2 = 0 THEN interval '-1 hour' ELSE interval '1 hour' END
       WHERE seller_id = ANY(CAST(:busy AS text[])) AND item_no % 50 = 1""",
    f"""INSERT INTO product_raw_data (seller_id, execution_id, task_id, source, item_no, body, content, content_hash,
                                      status, attempts)
        SELECT seller_id, last_seen_execution_id, gen_random_uuid(), source, item_no, '{{}}', '{{}}',
               CASE WHEN item_no % 9 = 0 THEN 'new' WHEN source = 'PRODUCT_DETAIL' THEN 'b' ELSE 'c' END, 'PENDING', 0
        FROM products, unnest(ARRAY['PRODUCT_DETAIL', 'PRODUCT_OPTION']) source WHERE seller_id = '{WAITING}'""",
    f"""INSERT INTO product_raw_data (seller_id, execution_id, task_id, source, item_no, body, status, attempts)
        SELECT seller_id, md5('failed')::uuid, gen_random_uuid(), 'PRODUCT_DETAIL', item_no, '{{}}', 'FAILED', 1
        FROM products WHERE seller_id = '{READY}' AND item_no % 5 = 0""",
    f"""INSERT INTO product_raw_data (seller_id, execution_id, task_id, source, item_no, body, status, attempts)
        SELECT seller_id, md5('processed')::uuid, gen_random_uuid(), 'PRODUCT_DETAIL', item_no, '{{}}', 'PROCESSED', 1
        FROM products WHERE seller_id = '{READY}' AND item_no % 10 = 0""",
    f"""INSERT INTO crawler_tasks (task_month, task_id, execution_id, seller_id, task_type, task_key, item_no,
                                   request_url, status, priority)
        SELECT DATE '{MONTH}', gen_random_uuid(), md5(seller_id)::uuid, seller_id, kind, kind || chr(58) || item_no,
               item_no, '/', CASE WHEN seller_id = '{READY}' THEN 'COMPLETED' ELSE 'PUBLISHED' END, 20
        FROM products, unnest(ARRAY['PRODUCT_DETAIL', 'PRODUCT_OPTION']) kind
        WHERE seller_id = ANY(CAST(:busy AS text[]))""",
    f"""INSERT INTO crawler_tasks (task_month, task_id, execution_id, seller_id, task_type, task_key, page_no,
                                   request_url, status, priority)
        SELECT DATE '{MONTH}', gen_random_uuid(), md5(seller)::uuid, seller, 'MINISHOP', 'MINISHOP' || chr(58) || n,
               n, '/', 'COMPLETED', 10
        FROM generate_series(0, 9) n, unnest(CAST(:busy AS text[])) seller""",
    f"""UPDATE crawler_tasks SET status = 'IN_PROGRESS', lease_owner = 'me', lease_no = 1,
               lease_expires_at = now() + CASE WHEN item_no % 100 < {EXPIRED // 2} THEN -1 ELSE 1 END
                                          * interval '1 hour'
        WHERE seller_id = '{WAITING}' AND item_no % 1000 < {LEASED // 2}""",
    f"""UPDATE crawler_tasks SET status = 'WAITING'
        WHERE seller_id = '{WAITING}' AND item_no % 1000 BETWEEN 900 AND 950 AND status = 'PUBLISHED'""",
    """INSERT INTO scheduler_outbox (outbox_id, schedule_id, event_type, payload, status, lease_owner, lease_expires_at)
       SELECT gen_random_uuid(), schedule_id, 'SCHEDULE_UPDATED', '{}', changes.status, owner, now() - interval '1 hour'
       FROM (SELECT *, row_number() OVER (ORDER BY seller_id) AS position FROM crawling_schedules) AS schedules
       JOIN (VALUES (1, 'FAILED', NULL), (2, 'SENDING', 'x'), (0, 'WAITING', NULL)) AS changes(position, status, owner)
       ON changes.position = schedules.position % 3""",
    """INSERT INTO truth_samples (seller_id, item_no, verdict, sampled_at, said_hash)
       SELECT seller_id, item_no, 'OPEN', now() - interval '1 day', 'x' FROM products
       WHERE seller_id = 'seller 3' ORDER BY item_no LIMIT 20""",
    """INSERT INTO alerts (subject, kind, title, detail, opened_at, last_seen_at, notice_at)
       SELECT 'open ' || n, 'RUN_FAILED', 't', 'd', now(), now(), now() FROM generate_series(1, 20) n""",
    """INSERT INTO trigger_messages (queue, message_id, reason, body, received_at)
       SELECT 'queue', 'parked ' || n, 'NOT_JSON', 'x', now() FROM generate_series(1, 20) n""",
    """INSERT INTO crawling_slices (run_id, execution_id, outcome, ended_at)
       SELECT seller || n, md5(seller)::uuid, 'CRASHED', now() - n * interval '1 second'
       FROM unnest(CAST(:busy AS text[])) seller, generate_series(1, 100) n""",
    f"""INSERT INTO deletion_holds (seller_id, execution_id, status, live_count, item_nos)
        SELECT '{WAITING}', md5('{WAITING}')::uuid, 'OPEN', 100, array_agg(item_no)
        FROM (SELECT item_no FROM products WHERE seller_id = '{WAITING}' LIMIT 20) p""",
    f"""INSERT INTO change_holds (seller_id, status, jumped, emptied, suspicious, looked_at, examples)
        VALUES ('{WAITING}', 'OPEN', 1, 1, 1, 1, '{{1}}')""",
)
# Autovacuum analyzes the months of the task table, and never the table as a whole.
_WITHOUT_THE_WHOLE = """
    SELECT pg_clear_attribute_stats('public', 'crawler_tasks', attname, true) FROM pg_attribute
    WHERE attrelid = 'crawler_tasks'::regclass AND attnum > 0 AND NOT attisdropped
"""


def fill(database: Database) -> None:
    """History first, then what the planner knows of it, then the newcomers, of whom it knows nothing."""
    with database.transaction() as connection:
        task_months.ensure_month(connection, MONTH)
        task_months.ensure_month(connection, OLD_MONTH)
        for table in _own_tables(connection):
            connection.exec_driver_sql(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        roster.ensure_builtin(connection)
        register(connection, [f"seller {number}" for number in range(1, SELLERS + 1)])
        for statement in _HISTORY:
            connection.execute(text(statement), {"months": [MONTH, OLD_MONTH]} if ":months" in statement else {})
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM ANALYZE")
    with database.transaction() as connection:
        connection.exec_driver_sql(_WITHOUT_THE_WHOLE)
        register(connection, BUSY)
        for statement in _NEWCOMERS:
            connection.execute(text(statement), {"busy": BUSY} if ":busy" in statement else {})


def register(connection: Connection, sellers: list[str]) -> None:
    """Sellers that are due in an hour."""
    for statement in (_SELLERS, _SCHEDULES):
        connection.execute(text(statement), {"sellers": sellers})


def _own_tables(connection: Connection) -> list[str]:
    query = "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    return list(connection.execute(text(query)).scalars())
