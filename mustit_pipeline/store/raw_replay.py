"""Stored bodies that are processed once more, whatever became of them the first time."""

from sqlalchemy import Connection, text

from mustit_pipeline.domain.states import RAW

# The newest body of each call, whatever became of it; of listings the pages of the newest sweep. An older body would
# undo what a newer one said, even where that can no longer be read.
_REOPEN_NEWEST = text("""
    WITH stored AS (
        SELECT raw_id, source, execution_id, max(raw_id) OVER (PARTITION BY source, item_no) AS newest
        FROM product_raw_data WHERE seller_id = :seller_id
    ), sweep AS (
        SELECT min(page.raw_id) AS first_page
        FROM stored page JOIN stored last ON last.raw_id = last.newest AND last.execution_id = page.execution_id
        WHERE page.source = 'MINISHOP' AND last.source = 'MINISHOP'
    ), chosen AS (
        SELECT raw_id FROM stored CROSS JOIN sweep
        WHERE raw_id >= CASE source WHEN 'MINISHOP' THEN first_page ELSE newest END
    )
    UPDATE product_raw_data SET status = :target, content = NULL, content_hash = NULL
    WHERE raw_id = ANY(ARRAY(SELECT raw_id FROM chosen)) AND status = ANY(CAST(:sources AS text[]))
""")


def reopen_newest(connection: Connection, seller_id: str) -> int:
    """Let what is known of a seller be read anew from its stored bodies; returns how many they are."""
    rules = {"target": RAW.target("replay").value, "sources": [status.value for status in RAW.sources("replay")]}
    return connection.execute(_REOPEN_NEWEST, {"seller_id": seller_id} | rules).rowcount
