"""The hourly checks: success criteria and quality of the data, over all sellers."""

from collections.abc import Iterator

import dagster as dg

from mustit_pipeline.crawling.sql import executions
from mustit_pipeline.defs.failures import readable_failures
from mustit_pipeline.defs.liveness import is_under_way
from mustit_pipeline.defs.resources import BusinessDatabase, SettingsResource
from mustit_pipeline.defs.run_tags import HOUSEKEEPING
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.monitoring import alert_texts
from mustit_pipeline.monitoring.alerting import CHECK_FAILED, record
from mustit_pipeline.monitoring.criteria import CRITERIA, Criterion, Judgement
from mustit_pipeline.monitoring.metrics import SEOUL
from mustit_pipeline.monitoring.spot_checks import spot_check
from mustit_pipeline.monitoring.sql.alerts import Condition, Outcome

TRUTH = "sampled_truth"
CHECKING_JOB = "check_criteria"
BY_NAME = {criterion.name: criterion for criterion in CRITERIA}


@dg.multi_asset_check(
    specs=[dg.AssetCheckSpec(one.name, asset=one.asset, description=one.description) for one in CRITERIA],
    can_subset=True,
    name="criteria",
)
def criteria(
    context: dg.AssetCheckExecutionContext, settings: SettingsResource, database: BusinessDatabase
) -> Iterator[dg.AssetCheckResult]:
    """Judge what was asked for, each by its own rule; what fails becomes an alert, what passes ends it."""
    wanted = sorted((key.name for key in context.selected_asset_check_keys), key=list(BY_NAME).index)
    extra: dict[str, int] = {}
    with readable_failures():
        if TRUTH in wanted:
            sampled = spot_check(database.open(), settings.read())
            extra = {"compared_now": sampled.compared, "unanswered": sampled.unanswered, "requests": sampled.requests}
        now = utc_now()
        with database.open().reading() as connection:
            found = [(BY_NAME[name], BY_NAME[name].judge(connection, settings.read(), now)) for name in wanted]
        record(database.open(), [outcome(one, judged) for one, judged in found if one.error], utc_now())
    for one, judged in found:
        yield dg.AssetCheckResult(
            check_name=one.name,
            asset_key=one.asset,
            passed=judged.passed,
            severity=dg.AssetCheckSeverity.ERROR if one.error else dg.AssetCheckSeverity.WARN,
            description=judged.summary,
            metadata={**judged.metadata, **(extra if one.name == TRUTH else {})},
        )


def outcome(criterion: Criterion, judged: Judgement) -> Outcome:
    """What a check found, as alerts know it."""
    subject = f"check {criterion.name}"
    title = alert_texts.CHECK_FAILED.say(check=criterion.name)
    names = str(judged.metadata.get("sellers", "none"))
    detail = f"{judged.summary}{'' if names == 'none' else f': {names}'}. {criterion.remedy}"
    failure = None if judged.passed else Condition(subject, CHECK_FAILED, title, detail)
    return Outcome(subject, CHECK_FAILED, utc_now(), failure)


check_criteria = dg.define_asset_job(
    CHECKING_JOB,
    selection=dg.AssetSelection.checks(criteria),
    description="Success criteria and data quality over all sellers; a few products are compared with the marketplace.",
    tags=HOUSEKEEPING,
    executor_def=dg.in_process_executor,
)


@dg.schedule(
    job=check_criteria,
    cron_schedule="25 * * * *",
    execution_timezone=SEOUL,
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Judges the success criteria and the quality of the data.",
)
def check_every_hour(
    context: dg.ScheduleEvaluationContext, settings: SettingsResource, database: BusinessDatabase
) -> dg.RunRequest | dg.SkipReason:
    if is_under_way(context, database.open(), settings.read(), CHECKING_JOB):
        return dg.SkipReason("a check is running already")
    return dg.RunRequest()


@dg.sensor(
    job=check_criteria,
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Has the success criteria judged once after the first crawl, so that a new installation shows them "
    "before the hour is over.",
)
def first_check(context: dg.SensorEvaluationContext, database: BusinessDatabase) -> dg.RunRequest | dg.SkipReason:
    if context.instance.get_run_records(dg.RunsFilter(job_name=CHECKING_JOB), limit=1):
        return dg.SkipReason("the criteria are judged every hour")
    with database.open().reading() as connection:
        crawled = executions.has_any_completed(connection)
    if not crawled:
        return dg.SkipReason("no crawl has ended yet")
    return dg.RunRequest(run_key="after the first crawl")
