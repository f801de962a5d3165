"""The web server's composition root: REST API, metrics and console as one ASGI application."""

import gc

from fastapi import FastAPI

from mustit_pipeline.api.app import create_api
from mustit_pipeline.api.context import Ground
from mustit_pipeline.console.app import install as install_console
from mustit_pipeline.foundation import logs
from mustit_pipeline.foundation.database import Database, addresses, make_engine
from mustit_pipeline.settings import Settings, load_settings

# A request that PostgreSQL cannot answer in that time is answered with 503.
STATEMENT_SECONDS = 10.0


def create() -> FastAPI:
    """The application of this process, from its environment; every worker of the server calls it."""
    logs.configure_unless_done("info")
    settings = load_settings()
    logs.hide_secrets_of(settings)
    app = create_web(Ground(settings, open_lazily(settings), settings.signing_keys()))
    _keep_what_is_here()
    return app


def create_web(ground: Ground) -> FastAPI:
    """The application on a given ground."""
    app = create_api(ground)
    install_console(app)
    return app


def open_lazily(settings: Settings) -> Database:
    """The database, not asked yet: a server that starts before PostgreSQL says that it is not ready, and becomes so."""
    engine = make_engine(
        addresses(settings).database_url,
        connections=settings.database_connections,
        max_connections=settings.database_max_connections,
        statement_seconds=STATEMENT_SECONDS,
    )
    return Database(engine)


def _keep_what_is_here() -> None:
    """Let the search for cycles pass over modules and routes: looking through them all stops every request at once."""
    gc.collect()
    gc.freeze()
