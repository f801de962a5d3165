"""Stored bodies that are processed once more, whatever became of them the first time."""

from sqlalchemy import Connection, text

from mustit_pipeline.domain.states import RAW, RawStatus

# The newest body of each call, whatever became of it; of listings the pages of the newest sweep. An older body would
# undo what a newer one said, even where that can no longer be read.
_STORED = " UNION ALL ".join(
    f"SELECT raw_id, source, item_no, execution_id FROM product_raw_data"
    f" WHERE seller_id = :seller_id AND status = '{status.value}'"
    for status in RawStatus
)
_REOPEN_NEWEST = text(f"""
    WITH stored AS MATERIALIZED (
        SELECT raw_id, source, execution_id, max(raw_id) OVER (PARTITION BY source, item_no) AS newest
        FROM ({_STORED}) AS bodies
    ), chosen AS (
        SELECT raw_id FROM stored WHERE source <> 'MINISHOP' AND raw_id = newest
        UNION ALL
        SELECT raw_id FROM stored
        WHERE source = 'MINISHOP' AND raw_id >= (
            SELECT min(raw_id) FROM stored
            WHERE source = 'MINISHOP' AND execution_id = (
                SELECT execution_id FROM stored WHERE source = 'MINISHOP' AND raw_id = newest LIMIT 1))
    )
    UPDATE product_raw_data SET status = :target, content = NULL, content_hash = NULL
    WHERE raw_id = ANY(ARRAY(SELECT raw_id FROM chosen)) AND status = ANY(CAST(:sources AS text[]))
""")


def reopen_newest(connection: Connection, seller_id: str) -> int:
    """Let what is known of a seller be read anew from its stored bodies; returns how many they are."""
    rules = {"target": RAW.target("replay").value, "sources": [status.value for status in RAW.sources("replay")]}
    return connection.execute(_REOPEN_NEWEST, {"seller_id": seller_id} | rules).rowcount
