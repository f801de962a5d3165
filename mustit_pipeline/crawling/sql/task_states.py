"""The domain's task states as pieces of SQL."""

from mustit_pipeline.domain.states import TASK
from mustit_pipeline.foundation.tables import listed

CLAIMABLE = listed(TASK.sources("start"))
LEASED = listed(TASK.sources("release"))
# The same, for what looks for leases by their end: by the state it might go through all open tasks instead.
HAS_LEASE = "num_nulls(lease_owner) <> 1"
OPEN = listed(TASK.sources("cancel"))
# Partitions of other months are left out of the plan only where a condition on the column itself says so.
IN_MONTHS = "t.task_month = ANY(CAST(:all_months AS date[]))"
