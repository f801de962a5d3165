"""What a server process lacks to answer requests, in words that tell a stranger nothing."""

import structlog
from sqlalchemy.exc import SQLAlchemyError

from mustit_pipeline.api.context import Ground
from mustit_pipeline.foundation import schema

log = structlog.get_logger(__name__)


def missing(ground: Ground) -> list[str]:
    """`database` where PostgreSQL does not answer, `schema` where its schema is of another version."""
    try:
        with ground.database.reading() as connection:
            current = schema.status(connection).is_current
    except SQLAlchemyError as error:
        log.warning("not ready", error=type(error).__name__)
        return ["database"]
    return [] if current else ["schema"]
