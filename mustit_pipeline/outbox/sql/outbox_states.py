"""The domain's outbox states as pieces of SQL."""

from mustit_pipeline.domain.states import PRODUCT_OUTBOX
from mustit_pipeline.foundation.tables import listed

WAITING = listed(PRODUCT_OUTBOX.sources("send"))
SENDING = listed(PRODUCT_OUTBOX.sources("release"))
REPLACEABLE = listed(PRODUCT_OUTBOX.sources("supersede"))
UNSENT = f"{WAITING}, {SENDING}"
SENT = f"'{PRODUCT_OUTBOX.target('send').value}'"
RELEASED = f"'{PRODUCT_OUTBOX.target('release').value}'"
COMPLETED = f"'{PRODUCT_OUTBOX.target('complete').value}'"
SUPERSEDED = f"'{PRODUCT_OUTBOX.target('supersede').value}'"

# Whoever waits for rows that others may hold takes them in this order, and nobody waits in a circle.
IN_LOCK_ORDER = 'ORDER BY {row}.seller_id COLLATE "C", {row}.item_no, {row}.version FOR NO KEY UPDATE OF {row}'

# num_nonnulls, because by the usual words the planner may look through all deliveries for those of a product.
# What the row o tells of: its own version, and those that it superseded since the last one that went out. A product
# that goes on changing while nobody listens has waited since the first change that was not told, not since the last.
_TOLD_BY = f"""
    (SELECT {{what}} FROM product_outbox u
     WHERE u.seller_id = o.seller_id AND u.item_no = o.item_no AND u.version <= o.version
       AND (u.version = o.version OR u.superseded_by IS NOT NULL)
       AND u.version > coalesce((SELECT d.version FROM product_outbox d
                                 WHERE d.seller_id = o.seller_id AND d.item_no = o.item_no AND d.version < o.version
                                   AND d.status = {COMPLETED} AND num_nonnulls(d.superseded_by) = 0
                                 ORDER BY d.version DESC LIMIT 1), 0))
"""
FIRST_CHANGED_AT = _TOLD_BY.format(what="min(u.created_at)")
TOLD_VERSIONS = _TOLD_BY.format(what="count(*)")
FIRST_VERSION = _TOLD_BY.format(what="min(u.version)")
