"""Users and API keys over HTTP: who may log in, who is refused at once, and what is never shown."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from mustit_pipeline.foundation.database import Database
from mustit_pipeline_tests.integration.api.auditing import audited

USERS, KEYS = "/api/v1/users", "/api/v1/api-keys"
PASSWORD, OTHER = "correct horse battery", "staple of the battery"


def login(client: TestClient, name: str, password: str) -> Any:
    return client.post("/api/v1/auth/login", json={"username": name, "password": password})


def test_a_user_is_added_logs_in_is_changed_and_let_in_no_more(
    admin: TestClient, anyone: TestClient, database: Database
) -> None:
    made = admin.post(USERS, json={"name": "Kim", "role": "viewer", "password": PASSWORD})
    assert (made.status_code, made.json()["name"], made.json()["hasPassword"]) == (201, "kim", True)
    token = {"Authorization": f"Bearer {login(anyone, 'kim', PASSWORD).json()['accessToken']}"}
    assert anyone.get("/api/v1/sellers", headers=token).status_code == 200
    changed = admin.patch(f"{USERS}/KIM", json={"role": "admin", "password": OTHER})
    assert changed.json()["role"] == "admin"
    assert anyone.get("/api/v1/sellers", headers=token).status_code == 401
    assert login(anyone, "kim", OTHER).json()["role"] == "admin"
    assert admin.patch(f"{USERS}/kim", json={"disabled": True}).json()["disabled"] is True
    assert login(anyone, "kim", OTHER).status_code == 401
    again = admin.patch(f"{USERS}/kim", json={"disabled": True})
    assert (again.status_code, again.json()["errorCode"]) == (409, "CONFLICT_USER_ALREADY_DISABLED")
    assert admin.patch(f"{USERS}/kim", json={}).json()["disabled"] is True
    listed = admin.get(USERS).json()
    assert [user["name"] for user in listed["content"]] == ["admin", "kim"]
    before, after = {"role": "viewer", "disabled": False}, {"role": "admin", "disabled": False}
    assert audited(database, "user.") == [
        ("user.add", "user kim", None, before),
        ("user.change", "user kim", before | {"password": "***"}, after | {"password": "***"}),
        ("user.disable", "user kim", after, after | {"disabled": True}),
    ]


def test_the_last_admin_stays_one_however_it_is_asked_for(admin: TestClient) -> None:
    for change in ({"role": "viewer"}, {"disabled": True}, {"role": "viewer", "password": PASSWORD}):
        refused = admin.patch(f"{USERS}/admin", json=change)
        assert (refused.status_code, refused.json()["errorCode"]) == (409, "CONFLICT_LAST_ADMIN")
    admin.post(USERS, json={"name": "kim", "role": "admin"})
    assert admin.patch(f"{USERS}/kim", json={"role": "viewer"}).json()["role"] == "viewer"
    assert admin.patch(f"{USERS}/admin", json={"role": "viewer"}).json()["errorCode"] == "CONFLICT_LAST_ADMIN"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"name": "kim"}, "VALIDATION_REQUEST"),
        ({"name": "a b", "role": "viewer"}, "VALIDATION_REQUEST"),
        ({"name": "kim", "role": "owner"}, "VALIDATION_REQUEST"),
        ({"name": "kim", "role": "viewer", "password": "hunter2"}, "VALIDATION_REQUEST"),
        ({"name": "seoyeon", "role": "viewer", "password": "seoyeon-2026"}, "VALIDATION_PASSWORD_NAME"),
        ({"name": "kim", "role": "viewer", "isAdmin": True}, "VALIDATION_REQUEST"),
    ],
)
def test_a_user_that_cannot_be_added_is_refused_without_the_password_in_the_answer(
    admin: TestClient, body: dict[str, object], code: str
) -> None:
    refused = admin.post(USERS, json=body)
    assert (refused.status_code, refused.json()["errorCode"]) == (400, code)
    assert str(body.get("password", "hunter2")) not in refused.text


def test_users_and_keys_are_for_admins_alone(viewer: TestClient, anyone: TestClient) -> None:
    for path in (USERS, KEYS):
        assert viewer.get(path).json()["errorCode"] == "FORBIDDEN_ROLE"
        assert anyone.get(path).status_code == 401
    assert viewer.patch(f"{USERS}/viewer", json={"role": "admin"}).status_code == 403
    assert viewer.delete(f"{KEYS}/000000000000").status_code == 403


def test_unknown_and_known_users_are_told_apart_for_admins(admin: TestClient) -> None:
    assert admin.patch(f"{USERS}/stranger", json={"role": "viewer"}).json()["errorCode"] == "NOT_FOUND_USER"
    assert admin.post(USERS, json={"name": "ADMIN", "role": "viewer"}).json()["errorCode"] == "CONFLICT_USER_EXISTS"
    assert admin.patch(f"{USERS}/admin", json={"disabled": "true"}).status_code == 400


def test_a_key_is_shown_once_and_two_of_a_name_can_be_active(
    admin: TestClient, anyone: TestClient, database: Database
) -> None:
    made = [admin.post(KEYS, json={"name": "scheduler", "scope": "trigger metrics"}) for _ in range(3)]
    assert [one.status_code for one in made] == [201, 201, 409]
    assert made[2].json()["errorCode"] == "CONFLICT_API_KEYS_ACTIVE"
    first = made[0].json()
    assert first["key"].startswith(f"mk_{first['id']}_")
    listed = admin.get(KEYS).json()["content"]
    assert [(key["scope"], key["state"]) for key in listed] == [("metrics trigger", "active")] * 2
    assert first["key"] not in admin.get(KEYS).text
    assert admin.delete(f"{KEYS}/{first['id']}").status_code == 204
    assert admin.delete(f"{KEYS}/{first['id']}").json()["errorCode"] == "CONFLICT_API_KEY_REVOKED"
    assert admin.delete(f"{KEYS}/000000000000").json()["errorCode"] == "NOT_FOUND_API_KEY"
    assert [key["state"] for key in admin.get(KEYS).json()["content"]] == ["revoked", "active"]
    assert [entry[:2] for entry in audited(database, "apikey")] == [
        ("apikey.create", "apikey scheduler"),
        ("apikey.create", "apikey scheduler"),
        ("apikey.revoke", "apikey scheduler"),
    ]
    assert first["key"] not in str(audited(database, ""))


@pytest.mark.parametrize(
    "change", [{"scope": "all"}, {"scope": ""}, {"expires": "0d"}, {"expires": "1m"}, {"name": ""}]
)
def test_a_key_that_cannot_be_made_is_refused(admin: TestClient, change: dict[str, str]) -> None:
    refused = admin.post(KEYS, json={"name": "scheduler"} | change)
    assert (refused.status_code, refused.json()["errorCode"]) == (400, "VALIDATION_REQUEST")
