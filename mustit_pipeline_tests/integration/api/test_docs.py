"""The API for people to read, and the OpenAPI document in the repository."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from mustit_pipeline.api.__main__ import openapi_text
from mustit_pipeline.api.app import create_routes
from mustit_pipeline.api.reference import operations, render

ROOT = Path(__file__).parents[3]


def test_the_document_in_the_repository_is_what_the_api_says() -> None:
    assert (ROOT / "docs" / "openapi.json").read_text() == openapi_text(), (
        "run: python -m mustit_pipeline.api > docs/openapi.json"
    )


def test_the_page_shows_every_route_and_loads_nothing_from_elsewhere(anyone: TestClient) -> None:
    page = anyone.get("/docs")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    for path, methods in anyone.get("/openapi.json").json()["paths"].items():
        for operation in methods.values():
            assert f'id="{operation["operationId"]}"' in page.text, path
    assert re.findall(r"(?:src|href)=\"(?!#)([^\"]*)\"", page.text) == ["/docs.css", "/openapi.json"]
    assert not re.search(r"<script|<style|\son\w+=|\sstyle=", page.text)
    assert "script-src" not in page.headers["content-security-policy"]
    assert "default-src 'none'; style-src 'self'" in page.headers["content-security-policy"]
    assert anyone.get("/docs.css").headers["content-type"] == "text/css; charset=utf-8"


def test_whatever_the_document_says_is_text_on_the_page() -> None:
    document = create_routes().openapi()
    evil = "<script>alert(1)</script>"
    document["info"]["title"] = evil
    document["paths"][f"/{evil}"] = {
        "get": {"operationId": f'x" onload="{evil}', "description": evil, "tags": [evil], "responses": {"200": {}}}
    }
    page = render(document)
    assert evil not in page
    assert 'onload="' not in page
    assert "&lt;script&gt;" in page


def test_an_error_is_described_as_a_problem_and_nothing_else() -> None:
    document = create_routes().openapi()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            errors = {status: one for status, one in operation["responses"].items() if status >= "400"}
            if not path.startswith("/health"):
                assert {tuple(one["content"]) for one in errors.values()} == {("application/problem+json",)}, (
                    method,
                    path,
                )


TAGS = {"products", "changes", "outbox", "drift", "alerts", "audit", "users", "API keys"}


def test_every_body_and_answer_about_things_has_an_example_in_full() -> None:
    found = [one for one in operations(create_routes().openapi()) if one.tag in TAGS]
    assert len(found) > 15
    for one in found:
        for example in (one.body_example, *(outcome.example for outcome in one.outcomes)):
            assert '"…"' not in example, one.path


def test_the_document_is_made_in_a_thread_whichever_answer_needs_it_first(
    app: FastAPI, admin: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes most of a second, in which the event loop would answer no other request."""
    made = app.openapi

    def off_the_loop() -> dict[str, Any]:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return made()

    monkeypatch.setattr(app, "openapi", off_the_loop)
    for path, methods in (("/api/v1/users", "GET, POST"), ("/api/v1/outbox/retry", "POST"), ("/docs", "GET")):
        refused = admin.put(path)
        assert (refused.status_code, refused.headers["allow"]) == (405, methods)
    assert [admin.get(path).status_code for path in ("/openapi.json", "/docs")] == [200, 200]
