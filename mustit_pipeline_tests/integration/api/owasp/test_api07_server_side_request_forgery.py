"""API7 Server side request forgery: no client chooses an address that the server calls."""

import socket
from typing import Any, cast

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

ADDRESS_WORDS = ("url", "uri", "host", "callback", "webhook", "endpoint")


def fields(schema: Any) -> list[str]:
    """Every name of a property, however deep it lies."""
    if isinstance(schema, dict):
        found = cast("dict[str, Any]", schema)
        return [*found.get("properties", {}), *(name for inner in found.values() for name in fields(inner))]
    return [name for inner in cast("list[Any]", schema) for name in fields(inner)] if isinstance(schema, list) else []


def test_no_body_has_a_field_for_an_address(app: FastAPI) -> None:
    document = app.openapi()
    bodies = {
        operation["requestBody"]["content"]["application/json"]["schema"].get("$ref", "").rpartition("/")[2]
        for methods in document["paths"].values()
        for operation in methods.values()
        if "requestBody" in operation
    }
    named = [name for body in bodies for name in fields(document["components"]["schemas"].get(body, {}))]
    assert named
    assert [name for name in named if any(word in name.lower() for word in ADDRESS_WORDS)] == []


def test_an_address_where_an_id_belongs_is_a_text_and_is_not_called(
    admin: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[object] = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments, **_: called.append(arguments) or [])
    for text in ("http://169.254.169.254/latest/meta-data", "file:///etc/passwd", "//127.0.0.1:5432"):
        made = admin.post("/api/v1/sellers", json={"sellerId": text, "name": text})
        assert made.status_code == 201, made.text
        assert admin.get(made.headers["location"]).json()["sellerId"] == text
    assert called == []
