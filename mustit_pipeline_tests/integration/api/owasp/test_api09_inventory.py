"""API9 Improper inventory management: what is served is what is described, and nothing else."""

from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from mustit_pipeline.api.app import MACHINES, PEOPLE
from mustit_pipeline.api.routes import auth, health
from mustit_pipeline_tests.integration.api.owasp.operations import operations


def test_every_route_of_the_api_is_described(app: FastAPI) -> None:
    routers = (health.router, auth.entrance, *PEOPLE, *MACHINES)
    served = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    methods = [method for route in served for method in route.methods or ()]
    assert [route.path for route in served if not route.include_in_schema] == []
    assert len(methods) == len(operations(app))


def test_there_is_one_version_and_no_back_door(anyone: TestClient, admin: TestClient) -> None:
    for path in ("/api/v0/sellers", "/api/v2/sellers", "/api/sellers", "/debug", "/admin", "/redoc", "/graphql"):
        assert anyone.get(path, follow_redirects=False).status_code in (303, 401, 404), path
        assert admin.get(path, follow_redirects=False).status_code in (303, 404), path


def test_every_operation_says_who_may_ask_and_how_it_fails(app: FastAPI) -> None:
    for operation in operations(app):
        if operation.path.startswith("/health") or operation.path == "/api/v1/auth/login":
            continue
        security = [name for entry in operation.described.get("security", []) for name in entry]
        wanted = "apiKey" if operation.path.startswith(("/api/internal", "/metrics")) else "accessToken"
        assert security == [wanted], str(operation)
        assert {"401", "500", "503"} <= operation.described["responses"].keys(), str(operation)
