"""Logs: pretty or JSON, with the ids of what they are about, and never with a secret."""

import asyncio
import base64
import logging
from collections.abc import Generator
from pathlib import Path
from typing import Any

import jwt
import orjson
import pytest
import structlog
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mustit_pipeline.access import keyed_secrets
from mustit_pipeline.foundation import logs
from mustit_pipeline.settings import Settings

REDACTED = logs.REDACTED
KEY = base64.b64encode(bytes(range(32))).decode()


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """What a test configures and hides is over with it."""
    monkeypatch.setattr(logs, "_hidden", logs.Hidden())
    loggers = [logging.getLogger(name) for name in logs.ROUTED]
    before = [(one.handlers, one.propagate, one.level) for one in loggers]
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    for one, (handlers, propagate, level) in zip(loggers, before, strict=True):
        one.handlers, one.propagate = handlers, propagate
        one.setLevel(level)


@pytest.fixture
def json_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTIT_LOG_FORMAT", "json")
    logs.configure("info")


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    shown = capsys.readouterr()
    assert shown.out == ""
    return [orjson.loads(line) for line in shown.err.splitlines()]


@pytest.mark.usefixtures("json_logs")
def test_a_line_is_one_json_object_with_level_time_and_what_it_is_about(capsys: pytest.CaptureFixture[str]) -> None:
    with logs.about(execution_id=7, seller_id="럭셔리 샵", task_id=None):
        structlog.get_logger().info("한\n줄", count=3)
    structlog.get_logger().info("after it")
    first, second = lines(capsys)
    assert first.pop("timestamp").endswith("Z")
    assert first == {"event": "한\n줄", "level": "info", "count": 3, "execution_id": "7", "seller_id": "럭셔리 샵"}
    assert "seller_id" not in second


@pytest.mark.usefixtures("json_logs")
def test_ids_follow_into_tasks_and_threads_and_stay_apart(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        structlog.get_logger().info("work")

    async def fetch(task_id: int) -> None:
        with logs.about(task_id=task_id):
            await asyncio.to_thread(work)

    async def crawl() -> None:
        with logs.about(seller_id="dmont"):
            await asyncio.gather(*(fetch(number) for number in range(3)))

    asyncio.run(crawl())
    assert sorted((line["seller_id"], line["task_id"]) for line in lines(capsys)) == [
        ("dmont", "0"),
        ("dmont", "1"),
        ("dmont", "2"),
    ]


def test_the_level_is_the_setting_or_what_is_usual_for_the_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for setting, usual, shown in (("", "warning", 1), ("", "info", 2), ("error", "info", 0), ("nonsense", "info", 2)):
        monkeypatch.setenv("MUSTIT_LOG_LEVEL", setting)
        logs.configure(usual)  # pyright: ignore[reportArgumentType]
        structlog.get_logger().warning("a")
        structlog.get_logger().info("b")
        assert len(capsys.readouterr().err.splitlines()) == shown, (setting, usual)


def test_lines_of_the_web_servers_library_look_like_ours(json_logs: None, capsys: pytest.CaptureFixture[str]) -> None:
    logging.getLogger("uvicorn.error").error("refused %s", "Authorization: Bearer abcdefgh")
    [line] = lines(capsys)
    assert (line["event"], line["logger"], line["level"]) == (
        f"refused Authorization: {REDACTED}",
        "uvicorn.error",
        "error",
    )


@pytest.mark.parametrize("form", ["pretty", "json"])
def test_an_error_is_shown_without_the_values_of_its_variables(
    form: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MUSTIT_LOG_FORMAT", form)
    logs.configure()
    password = "hunter22hunter22"
    try:
        Settings.model_validate({"home": f"~postgresql://me:{password}@db/x"})
    except ValueError:
        structlog.get_logger().exception("it failed")
    shown = capsys.readouterr().err
    assert "ValidationError" in shown
    assert f"postgresql://me:{REDACTED}@db/x" in shown
    assert password not in shown


SECRET_KEYS = [
    "password",
    "accessToken",
    "JWT_SECRET",
    "Authorization",
    "cookies",
    "X-API-Key",
    "api_key",
    "credential",
]
secret_texts = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=8, max_size=40)
ordinary = st.text(max_size=20)


@given(st.sampled_from(SECRET_KEYS), secret_texts, ordinary, st.integers(0, 3))
def test_what_stands_under_the_name_of_a_secret_is_hidden_however_deep(
    key: str, secret: str, other: str, depth: int
) -> None:
    value: Any = {key: secret, "other": other}
    for _ in range(depth):
        value = {"inside": [value, (secret[:0],)]}
    found = logs.redact(None, "", {"event": "x", "value": value, key: [secret], "count_of_tokens": 3})
    assert secret not in repr(found) or secret in other
    assert found["count_of_tokens"] == 3


@st.composite
def recognizable(draw: st.DrawFn) -> tuple[str, str]:
    """A text with a secret in it, and the part of it that must not be seen."""
    secret = draw(secret_texts)
    token = jwt.encode({"sub": secret}, "k" * 32, algorithm="HS256")
    made = keyed_secrets.make(draw(st.sampled_from(["mk", "ml"]))).text
    return draw(
        st.sampled_from(
            [
                (token, token.split(".")[1]),
                (token[: len(token) // 2], token[5 : len(token) // 2]),
                (made, made.split("_")[2]),
                (f"Bearer {secret}", secret),
                (f"Authorization: Custom {secret}", secret),
                (f"Cookie: nid=1; token={secret}", secret),
                (f"{{'x-api-key': '{secret}'}}", secret),
                (f"redis://:{secret}@host/0", secret),
                (f"postgresql://me:{secret}@host/db", secret),
                (f"/login?token={secret}&next=/", secret),
            ]
        )
    )


@given(ordinary, recognizable(), ordinary)
def test_what_looks_like_a_secret_is_hidden_wherever_it_stands(before: str, found: tuple[str, str], after: str) -> None:
    text, secret = found
    shown = logs.redact(None, "", {"event": f"{before} {text} {after}", "more": [text], "error": ValueError(text)})
    assert secret not in repr(shown) or secret in before + after


@given(ordinary)
def test_other_text_stays_as_it_is(text: str) -> None:
    if not any(sign in text for sign in ":=@"):
        assert logs.redact(None, "", {"event": text, "path": f"/api/v1/sellers/{text}"})["event"] == text


@pytest.mark.parametrize(
    "text",
    [
        "the session of agent 092021e7-7bcb-432d-a151-2dfb2ba575e6 needs the key '2026-11-01', which is not set",
        "token key opens 12 stored tokens",
        "http://127.0.0.1:9/mustit-api/facade-api/v1/item/118005032/detail/top",
        "no token was issued",
    ],
)
def test_ordinary_sentences_stay(text: str) -> None:
    assert logs.redacted_text(text) == text


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(secret_texts, secret_texts, ordinary)
def test_the_secrets_of_the_settings_are_hidden_by_value(
    tmp_path_factory: pytest.TempPathFactory, password: str, token: str, around: str
) -> None:
    given_settings = Settings(  # pyright: ignore[reportCallIssue]
        home=tmp_path_factory.mktemp("home"),
        database_url=f"postgresql://me:{password}@host/db",
        dagster_database_url="postgresql://me@host/dagster",
        token_key=f"2026:{KEY}",  # pyright: ignore[reportArgumentType]
        jwt_secret=f"a:{token * 5}",  # pyright: ignore[reportArgumentType]
        product_server_token=token,  # pyright: ignore[reportArgumentType]
        alert_urls=f"json://host/{token}",  # pyright: ignore[reportArgumentType]
    )
    logs.hide_secrets_of(given_settings)
    for secret in (password, token, KEY, token * 5):
        shown = logs.redact(None, "", {"event": f"{around}{secret}{around}", "rest": {"a": [secret]}})
        assert secret not in repr(shown) or secret in around


def test_secrets_that_were_made_once_are_hidden_too(tmp_path: Path) -> None:
    made = Settings(home=tmp_path)  # pyright: ignore[reportCallIssue]
    made.make_secrets()
    logs.hide_secrets_of(made)
    secret = (tmp_path / "secrets" / "jwt_secret").read_text()
    assert logs.redacted_text(f"it is {secret}.") == f"it is {REDACTED}."
