"""The console as an application of its own below the web server's: pages, their gate, and their errors."""

from fastapi import Depends, FastAPI
from starlette.routing import Match, Mount
from starlette.types import Scope

from mustit_pipeline.console import errors, static_files
from mustit_pipeline.console.dagster_proxy import PREFIX, DagsterProxy
from mustit_pipeline.console.forms import checked_form
from mustit_pipeline.console.gate import Gate
from mustit_pipeline.console.pages import PAGES

# What the web server answers in other ways, be it with an error.
OTHERS = ("/api", "/health", "/metrics", "/openapi.json", "/docs")


class _Pages(Mount):
    """Every address that is none of the others'."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        path: str = scope["path"]
        if any(path == other or path.startswith(f"{other}/") for other in OTHERS):
            return Match.NONE, {}
        return super().matches(scope)


def install(app: FastAPI) -> None:
    """Serve the console beside the API."""
    pages = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, dependencies=[Depends(checked_form)])
    pages.state.ground, pages.state.hub = app.state.ground, app.state.hub
    errors.install(pages)
    pages.include_router(static_files.router)
    for router in PAGES:
        pages.include_router(router)
    pages.add_middleware(Gate)
    app.router.routes += [Mount(PREFIX, DagsterProxy(app.state.ground)), _Pages("/", pages)]
