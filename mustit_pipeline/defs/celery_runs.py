"""Runs in warm workers on any host, through Celery."""

from dagster_celery.launcher import CeleryRunLauncher


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
