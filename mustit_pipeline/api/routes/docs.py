"""The OpenAPI document, and the API for people to read: one page, made from the document."""

from functools import lru_cache
from pathlib import Path

import orjson
from fastapi import APIRouter, Request, Response

from mustit_pipeline.api.reference import render

router = APIRouter(include_in_schema=False)

# Nothing but our own stylesheet: no script at all, and nothing from elsewhere.
POLICY = "default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
STYLE = Path(__file__).parents[1] / "pages" / "docs.css"


@router.get("/openapi.json")
def show_document(request: Request) -> Response:
    """What the API takes and answers, for programs."""
    return Response(orjson.dumps(request.app.openapi()), media_type="application/json")


@router.get("/docs")
def show_docs(request: Request) -> Response:
    """Every route with its parameters, bodies and examples."""
    state = request.app.state
    # Open to all, and made once: that takes longer than most requests.
    if not hasattr(state, "docs"):
        state.docs = render(request.app.openapi())
    return Response(state.docs, media_type="text/html", headers={"Content-Security-Policy": POLICY})


@router.get("/docs.css")
def show_style() -> Response:
    """The page's stylesheet."""
    return Response(_style(), media_type="text/css")


@lru_cache(maxsize=1)
def _style() -> str:
    return STYLE.read_text()
