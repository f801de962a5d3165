"""A line that is logged inside of a run names the run."""

import dagster as dg
import structlog
from structlog.testing import capture_logs

from mustit_pipeline.defs.resources import RESOURCES, BusinessDatabase
from mustit_pipeline.foundation import logs


@dg.asset
def speaking(database: BusinessDatabase) -> None:
    structlog.get_logger().info("inside")


def test_lines_of_a_run_have_its_id_and_job_and_what_comes_after_it_has_not() -> None:
    with capture_logs(processors=[logs.add_ids]) as lines:
        result = dg.materialize([speaking], resources=RESOURCES)
    [line] = [line for line in lines if line["event"] == "inside"]
    assert (line["run_id"], line["job"]) == (result.run_id, result.job_def.name)
    assert logs.add_ids(None, "", {}) == {}
