"""What a seller's tables hold, told by a hash of hashes that are stored anyway."""

from dataclasses import dataclass

from sqlalchemy import Connection, text

# Bodies that wait to be processed count already: they are what the step that fetched them has brought. They are brought
# together with the products by grouping: a join would be as good as the planner's guess of how many wait.
_FINGERPRINTS = text("""
    WITH waiting AS (
        SELECT DISTINCT ON (source, item_no) source, item_no, content_hash FROM product_raw_data
        WHERE seller_id = :seller_id AND source IN ('PRODUCT_DETAIL', 'PRODUCT_OPTION') AND status = 'PENDING'
          AND content_hash IS NOT NULL
        ORDER BY source, item_no, raw_id DESC
    ), said AS (
        SELECT item_no, deleted_at IS NULL AND absent_sweeps = 0 AND last_seen_at IS NOT NULL AS listed,
               detail_data_hash AS detail, option_data_hash AS options, NULL AS new_detail, NULL AS new_options,
               version, published_hash
        FROM products WHERE seller_id = :seller_id
        UNION ALL
        SELECT item_no, NULL, NULL, NULL, CASE source WHEN 'PRODUCT_DETAIL' THEN content_hash END,
               CASE source WHEN 'PRODUCT_OPTION' THEN content_hash END, NULL, NULL
        FROM waiting
    ), known AS (
        SELECT item_no, bool_or(listed) AS listed, coalesce(max(new_detail), max(detail)) AS detail,
               coalesce(max(new_options), max(options)) AS options, max(version) AS version,
               max(published_hash) AS published_hash
        FROM said GROUP BY item_no HAVING count(version) = 1
    )
    SELECT md5(coalesce(string_agg(CAST(item_no AS text), ',' ORDER BY item_no) FILTER (WHERE listed), '')) AS listing,
           md5(coalesce(string_agg(item_no || ':' || detail, ',' ORDER BY item_no), '')) AS details,
           md5(coalesce(string_agg(item_no || ':' || options, ',' ORDER BY item_no), '')) AS options,
           md5(coalesce(string_agg(item_no || ':' || version || ':' || coalesce(published_hash, ''), ','
                                   ORDER BY item_no) FILTER (WHERE version > 0), '')) AS versions,
           count(*) FILTER (WHERE listed) AS listed_rows, count(detail) AS detail_rows, count(options) AS option_rows,
           coalesce(sum(version), 0) AS version_rows
    FROM known
""")


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """What a seller's tables hold, as hashes of stored hashes: the same content has the same one; and their rows."""

    listing: str
    details: str
    options: str
    versions: str
    listed_rows: int
    detail_rows: int
    option_rows: int
    version_rows: int


def fingerprints(connection: Connection, seller_id: str) -> Fingerprints:
    """Hashes of what is known of a seller's products, with bodies that wait to be processed counted in."""
    return Fingerprints(*connection.execute(_FINGERPRINTS, {"seller_id": seller_id}).one())
