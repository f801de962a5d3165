"""Failures as Dagster sees them: what repeating cannot heal is never repeated."""

from collections.abc import Generator
from contextlib import contextmanager

import dagster as dg
import psycopg
from sqlalchemy.exc import OperationalError

from mustit_pipeline.domain.errors import DomainError
from mustit_pipeline.settings import SettingsError
from mustit_pipeline.store.schema import SchemaMismatch


@contextmanager
def readable_failures() -> Generator[None]:
    """Turn errors that people can act on into a failure that says just that, and that no retry repeats."""
    try:
        yield
    except DomainError as error:
        raise dg.Failure(
            error.english, metadata={"code": error.code, "korean": error.korean}, allow_retries=False
        ) from None
    except (OperationalError, psycopg.OperationalError) as error:
        # A COPY speaks to the driver itself, and so does its error.
        reason = str(getattr(error, "orig", error)).strip().splitlines()[-1]
        raise dg.Failure(
            f"PostgreSQL went away ({reason}); what was stored stays, and the next run goes on from there",
            allow_retries=False,
        ) from None
    except (SettingsError, SchemaMismatch) as error:
        raise dg.Failure(str(error), allow_retries=False) from None
