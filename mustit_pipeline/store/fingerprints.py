"""What a seller's tables hold, told by a hash of hashes that are stored anyway."""

from dataclasses import dataclass

from sqlalchemy import Connection, text

# Bodies that wait to be processed count already: they are what the step that fetched them has brought.
_FINGERPRINTS = text("""
    WITH waiting AS (
        SELECT DISTINCT ON (source, item_no) source, item_no, content_hash FROM product_raw_data
        WHERE seller_id = :seller_id AND status = 'PENDING' AND item_no IS NOT NULL AND content_hash IS NOT NULL
        ORDER BY source, item_no, raw_id DESC
    ), known AS (
        SELECT p.item_no, p.deleted_at IS NULL AND p.absent_sweeps = 0 AND p.last_seen_at IS NOT NULL AS listed,
               coalesce(d.content_hash, p.detail_data_hash) AS detail,
               coalesce(o.content_hash, p.option_data_hash) AS options,
               p.version, p.published_hash
        FROM products p
        LEFT JOIN waiting d ON d.source = 'PRODUCT_DETAIL' AND d.item_no = p.item_no
        LEFT JOIN waiting o ON o.source = 'PRODUCT_OPTION' AND o.item_no = p.item_no
        WHERE p.seller_id = :seller_id
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
