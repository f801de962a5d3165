"""The metrics for Prometheus."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from mustit_pipeline.monitoring.exposition import OPEN_METRICS, PLAIN, Exposition

router = APIRouter(tags=["metrics"])
FORMS = {form: {"schema": {"type": "string"}} for form in (PLAIN, OPEN_METRICS)}


def _exposition(request: Request) -> Exposition:
    return request.app.state.exposition


@router.get("/metrics", response_class=Response, responses={200: {"content": FORMS}})
def metrics(request: Request, exposition: Annotated[Exposition, Depends(_exposition)]) -> Response:
    """Every metric in Prometheus' text format, or OpenMetrics where the reader prefers that."""
    text, content_type = exposition.text(request.headers.get("accept", ""))
    return Response(text, headers={"Content-Type": content_type})
