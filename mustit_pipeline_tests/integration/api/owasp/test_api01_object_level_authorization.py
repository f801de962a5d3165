"""API1 Broken object level authorization: an id alone opens nothing that its caller may not see."""

from fastapi.testclient import TestClient

from mustit_pipeline.access import users
from mustit_pipeline.api.context import Ground
from mustit_pipeline.domain.access import Role, UserName
from mustit_pipeline_tests.integration.api.conftest import token


def test_a_viewer_finds_no_user_key_or_audit_entry_by_its_id(viewer: TestClient, ground: Ground) -> None:
    users.add(ground.database, UserName("kim"), Role.ADMIN, None)
    for method, path in (
        ("GET", "/api/v1/users"),
        ("PATCH", "/api/v1/users/kim"),
        ("PATCH", "/api/v1/users/viewer"),
        ("GET", "/api/v1/api-keys"),
        ("DELETE", "/api/v1/api-keys/000000000000"),
        ("GET", "/api/v1/audit"),
    ):
        answer = viewer.request(method, path, json={} if method == "PATCH" else None)
        assert (answer.status_code, answer.json()["errorCode"]) == (403, "FORBIDDEN_ROLE"), (method, path)


def test_what_exists_and_what_does_not_look_alike_to_a_stranger(anyone: TestClient, admin: TestClient) -> None:
    admin.post("/api/v1/sellers", json={"sellerId": "real", "name": "x"})
    answers = [anyone.get(f"/api/v1/sellers/{seller}") for seller in ("real", "unreal")]
    assert [answer.status_code for answer in answers] == [401, 401]
    assert len({answer.json()["message"] for answer in answers}) == 1


def test_logging_out_ends_the_token_that_asks_and_no_other(anyone: TestClient, ground: Ground) -> None:
    one, other = token(ground, Role.ADMIN, "one"), token(ground, Role.ADMIN, "other")
    ended = anyone.post("/api/v1/auth/logout", headers={"Authorization": f"Bearer {one}"})
    assert ended.status_code == 204
    statuses = [
        anyone.get("/api/v1/sellers", headers={"Authorization": f"Bearer {text}"}).status_code for text in (one, other)
    ]
    assert statuses == [401, 200]


def test_an_outbox_row_execution_or_product_is_found_by_its_whole_name_only(admin: TestClient) -> None:
    nothing = "00000000-0000-4000-8000-000000000000"
    for path in (
        f"/api/v1/executions/{nothing}",
        f"/api/v1/outbox/{nothing}",
        "/api/v1/products/1?sellerId=another",
        "/api/v1/sellers/another",
    ):
        assert admin.get(path).status_code == 404, path
