"""From raw bodies to versions, change sets and outbox rows."""

from collections.abc import Iterator

import dagster as dg

from mustit_pipeline.catalog.processing import ProcessingReport, process
from mustit_pipeline.catalog.publishing import belief_rules
from mustit_pipeline.catalog.reading import reading_rules
from mustit_pipeline.catalog.replay import replay_stored
from mustit_pipeline.catalog.sql.history import largest_changes
from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.sql import executions
from mustit_pipeline.crawling.sql.executions import StoredExecution
from mustit_pipeline.defs.crawl.slices import ModeConfig, bound_execution, last_crawl, record_outcome, replays
from mustit_pipeline.defs.failures import PermanentFailure, readable_failures
from mustit_pipeline.defs.metadata import OWNERS, Stopwatch, changes_table, columns, console_links, content_of, lineage
from mustit_pipeline.defs.partitions import sellers
from mustit_pipeline.defs.resources import BusinessDatabase, SettingsResource
from mustit_pipeline.domain.states import ChangeType, LifeCycle, SliceOutcome
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation import logs
from mustit_pipeline.foundation.clock import utc_now

LARGEST = 10
PUBLISHED = (LifeCycle.CREATED, LifeCycle.UPDATED, LifeCycle.RESTORED)
_BODIES = "product_details.body product_options.body"
LINEAGE = lineage(
    seller_id="product_details.seller_id",
    item_no="product_details.item_no",
    version=_BODIES,
    life_cycle=f"minishop_listings.last_seen_execution_id {_BODIES}",
    change_types=_BODIES,
    changes=_BODIES,
    product_data=_BODIES,
)
NO_FAILED_TASKS = dg.AssetCheckSpec(
    "no_failed_tasks",
    asset="product_change_sets",
    blocking=True,
    description="Every task of the crawl succeeded; otherwise the run turns red after the change sets are written.",
)
BELIEVABLE_CHANGES = dg.AssetCheckSpec(
    "believable_changes",
    asset="product_change_sets",
    blocking=True,
    description="Not too many of the seller's products jump in price or lose fields at once; otherwise none of its "
    "changes is published until they look right again, or until `mustit holds release` lets them through.",
)
# Here, where listing, details and options have all been fetched.
KNOWN_SHAPE = dg.AssetCheckSpec(
    "known_shape",
    asset="product_change_sets",
    description="The marketplace's bodies have the shape that this crawl expects, or one that was accepted: "
    "`mustit drift list`.",
)


@dg.asset(
    deps=["product_details", "product_options"],
    partitions_def=sellers,
    group_name="catalog",
    owners=OWNERS,
    kinds={"python", "postgres"},
    code_version="1",
    check_specs=[NO_FAILED_TASKS, BELIEVABLE_CHANGES, KNOWN_SHAPE],
    metadata=columns(
        seller_id=("text", "The seller"),
        item_no=("bigint", "The product"),
        version=("integer", "Counts the product's published states"),
        life_cycle=("text", "CREATED, UPDATED, DELETED or RESTORED"),
        change_types=("text[]", "What kinds of fields changed"),
        changes=("jsonb", "Field by field: type, field, old, new"),
        product_data=("text", "The whole product at this version"),
    ),
)
def product_change_sets(
    context: dg.AssetExecutionContext,
    config: ModeConfig,
    settings: SettingsResource,
    database: BusinessDatabase,
) -> Iterator[dg.MaterializeResult]:
    """Typed, field-by-field changes of a seller's products, each with its version and its outbox row."""
    watch = Stopwatch()
    seller_id = SellerId(context.partition_key)
    replayed = replays(context)
    with readable_failures():
        bound = bound_execution(context, database.open())
        stored = bound or last_crawl(context, database.open())
        rules, readable = belief_rules(settings.read()), reading_rules(database.open(), settings.read())
        with logs.about(execution_id=stored.id, seller_id=seller_id):
            if replayed:
                report = replay_stored(database.open(), seller_id, now=utc_now, rules=rules, reading_rules=readable)
            else:
                report = process(
                    database.open(),
                    seller_id,
                    now=utc_now,
                    raw_attempts=settings.read().raw_max_attempts,
                    rules=rules,
                    reading_rules=readable,
                )
        stored = Crawl(database.open(), settings.read(), stored).end()
    execution = stored.execution
    content = content_of(database.open(), seller_id.value)
    with database.open().reading() as connection:
        largest = largest_changes(connection, execution.id.value, LARGEST)
        ended = executions.changes_by_type(connection, execution.id.value)
    if bound is not None and (execution.failed_tasks or report.held is not None):
        # The checks turn the run red.
        record_outcome(context, database.open(), stored, SliceOutcome.WORKED_THROUGH)
    yield dg.MaterializeResult(
        metadata={
            "execution_id": str(execution.id),
            **console_links(settings.read(), stored),
            "execution_status": execution.status.value,
            "bodies": report.bodies,
            "failed_bodies": report.failed_bodies,
            "versions": sum(report.versions.values()),
            **{life_cycle.value.lower(): report.versions[life_cycle] for life_cycle in PUBLISHED},
            # Deletions are written where they are proven, while the execution fetches.
            "removed": 0 if replayed else ended.get(LifeCycle.DELETED.value, 0),
            **{f"changed_{kind.value.lower()}": report.changes[kind.value] for kind in ChangeType},
            "remaining": execution.remaining,
            "replayed": replayed,
            "dagster/partition_row_count": content.version_rows,
            **LINEAGE,
            "largest changes": changes_table(largest),
            "duration_seconds": watch.seconds,
        },
        data_version=dg.DataVersion(content.versions),
        check_results=_checks(stored, report, replayed=replayed),
    )
    if replayed and report.failed_bodies:
        raise PermanentFailure(
            f"{report.failed_bodies} stored bodies cannot be read: `mustit raw list --status FAILED` says why"
        )


def _checks(stored: StoredExecution, report: ProcessingReport, *, replayed: bool) -> list[dg.AssetCheckResult]:
    execution, held = stored.execution, report.held
    suspicion = {} if held is None else {"jumped_prices": held.jumped, "emptied": held.emptied}
    examples = {} if held is None else {"looked_at": held.looked_at, "examples": ", ".join(map(str, held.examples))}
    return [
        dg.AssetCheckResult(
            check_name=NO_FAILED_TASKS.name,
            passed=execution.failed_tasks == 0,
            # A replay cannot fetch what the last crawl could not.
            severity=dg.AssetCheckSeverity.WARN if replayed else dg.AssetCheckSeverity.ERROR,
            metadata={
                "failed": execution.failed_tasks,
                "total": execution.total_tasks,
                "success_percent": round(execution.success_rate, 2),
            },
        ),
        dg.AssetCheckResult(
            check_name=BELIEVABLE_CHANGES.name,
            passed=held is None,
            metadata={"held": 0 if held is None else held.suspicious, **suspicion, **examples},
        ),
        dg.AssetCheckResult(
            check_name=KNOWN_SHAPE.name,
            passed=not stored.drift,
            # Nothing wrong goes out by it.
            severity=dg.AssetCheckSeverity.WARN,
            metadata={"drifted_fields": ", ".join(stored.drift) or "none"},
        ),
    ]
