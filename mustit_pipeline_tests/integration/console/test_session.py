"""Sessions of the console: how they begin, last and end, and what they do not open."""

from datetime import timedelta

import pytest
from fastapi import FastAPI

from mustit_pipeline.access import console_sessions, login_links, users
from mustit_pipeline.access.tokens import issue
from mustit_pipeline.api.context import Ground
from mustit_pipeline.domain.access import Password, Role, UserName
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.web import create_web
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.console.conftest import Browser, MakeBrowser

KIM, SECRET = UserName("kim"), "correct horse battery"


@pytest.fixture
def kim(ground: Ground) -> UserName:
    users.add(ground.database, KIM, Role.ADMIN, Password(SECRET, KIM))
    return KIM


def logged_in(browser: Browser, **more: str) -> object:
    return browser.post("/login", page="/login", username="kim", password=SECRET, **more)


def test_a_person_logs_in_comes_to_the_page_they_asked_for_and_logs_out(anyone: Browser, kim: UserName) -> None:
    asked = anyone.get("/sellers?q=a%26b")
    assert (asked.status_code, asked.headers["location"]) == (303, "/login?next=%2Fsellers%3Fq%3Da%2526b")
    answer = anyone.post("/login", page="/login", username="KIM ", password=SECRET, next="/sellers?q=a%26b")
    assert (answer.status_code, answer.headers["location"]) == (303, "/sellers?q=a%26b")
    cookie = next(value for value in answer.headers.get_list("set-cookie") if value.startswith("mustit_session="))
    assert {"HttpOnly", "Path=/", "SameSite=lax"} <= set(cookie.split("; "))
    assert anyone.get("/").status_code == 200
    kept = anyone.client.cookies["mustit_session"]
    assert anyone.post("/logout").headers["location"] == "/login"
    assert anyone.get("/").status_code == 303
    anyone.client.cookies.set("mustit_session", kept, domain="testserver.local")
    assert anyone.get("/").status_code == 303


@pytest.mark.parametrize("target", ["//evil.example", "/\\evil.example", "https://evil.example", "javascript:alert(1)"])
def test_no_login_leads_to_another_server(anyone: Browser, kim: UserName, target: str) -> None:
    answer = anyone.post("/login", page="/login", username="kim", password=SECRET, next=target)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")


def test_a_wrong_password_says_so_on_the_page_and_soon_has_to_wait(anyone: Browser, kim: UserName) -> None:
    first = anyone.post("/login", page="/login", username="kim", password="wrong")
    assert first.status_code == 401
    assert "The user name or the password is wrong" in first.text
    last = [anyone.post("/login", page="/login", username="kim", password="wrong") for _ in range(3)][-1]
    assert last.status_code == 429
    assert int(last.headers["retry-after"]) > 0


def test_under_https_cookies_are_for_this_host_and_https_alone(
    make_settings: MakeSettings, ground: Ground, kim: UserName
) -> None:
    settings = make_settings(api_behind_proxy="yes")
    browser = Browser(create_web(Ground(settings, ground.database, settings.signing_keys())))
    browser.client.base_url = "https://testserver"
    answer = browser.post("/login", page="/login", username="kim", password=SECRET)
    cookies = answer.headers.get_list("set-cookie")
    assert any(value.startswith("__Host-mustit_session=") for value in cookies)
    assert all("Secure" in value and "Path=/" in value and "Domain" not in value for value in cookies)
    assert browser.get("/").status_code == 200


def test_a_link_is_used_by_its_button_alone_and_then_a_password_is_set(anyone: Browser, ground: Ground) -> None:
    users.add(ground.database, KIM, Role.ADMIN, None)
    link = login_links.make_link(ground.database, KIM)
    for _ in range(3):
        page = anyone.get(link.path)
        assert page.status_code == 200
    answer = anyone.post("/login/link", page=link.path, key=link.text)
    assert answer.headers["location"] == "/password"
    session = anyone.client.cookies["mustit_session"]
    set_up = anyone.post("/password", fresh=SECRET, again=SECRET)
    assert (set_up.status_code, set_up.headers["location"]) == (303, "/")
    assert anyone.client.cookies["mustit_session"] != session
    assert anyone.get("/").status_code == 200
    stranger = Browser(anyone.client.app)  # pyright: ignore[reportArgumentType]
    again = stranger.post("/login/link", page="/login", key=link.text)
    assert again.status_code == 401
    assert logged_in(stranger).status_code == 303  # pyright: ignore[reportAttributeAccessIssue]


def test_another_password_needs_the_present_one(anyone: Browser, kim: UserName) -> None:
    logged_in(anyone)
    wrong = anyone.post("/password", present="not it", fresh="another long password", again="another long password")
    assert wrong.status_code == 401
    differ = anyone.post("/password", present=SECRET, fresh="another long password", again="another long passwort")
    assert (differ.status_code, "differ" in differ.text) == (400, True)


def test_a_session_in_use_is_renewed_for_a_working_day_and_no_longer(app: FastAPI, ground: Ground) -> None:
    user = users.add(ground.database, KIM, Role.VIEWER, None)
    began = utc_now() - timedelta(hours=11, minutes=45)
    token = console_sessions.open_session(ground.keys, user, began)
    with ground.database.reading() as connection, pytest.raises(Exception, match="Log in first"):
        console_sessions.verify(connection, ground.keys, token.text)
    half = console_sessions.open_session(ground.keys, user, utc_now() - 0.6 * console_sessions.IDLE)
    browser = Browser(app, cookie=half.text)
    assert browser.get("/").status_code == 200
    fresh = browser.client.cookies["mustit_session"]
    assert fresh != half.text
    with ground.database.reading() as connection:
        identity = console_sessions.verify(connection, ground.keys, fresh)
    assert identity.jti == half.jti
    assert identity.expires_at - utc_now() > 0.9 * console_sessions.IDLE
    late = console_sessions.renewed(ground.keys, identity, utc_now() + console_sessions.LONGEST)
    assert late is None


def test_logging_out_ends_every_token_of_the_session(app: FastAPI, ground: Ground) -> None:
    user = users.add(ground.database, KIM, Role.VIEWER, None)
    old = console_sessions.open_session(ground.keys, user, utc_now() - 0.6 * console_sessions.IDLE)
    browser = Browser(app, cookie=old.text)
    browser.get("/")
    browser.post("/logout")
    for text in (old.text, browser.client.cookies.get("mustit_session") or ""):
        assert Browser(app, cookie=text).get("/").status_code == 303


@pytest.mark.parametrize("change", ["role", "password", "disable"])
def test_a_change_of_the_user_ends_the_session_at_once(log_in: MakeBrowser, ground: Ground, change: str) -> None:
    log_in(Role.ADMIN, "another")
    browser, name = log_in(Role.ADMIN, "kim"), KIM
    assert browser.get("/").status_code == 200
    match change:
        case "role":
            users.change_role(ground.database, name, Role.VIEWER)
        case "password":
            users.change_password(ground.database, name, Password(SECRET, name))
        case _:
            users.disable(ground.database, name)
    assert browser.get("/").status_code == 303


def test_an_access_token_opens_no_page_and_a_session_no_route_of_the_api(app: FastAPI, ground: Ground) -> None:
    user = users.add(ground.database, KIM, Role.ADMIN, None)
    access = issue(ground.keys, user, utc_now()).text
    session = console_sessions.open_session(ground.keys, user, utc_now()).text
    assert Browser(app, cookie=access).get("/").status_code == 303
    bearer = {"Authorization": f"Bearer {access}"}
    assert Browser(app).get("/", headers=bearer).status_code == 303
    assert Browser(app).get("/api/v1/sellers", headers=bearer).status_code == 200
    assert Browser(app).get("/api/v1/sellers", headers={"Authorization": f"Bearer {session}"}).status_code == 401
    assert Browser(app, cookie=session).get("/api/v1/sellers").status_code == 401
