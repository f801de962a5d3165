"""API8 Security misconfiguration: headers, origins, methods and errors that give nothing away."""

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import text

from mustit_pipeline.api.context import Ground
from mustit_pipeline.web import create_web
from mustit_pipeline_tests.conftest import MakeSettings


@pytest.mark.parametrize("path", ["/health/live", "/api/v1/sellers", "/nowhere", "/api/v1/%FF"])
def test_every_answer_has_the_headers_that_protect_it(anyone: TestClient, path: str) -> None:
    headers = anyone.get(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert "'unsafe-inline'" not in headers["content-security-policy"]
    assert len(headers["x-request-id"]) >= 8
    assert "server" not in headers
    assert "access-control-allow-origin" not in headers


def test_no_other_origin_is_let_in(admin: TestClient) -> None:
    origin = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    asked = admin.options("/api/v1/sellers", headers=origin)
    assert not any(name.startswith("access-control") for name in asked.headers)
    assert not any(name.startswith("access-control") for name in admin.get("/api/v1/sellers", headers=origin).headers)


def test_https_is_for_good_where_it_is_used(make_settings: MakeSettings, ground: Ground) -> None:
    behind = Ground(make_settings(api_behind_proxy="yes"), ground.database, ground.keys)
    with TestClient(create_web(behind)) as client:
        assert client.get("/health/live").headers["strict-transport-security"].startswith("max-age=31536000")


def test_an_error_of_ours_says_no_more_than_its_id(app: FastAPI, ground: Ground) -> None:
    @app.get("/health/broken")
    def broken() -> None:
        raise RuntimeError("secret inner workings")

    @app.get("/health/sql")
    def sql() -> None:
        with ground.database.reading() as connection:
            connection.execute(text("SELECT secret_column FROM nowhere"))

    with TestClient(app, raise_server_exceptions=False) as client:
        for path in ("/health/broken", "/health/sql"):
            answer = client.get(path, headers={"X-Request-Id": "of-mine"})
            assert (answer.status_code, answer.json()["errorCode"]) == (500, "INTERNAL_ERROR")
            assert answer.json()["requestId"] == "of-mine"
            for word in ("secret", "Traceback", "SELECT", "nowhere", "RuntimeError", ".py"):
                assert word not in answer.text


def test_a_request_id_that_is_no_id_is_replaced(anyone: TestClient) -> None:
    for given in ("a b", "x" * 65, "<script>", "a\tb"):
        assert anyone.get("/health/live", headers={"X-Request-Id": given}).headers["x-request-id"] != given


@pytest.mark.parametrize(
    ("language", "korean"), [("", True), ("ko", True), ("en", False), ("en;q=0.5, ko;q=0.9", True), ("de, en", False)]
)
def test_messages_are_korean_unless_english_is_preferred(anyone: TestClient, language: str, korean: bool) -> None:
    message = anyone.get("/api/v1/sellers", headers={"Accept-Language": language}).json()["message"]
    assert any("가" <= sign <= "힣" for sign in message) is korean
