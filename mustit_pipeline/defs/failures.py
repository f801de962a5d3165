"""Failures as Dagster sees them: permanent and transient are different types, and only transient ones are repeated.

Dagster repeats in three ways. A step is repeated by its RetryPolicy, which any other failure forbids. A whole run is
never repeated because a step of it failed (dagster.yaml). A sensor asks for another slice of an open crawl, but not
after one that failed for good.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import dagster as dg
import psycopg
from sqlalchemy.exc import TimeoutError as NoConnectionFree

from mustit_pipeline.aws.clients import AwsUnreachable
from mustit_pipeline.domain.errors import Conflict, DomainError
from mustit_pipeline.embedded import EmbeddedError
from mustit_pipeline.foundation.database import DatabaseRefused, DatabaseUnreachable, is_outage
from mustit_pipeline.foundation.event_loop import heard_signals
from mustit_pipeline.foundation.schema import SchemaMismatch
from mustit_pipeline.lake.failures import LakeUnreachable
from mustit_pipeline.settings import SettingsError

# By this metadata a failure says that the next run would end the same way; its run may have no database to say it in.
FAILED_FOR_GOOD = "failed_for_good"
# For steps that can be done again from the start. Crawls have the sensor, which goes on where they stopped.
RETRY_TRANSIENT = dg.RetryPolicy(max_retries=3, delay=2.0, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS)


class PermanentFailure(dg.Failure):
    """What repeating cannot heal: an operator has to do what the text says.

    `for_good` names the error where the next run would end the same way.
    """

    def __init__(self, description: str, *, for_good: str | None = None, **metadata: str) -> None:
        told = metadata if for_good is None else {**metadata, FAILED_FOR_GOOD: for_good}
        super().__init__(description, metadata=told, allow_retries=False)


class TransientFailure(dg.Failure):
    """What may heal by itself: the step is repeated where it has a RetryPolicy, or the next run does its work."""

    def __init__(self, description: str) -> None:
        super().__init__(description, allow_retries=True)


class UnknownFailure(dg.Failure):
    """An unforeseen failure, mostly a defect of ours.

    It has no description for alerts: its text may hold secrets, and stays in the run.
    """

    def __init__(self, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        super().__init__(metadata={"error": text}, allow_retries=False)
        self.args = (text,)


@contextmanager
def readable_failures() -> Generator[None]:
    """Turn errors into a failure that says what people can do, and whether repeating may heal it."""
    try:
        with heard_signals():
            yield
    except dg.Failure:
        raise
    except Exception as error:
        failure = failure_of(error)
        raise failure from (error if isinstance(failure, UnknownFailure) else None)


def failure_of(error: Exception) -> dg.Failure:
    """What an error means for repeating the step."""
    if isinstance(error, AwsUnreachable | LakeUnreachable):
        return TransientFailure(error.english)
    if isinstance(error, Conflict):
        # A refusal because of a state says nothing any more once the state has changed.
        return PermanentFailure(error.english, code=error.code, korean=error.korean)
    if isinstance(error, DomainError):
        return PermanentFailure(error.english, code=error.code, korean=error.korean, for_good=error.code)
    cause, name = getattr(error, "orig", error), type(error).__name__
    if isinstance(cause, psycopg.errors.InsufficientPrivilege):
        return PermanentFailure(
            f"PostgreSQL does not allow it ({_last_line(cause)}): grant it to the user of the URL", for_good=name
        )
    if is_outage(error):
        return TransientFailure(
            f"PostgreSQL went away ({_last_line(cause)}); what was stored stays, and the next try goes on from there"
        )
    if isinstance(error, DatabaseRefused | SettingsError | SchemaMismatch):
        return PermanentFailure(str(error), for_good=name)
    if isinstance(error, DatabaseUnreachable | EmbeddedError | NoConnectionFree):
        return TransientFailure(str(error))
    return UnknownFailure(error)


@dataclass(frozen=True, slots=True)
class StepFailure:
    """The failure that ended a run: its step, what our own code said, the error's name, and whether it is for good."""

    step: str
    said: str | None
    error: str | None
    for_good: str | None


def step_failure(instance: dg.DagsterInstance, run_id: str) -> StepFailure | None:
    """What a run's step failed with; None where it ended outside of a step."""
    failures = instance.get_records_for_run(run_id, of_type=dg.DagsterEventType.STEP_FAILURE, limit=1).records
    event = failures[0].event_log_entry.dagster_event if failures else None
    if event is None:
        return None
    data = event.step_failure_data
    said, error = data.user_failure_data, data.error
    for_good = None if said is None else said.metadata.get(FAILED_FOR_GOOD)
    return StepFailure(
        step=str(event.step_key),
        said=None if said is None else said.description,
        error=None if error is None else (error.cause or error).cls_name,
        for_good=None if for_good is None else str(for_good.value),
    )


def _last_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
