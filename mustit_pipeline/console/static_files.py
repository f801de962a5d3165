"""The stylesheet and the script: under names with a hash of their content, so that browsers keep them for good."""

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fastapi import APIRouter, Response

from mustit_pipeline.domain.errors import NotFound

FOLDER = Path(__file__).parent / "static"
PREFIX = "/static/"
KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
FOR_GOOD = "public, max-age=31536000, immutable"

router = APIRouter()


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file as it is sent."""

    address: str
    content: bytes
    kind: str


@lru_cache(maxsize=1)
def _files() -> dict[str, StaticFile]:
    found: dict[str, StaticFile] = {}
    for path in sorted(FOLDER.iterdir()):
        content = path.read_bytes()
        name = f"{path.stem}.{hashlib.sha256(content).hexdigest()[:16]}{path.suffix}"
        found[path.name] = StaticFile(f"{PREFIX}{name}", content, KINDS[path.suffix])
    return found


def address(name: str) -> str:
    """Where a file of this name is."""
    return _files()[name].address


@router.get("/favicon.svg")
@router.get("/favicon-{state}.svg")
async def mark() -> Response:
    """Our mark: Dagster's pages ask for theirs, one for each state of a run, at the root of the server."""
    file = _files()["mark.svg"]
    return Response(file.content, media_type=file.kind)


@router.get(PREFIX + "{name}")
async def static_file(name: str) -> Response:
    """A file by its present name."""
    for file in _files().values():
        if file.address == f"{PREFIX}{name}":
            return Response(file.content, media_type=file.kind, headers={"Cache-Control": FOR_GOOD})
    raise NotFound("NOT_FOUND_PATH", korean="이 주소에는 아무것도 없습니다", english="There is nothing at this address")
