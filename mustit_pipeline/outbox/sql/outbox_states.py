"""The domain's outbox states as SQL fragments."""

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

# The order in which every transaction waits for rows, so that none can deadlock.
IN_LOCK_ORDER = 'ORDER BY {row}.seller_id COLLATE "C", {row}.item_no, {row}.version FOR NO KEY UPDATE OF {row}'

# num_nonnulls() keeps the planner from scanning all deliveries for those of a product. The versions that the row o
# announces: its own, and those that it superseded since the last one sent. A product that keeps changing during an
# outage has waited since its first unsent change, not since the last.
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
