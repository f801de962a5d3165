"""The domain's outbox states as pieces of SQL."""

from mustit_pipeline.domain.states import PRODUCT_OUTBOX
from mustit_pipeline.store.task_states import listed

WAITING = listed(PRODUCT_OUTBOX.sources("send"))
SENDING = listed(PRODUCT_OUTBOX.sources("release"))
REPLACEABLE = listed(PRODUCT_OUTBOX.sources("supersede"))
UNSENT = f"{WAITING}, {SENDING}"
SENT = f"'{PRODUCT_OUTBOX.target('send').value}'"
RELEASED = f"'{PRODUCT_OUTBOX.target('release').value}'"
COMPLETED = f"'{PRODUCT_OUTBOX.target('complete').value}'"
SUPERSEDED = f"'{PRODUCT_OUTBOX.target('supersede').value}'"
