"""The tags by which Dagster queues, limits and shows runs. What a run came to is no tag: it is stored."""

# Of waiting runs the one with the highest number comes first.
PRIORITY_TAG = "dagster/priority"
SLICE_PRIORITY = "5"
# A backfill's runs carry its id.
BACKFILL_TAG = "dagster/backfill"
PARTITION_TAG = "dagster/partition"

# Short, and others wait for them: they go before every crawl, however many of those a backfill has queued.
# One that hangs would keep its successors from starting; leases keep it from doing harm once it wakes up.
FIRST = {PRIORITY_TAG: "10", "dagster/max_runtime": str(3600)}
# Long, and not urgent: one at a time (dagster.yaml), so that they leave room for those.
# One that hangs would keep all others waiting.
HOUSEKEEPING = {"mustit/housekeeping": "yes", "dagster/max_runtime": str(2 * 3600)}

# Which crawl a run works on, and which slice of it.
EXECUTION_TAG = "mustit/execution"
SLICE_TAG = "mustit/slice"
# The run that chose the crawl: a re-execution inherits the tags of its parent, and makes its own choice.
BOUND_TAG = "mustit/bound_by"
