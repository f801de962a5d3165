"""Runs in warm workers on any host, through Celery."""

from dagster_celery.launcher import CeleryRunLauncher
from dagster_celery.tags import DAGSTER_CELERY_TASK_ID_TAG


class CeleryRuns(CeleryRunLauncher):
    """Celery's launcher, without its opinion on whether a run lives.

    It asks Redis, which calls a killed worker's run started for ever, and fails every healthy run once it was
    restarted. The lock that each run holds in PostgreSQL knows better, for every launcher alike.
    """

    @property
    def supports_check_run_worker_health(self) -> bool:
        return False

    @property
    def supports_resume_run(self) -> bool:
        # What a slice had not done, the next one does.
        return False

    def terminate(self, run_id: str) -> bool:
        run = self._instance.get_run_by_id(run_id)
        if run is None or run.is_finished or DAGSTER_CELERY_TASK_ID_TAG not in run.tags:
            return False
        # Without this the interrupted run would be a failed one.
        self._instance.report_run_canceling(run)
        return super().terminate(run_id)
