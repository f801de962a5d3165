"""A query parameter that a route does not know is refused like an unknown field: it would have no effect."""

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from mustit_pipeline.api.languages import Language
from mustit_pipeline.api.problems import FieldProblem, RequestRefused
from mustit_pipeline.api.requests import info


async def refuse_unknown_query(request: Request) -> None:
    """Name what is not known."""
    route = request.scope.get("route")
    if not isinstance(route, APIRoute):
        return
    unknown = sorted(request.query_params.keys() - _names(route.dependant))
    if unknown:
        english = info(request.scope).language is Language.ENGLISH
        message = "Extra inputs are not permitted" if english else "알 수 없는 항목입니다"
        raise RequestRefused(
            "VALIDATION_REQUEST",
            korean="요청 형식이 올바르지 않습니다",
            english="The request cannot be read as this address expects it",
            errors=[FieldProblem(field=name[:200], message=message) for name in unknown[:20]],
        )


def _names(dependant: Dependant) -> set[str]:
    own = {field.alias for field in dependant.query_params}
    return own.union(*(_names(inner) for inner in dependant.dependencies))
