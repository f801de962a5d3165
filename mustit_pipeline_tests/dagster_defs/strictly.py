"""`dagster definitions validate`, to which every part of Dagster that may change or go is an error.

    python -m mustit_pipeline_tests.dagster_defs.strictly MODULE

Python's own -W does not know Dagster's warnings: it reads them before anything that is installed can be imported.
"""

import runpy
import sys
import tempfile
import warnings
from os import environ

import dagster as dg

UNSTEADY = (dg.BetaWarning, dg.PreviewWarning, dg.SupersessionWarning)
# What Dagster does by itself when it is asked to validate.
NOT_OURS = (
    "Function `definitions_validate_command` is superseded",
    "Property `ScheduleDefinition.environment_vars` is deprecated",
)


def be_strict() -> None:
    """Turn the warnings into errors."""
    for category in UNSTEADY:
        warnings.simplefilter("error", category)
    warnings.filterwarnings("error", message=".*will be removed in.*")
    warnings.filterwarnings("error", category=DeprecationWarning, module="mustit_pipeline")
    for message in NOT_OURS:
        warnings.filterwarnings("ignore", message=message)


if __name__ == "__main__":
    be_strict()
    sys.argv = ["dagster", "definitions", "validate", "-m", sys.argv[1]]
    with tempfile.TemporaryDirectory() as home:
        environ["DAGSTER_HOME"] = home
        runpy.run_module("dagster", run_name="__main__")
