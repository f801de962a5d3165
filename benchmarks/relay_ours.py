"""Our relay on a backlog: claims with leases, superseding, one in flight per product, fenced settlements."""

from pathlib import Path

from sqlalchemy import make_url, text

from benchmarks.job import Outcome, Stopwatch
from benchmarks.ours import settings_for
from benchmarks.relay_job import SELLER, RelayJob, contend
from mustit_pipeline.delivery.relay import relay
from mustit_pipeline.foundation import schema
from mustit_pipeline.foundation.database import Database, make_engine
from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.faults.backlog import fill


def send(job: RelayJob) -> Outcome:
    """Send the whole backlog, as a run of the job does it."""
    database = Database(make_engine(make_url(job.database_url).set(drivername="postgresql+psycopg")))
    try:
        with database.transaction() as connection:
            schema.upgrade(connection)
        fill(database, SELLER, range(1, job.events + 1))
        with database.transaction() as connection:
            connection.execute(text("ANALYZE"))
        settings = _settings(job)
        watch = Stopwatch()
        report = relay(database, settings)
        outcome = watch.outcome()
    finally:
        database.close()
    if (report.sent, report.waiting, report.failed) != (job.events, 0, 0):
        raise RuntimeError(f"sent {report.sent} of {job.events}, {report.waiting} wait, {report.failed} failed")
    return outcome


def _settings(job: RelayJob) -> Settings:
    return settings_for(
        Path(job.home),
        job.database_url,
        job.redis_url,
        product_server_url=job.server_url,
        relay_concurrent_sends=job.in_flight,
    )


if __name__ == "__main__":
    contend(send)
