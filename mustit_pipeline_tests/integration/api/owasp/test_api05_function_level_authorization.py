"""API5 Broken function level authorization: every operation, asked by everyone who may not."""

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from mustit_pipeline.domain.access import Scope
from mustit_pipeline_tests.integration.api.conftest import MakeClient
from mustit_pipeline_tests.integration.api.owasp.operations import Operation, operations

OPEN = {"/api/v1/auth/login", "/health/live", "/health/ready", "/docs", "/docs.css", "/openapi.json"}
FOR_ADMINS = ("/api/v1/users", "/api/v1/api-keys", "/api/v1/audit")


def is_for_machines(operation: Operation) -> bool:
    return operation.path.startswith(("/api/internal", "/metrics"))


def needs_admin(operation: Operation) -> bool:
    if operation.path == "/api/v1/auth/logout":
        return False
    return operation.method != "GET" or operation.path.startswith(FOR_ADMINS)


def guarded(app: FastAPI) -> list[Operation]:
    return [operation for operation in operations(app) if operation.path not in OPEN]


def ask(client: TestClient, operation: Operation) -> int:
    body = {} if operation.takes_body else None
    return client.request(operation.method, operation.url, json=body).status_code


def test_a_stranger_is_let_in_nowhere(app: FastAPI, anyone: TestClient) -> None:
    answers = {str(operation): ask(anyone, operation) for operation in guarded(app)}
    assert {name: status for name, status in answers.items() if status != 401} == {}


def test_a_viewer_changes_nothing(app: FastAPI, viewer: TestClient) -> None:
    for operation in guarded(app):
        if is_for_machines(operation):
            assert ask(viewer, operation) == 401, str(operation)
        elif needs_admin(operation):
            assert ask(viewer, operation) == 403, str(operation)


@pytest.mark.parametrize("scope", Scope)
def test_a_key_opens_no_route_of_people(app: FastAPI, with_key: MakeClient, scope: Scope) -> None:
    client = with_key(scope)
    for operation in guarded(app):
        if not is_for_machines(operation):
            assert ask(client, operation) == 401, str(operation)


def test_an_admin_opens_no_route_of_machines(app: FastAPI, admin: TestClient) -> None:
    machines = [operation for operation in guarded(app) if is_for_machines(operation)]
    assert {ask(admin, operation) for operation in machines} == {401}


def test_another_method_is_no_way_around(viewer: TestClient, anyone: TestClient) -> None:
    for method in ("PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "FOO", "PROPFIND"):
        assert anyone.request(method, "/api/v1/sellers").status_code == 401, method
        assert viewer.request(method, "/api/v1/sellers").status_code == 403, method


def test_no_other_spelling_of_a_path_is_a_way_in(anyone: TestClient) -> None:
    for path in (
        "/api/v1/sellers/",
        "//api/v1/sellers",
        "/api/v1//sellers",
        "/API/v1/sellers",
        "/api/v1/%73ellers",
        "/api/v1/auth/login/../../sellers",
        "/api/v1/auth/login%2F..%2F..%2Fsellers",
        "/health/live/../../api/v1/sellers",
        "/metrics/",
        "/api/v2/sellers",
    ):
        assert anyone.get(path, follow_redirects=False).status_code in (303, 307, 400, 401, 404), path
