"""Whether the server lives, and whether it can work: open to all, and saying no more than that."""

from typing import Literal

from fastapi import APIRouter, Response

from mustit_pipeline.api.context import OnGround
from mustit_pipeline.api.models import Answer
from mustit_pipeline.api.readiness import missing

router = APIRouter(prefix="/health", tags=["health"])


class Live(Answer):
    """The process answers."""

    status: Literal["UP"] = "UP"


class Ready(Answer):
    """Whether requests can be answered, and what is missing where not."""

    status: Literal["UP", "DOWN"]
    missing: list[str]


@router.get("/live")
async def live() -> Live:
    """Whether the process answers."""
    return Live()


@router.get("/ready", responses={503: {"model": Ready, "description": "Something is missing"}})
def ready(ground: OnGround, response: Response) -> Ready:
    """Whether the database answers and has the schema of this version."""
    lacking = missing(ground)
    if lacking:
        response.status_code = 503
        response.headers["Retry-After"] = "5"
    return Ready(status="DOWN" if lacking else "UP", missing=lacking)
