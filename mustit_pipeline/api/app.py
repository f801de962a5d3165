"""The REST API: it calls the rooms that the command line calls, and holds no rules of its own."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from anyio.to_thread import current_default_thread_limiter
from fastapi import APIRouter, Depends, FastAPI, Security
from fastapi.security import APIKeyHeader, HTTPBearer

from mustit_pipeline.api import openapi, problems
from mustit_pipeline.api.context import Ground
from mustit_pipeline.api.edge import Edge
from mustit_pipeline.api.gate import Gate
from mustit_pipeline.api.live import Hub
from mustit_pipeline.api.problems import MEDIA_TYPE, Problem
from mustit_pipeline.api.queries import refuse_unknown_query
from mustit_pipeline.api.routes import (
    alerts,
    api_keys,
    audit,
    auth,
    bodies,
    budget,
    changes,
    crawl_metrics,
    crawls,
    deletions,
    docs,
    drift,
    executions,
    health,
    holds,
    metrics,
    outbox,
    products,
    sellers,
    user_agents,
    users,
)
from mustit_pipeline.monitoring.exposition import Exposition

# Requests that wait for PostgreSQL at once; each takes a thread and a connection.
THREADS = 32
DESCRIPTION = """Sellers, crawls, products and their changes, for admins and for other systems.

Routes under `/api/v1` need an access token (`POST /api/v1/auth/login`): role `viewer` to read, `admin` to change.
Routes under `/api/internal` and `/metrics` need an API key in the header `X-API-Key`. Every error is a
problem (RFC 9457) with a stable `errorCode` and a `message` in Korean, or in English where
`Accept-Language` prefers it."""

# The gate checks them before a route is looked at; here they are only described.
_TOKEN = HTTPBearer(auto_error=False, scheme_name="accessToken", description="From `POST /api/v1/auth/login`")
_KEY = APIKeyHeader(name="X-API-Key", auto_error=False, scheme_name="apiKey", description="From `mustit apikey create`")

PEOPLE: tuple[APIRouter, ...] = (
    auth.router,
    sellers.router,
    crawls.router,
    executions.router,
    crawl_metrics.router,
    user_agents.router,
    deletions.router,
    holds.router,
    products.router,
    bodies.router,
    changes.router,
    outbox.router,
    drift.router,
    alerts.router,
    audit.router,
    budget.router,
    users.router,
    api_keys.router,
)
MACHINES: tuple[APIRouter, ...] = (crawls.machines, metrics.router)


def create_api(ground: Ground) -> FastAPI:
    """The application on a given ground."""
    app = create_routes()
    app.state.ground = ground
    app.state.hub = Hub(ground.database)
    app.state.exposition = Exposition(ground.database, ground.settings)
    app.add_middleware(Gate)
    app.add_middleware(Edge, https=ground.settings.api_is_https)
    return app


def create_routes() -> FastAPI:
    """The routes alone, which is what the OpenAPI document says."""
    app = FastAPI(
        title="mustit_pipeline",
        version=version("mustit-pipeline"),
        description=DESCRIPTION,
        # Its own routes would make the document on the event loop.
        openapi_url=None,
        # It would send clients to whatever their Host header names.
        redirect_slashes=False,
        lifespan=_lifespan,
        responses=_responses(400, 500, 503),
        dependencies=[Depends(refuse_unknown_query)],
        generate_unique_id_function=lambda route: route.name,
    )
    problems.install(app)
    app.include_router(docs.router)
    app.include_router(health.router)
    app.include_router(auth.entrance, prefix="/api/v1", responses=_responses(401, 429))
    for router in PEOPLE:
        app.include_router(
            router, prefix="/api/v1", dependencies=[Security(_TOKEN)], responses=_responses(401, 403, 404, 409, 422)
        )
    for router in MACHINES:
        app.include_router(router, dependencies=[Security(_KEY)], responses=_responses(401, 403, 404, 409, 422))
    openapi.install(app)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncGenerator[None]:
    current_default_thread_limiter().total_tokens = THREADS
    hub: Hub = app.state.hub
    with hub.closed_by_signals():
        yield
    hub.close()
    app.state.exposition.close()


def _responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"model": Problem, "content": content} for status in statuses}
