"""`mustit run-worker`: work on Dagster runs on this host, in warm processes, beside any number of other hosts."""

import socket
from typing import Annotated, Any
from uuid import uuid4

import typer

from mustit_pipeline.cli.output import Json, err, print_json
from mustit_pipeline.cli.runtime import dagster_instance, runtime
from mustit_pipeline.settings import Settings, SettingsError, load_settings


def run_worker(
    slots: Annotated[
        int | None, typer.Option(min=1, max=100, help="Runs at once; MUSTIT_RUN_WORKER_SLOTS without it.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Take runs from the broker until SIGTERM, which lets running runs end, or SIGQUIT, which stops them in the grace
    time; their crawls continue elsewhere. With --json the document comes before the first run and names this worker.

    Needs MUSTIT_RUN_LAUNCHER=celery and the databases, Redis, MUSTIT_BASE_URL and secrets of the host where `mustit up`
    runs.

    Example: `mustit run-worker --slots 8`
    """
    settings = load_settings()
    if settings.run_launcher != "celery":
        raise SettingsError(
            "runs happen beside the Dagster daemon and never reach a run worker: set MUSTIT_RUN_LAUNCHER=celery, "
            "here and where `mustit up` runs",
            korean="실행이 Dagster 데몬 옆에서 이루어져 run-worker에 도달하지 않습니다. "
            "이 호스트와 `mustit up`을 실행하는 호스트에 MUSTIT_RUN_LAUNCHER=celery를 설정하세요",
        )
    _ = settings.marketplace_url
    app = _celery_app(settings)
    count = slots or settings.run_worker_slots
    name = f"mustit-{uuid4().hex[:8]}@{socket.gethostname()}"
    if as_json:
        print_json({"worker": name, "slots": count})
    else:
        err.print(f"waiting for runs, {count} at once; SIGTERM stops", highlight=False)
    alone = ["--without-gossip", "--without-mingle"]
    app.worker_main(["worker", f"--concurrency={count}", f"--hostname={name}", "--loglevel=INFO", *alone])


def _celery_app(settings: Settings) -> Any:
    """The app that dagster.yaml describes, for the side that works; nothing is open any more when it forks."""
    from dagster_celery.tasks import create_execute_job_task  # pyright: ignore[reportUnknownVariableType]

    from mustit_pipeline.defs.celery_runs import CeleryRuns

    with runtime(), dagster_instance(settings) as instance:
        launcher = instance.run_launcher
    if not isinstance(launcher, CeleryRuns):
        raise SettingsError(
            f"the dagster.yaml in DAGSTER_HOME launches runs with {type(launcher).__name__}: "
            "unset DAGSTER_HOME, or add deploy/celery/run_launcher.yaml to it",
            korean=f"DAGSTER_HOME의 dagster.yaml은 {type(launcher).__name__}(으)로 실행을 시작합니다. "
            "DAGSTER_HOME을 해제하거나 deploy/celery/run_launcher.yaml을 추가하세요",
        )
    app: Any = launcher.celery
    create_execute_job_task(app)
    app.conf.worker_soft_shutdown_timeout = settings.grace_seconds
    return app
