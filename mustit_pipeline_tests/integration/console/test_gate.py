"""Who gets to which page, and which forms are taken."""

import re
from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from starlette.routing import Route

from mustit_pipeline.console.app import OTHERS
from mustit_pipeline.console.gate import rule
from mustit_pipeline.console.pages import PAGES
from mustit_pipeline.domain.access import Role
from mustit_pipeline.domain.values import CrawlingInterval, SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.sellers import registry
from mustit_pipeline_tests.integration.console.conftest import Browser

# Pages whose forms a person without a session sends.
OPEN = {"/login", "/login/link", "/preferences"}


def routes() -> Iterator[tuple[str, str]]:
    """Every method and path of the console, with something in place of the parameters."""
    for router in PAGES:
        for route in router.routes:
            assert isinstance(route, Route)
            for method in (route.methods or set()) - {"HEAD", "OPTIONS"}:
                yield method, re.sub(r"\{[^}]+\}", "1", route.path)


def test_no_page_and_no_form_is_open_but_those_of_the_login(anyone: Browser) -> None:
    checked = 0
    for method, path in routes():
        if path in OPEN or path.startswith("/static/"):
            continue
        answer = anyone.client.request(method, path)
        assert (answer.status_code, answer.headers["location"].partition("?")[0]) == (303, "/login"), (method, path)
        checked += 1
    assert checked > 40


def test_a_viewer_is_refused_every_form_that_changes_something(viewer: Browser) -> None:
    token = viewer.token()
    allowed = {"/logout", "/password", "/preferences", "/login", "/login/link"}
    refused = [path for method, path in routes() if method == "POST" and path not in allowed]
    assert len(refused) > 20
    for path in refused:
        answer = viewer.client.post(path, data={"form_token": token, "confirmed": "yes"})
        assert answer.status_code == 403, path
        assert "This needs the role admin" in answer.text


@pytest.mark.parametrize("path", ["/users", "/audit"])
def test_a_viewer_does_not_see_users_and_the_audit_log(viewer: Browser, path: str) -> None:
    assert viewer.get(path).status_code == 403
    assert f'href="{path}"' not in viewer.get("/").text


def test_a_path_without_a_rule_of_its_own_needs_a_session_and_for_changes_an_admin() -> None:
    assert rule("GET", "/to/come") is Role.VIEWER
    assert rule("POST", "/to/come") is Role.ADMIN
    assert rule("POST", "/static/console.css") is Role.ADMIN
    assert rule("DELETE", "/logout/x") is Role.ADMIN


def test_a_form_without_the_token_of_its_session_changes_nothing(admin: Browser, viewer: Browser) -> None:
    fields = {"seller_id": "dmont", "name": "x", "amount": "1", "unit": "d"}
    for token in ({}, {"form_token": ""}, {"form_token": "0" * 64}, {"form_token": viewer.token()}):
        answer = admin.client.post("/sellers", data={**fields, **token})
        assert (answer.status_code, "FORBIDDEN_FORM" in answer.text) == (403, True)
    assert admin.get("/sellers/dmont").status_code == 404
    assert admin.post("/sellers", **fields).status_code == 303
    assert admin.get("/sellers/dmont").status_code == 200


def test_the_login_form_is_bound_to_its_browser(app: FastAPI, anyone: Browser) -> None:
    stolen = Browser(app).token("/login")
    anyone.get("/login")
    answer = anyone.client.post("/login", data={"form_token": stolen, "username": "kim", "password": "x"})
    assert (answer.status_code, "FORBIDDEN_FORM" in answer.text) == (403, True)


def test_a_viewer_sees_no_control_that_would_be_refused(viewer: Browser, database: Database) -> None:
    registry.register(database, SellerId("dmont"), "D.MONT", CrawlingInterval.DEFAULT, utc_now())
    allowed = {"/preferences", "/logout", "/password"}
    for path in ("/", "/sellers", "/sellers/dmont", "/executions", "/products", "/changes", "/agents", "/budget"):
        page = viewer.get(path)
        assert page.status_code == 200, path
        forms = re.findall(r'(?s)<form[^>]*method="post"[^>]*action="([^"]+)"(.*?)</form>', page.text)
        refused = [address for address, inside in forms if address not in allowed and "<button" in inside]
        assert refused == [], path


def test_the_api_answers_below_its_own_paths_as_before(anyone: Browser, admin: Browser) -> None:
    for path in OTHERS:
        assert "text/html" not in anyone.get(f"{path}/nothing").headers["content-type"], path
    assert anyone.client.post("/health/live").status_code == 405
    missing = admin.get("/nothing/here")
    assert (missing.status_code, missing.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "There is no page at this address" in missing.text


def test_pages_bring_a_policy_without_inline_code_and_static_files_stay_for_good(admin: Browser) -> None:
    page = admin.get("/")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http:" not in policy
    assert not re.search(r"<script(?![^>]*src=)|\sstyle=|\son\w+=|javascript:", page.text)
    assert page.headers["cache-control"] == "no-store"
    for address in re.findall(r'(?:href|src)="(/static/[^"#]+)"', page.text):
        file = admin.get(address)
        assert (file.status_code, file.headers["cache-control"]) == (200, "public, max-age=31536000, immutable")
    assert admin.get("/static/console.0000000000000000.css").status_code == 404
