"""API3 Broken object property level authorization: no field is set or shown that no route names."""

from fastapi import FastAPI
from fastapi.testclient import TestClient

from mustit_pipeline_tests.integration.api.owasp.operations import operations

SECRET_WORDS = ("passwordHash", "password_hash", "secretHash", "secret_hash", "sealed", "generation", "tokenNo")


def test_no_operation_takes_a_field_that_it_does_not_name(app: FastAPI, admin: TestClient) -> None:
    """Mass assignment: `role`, `status` or `createdAt` beside what is asked for."""
    for operation in operations(app):
        if not operation.takes_body or operation.path.startswith(("/api/v1/auth", "/api/internal")):
            continue
        answer = admin.request(operation.method, operation.url, json={"isAdmin": True, "status": "ACTIVE", "role2": 1})
        assert answer.status_code == 400, f"{operation}: {answer.status_code} {answer.text}"
        assert {"isAdmin"} <= {one["field"] for one in answer.json()["errors"]}, str(operation)


def test_no_operation_takes_a_parameter_that_it_does_not_name(app: FastAPI, admin: TestClient) -> None:
    for operation in operations(app):
        if operation.method == "GET" and operation.path.startswith("/api/v1"):
            answer = admin.get(operation.url, params={"isAdmin": "true"})
            assert answer.status_code == 400, f"{operation}: {answer.status_code}"
            assert "isAdmin" in {one["field"] for one in answer.json()["errors"]}, str(operation)


def test_no_answer_describes_a_field_for_a_secret(app: FastAPI) -> None:
    described = str(app.openapi()["components"]["schemas"])
    assert [word for word in SECRET_WORDS if f"'{word}'" in described] == []


def test_a_seller_cannot_be_registered_with_a_state_or_a_count(admin: TestClient) -> None:
    body = {"sellerId": "x", "name": "x", "totalProductCount": 5}
    assert admin.post("/api/v1/sellers", json=body).status_code == 400
    assert admin.get("/api/v1/sellers/x").status_code == 404
