"""Settings: every wrong value is refused in words, and secrets stay secret."""

import base64
import fcntl
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mustit_pipeline.settings import (
    ORDERED,
    Settings,
    SettingsError,
    TokenKey,
    load_settings,
    simulated_world_file,
    unknown_variables,
)

KEY = base64.b64encode(b"k" * 32).decode()
OTHER_KEY = base64.b64encode(b"o" * 32).decode()
EXTERNAL = {
    "DATABASE_URL": "postgresql://u:p@127.0.0.1/mustit",
    "DAGSTER_DATABASE_URL": "postgresql://u:p@127.0.0.1/dagster",
    "TOKEN_KEY": KEY,
    "JWT_SECRET": "j" * 32,
}
# Field, wrong value, and a part of what the message must say that it takes.
WRONG = [
    ("home", "~no-such-account/x", "folder"),
    ("database_url", "mysql://u:hunter2@h/d", "postgresql://"),
    ("database_url", "postgresql://u:hunter2@h:abc/d", "host:5432/database"),
    ("database_url", "postgresql://u:p@hunter2@h/d", "%40"),
    ("database_url", "postgresql://u:p/w@h/hunter2@h/d", "%40"),
    ("database_url", "postgresql://u:p@x:hunter2@h:5432/d", "%40"),
    ("database_url", "postgresql://u:p@h/d?hunter2=1", "sslmode=require"),
    ("dagster_database_url", "sqlite:///hunter2", "postgresql://"),
    ("dagster_database_url", "postgresql://u@h:/d", "host:5432/database"),
    ("database_connections", "0", "greater than or equal to 1"),
    ("database_max_connections", "1001", "less than or equal to 1000"),
    ("dagster_port", "70000", "65535"),
    ("dagster_port", "0", "greater than or equal to 1"),
    ("api_port", "http", "valid integer"),
    ("redis_url", "http://:hunter2@h", "redis://host:6379/0"),
    ("redis_url", "redis://h:abc", "redis://host:6379/0"),
    ("redis_url", "redis://:hunter2/x@h", "%2F"),
    ("redis_url", "redis://u:12/hunter2@h", "%2F"),
    ("redis_url", "redis://h:6379/hunter2", "redis://host:6379/0"),
    ("redis_url", "redis://h:6379?hunter2=1", "like db=1"),
    ("base_url", "ftp://u:hunter2@h", "'http' or 'https'"),
    ("base_url", "http://", "valid URL"),
    ("base_url", "http://user:hunter2@host", "without a user name or password"),
    ("demo", "quiet", "'lively' or 'calm'"),
    ("listing_path", "api/listing", "absolute path"),
    ("listing_path", "/api/listing/", "absolute path"),
    ("listing_path", "/api/listing?x=1", "without a query"),
    ("listing_path", "/api/listing#x", "without a query"),
    ("first_page_no", "2", "less than or equal to 1"),
    ("page_size", "0", "greater than or equal to 1"),
    ("seller_most_products", "0", "greater than or equal to 1"),
    ("connect_timeout_seconds", "0", "greater than 0"),
    ("read_timeout_seconds", "soon", "valid number"),
    ("total_timeout_seconds", "nan", "finite number"),
    ("max_body_bytes", "1", "greater than or equal to 1024"),
    ("product_server_url", "product-server:hunter2", "'http' or 'https'"),
    ("product_server_url", "http://user:hunter2@host", "without a user name or password"),
    ("product_server_token", "hunter2-비밀", "printable ASCII"),
    ("product_server_token", "hunter2 hunter2", "without a blank"),
    ("product_server_token", "hunter2\r\nX-Role: admin", "printable ASCII"),
    ("product_server_token", " \n", "printable ASCII"),
    ("token_key", "hunter2", "32 bytes in base64"),
    ("token_key", "비밀hunter2", "32 bytes in base64"),
    ("token_key", f"{KEY},:{OTHER_KEY}", "kid:key"),
    ("token_key", f"a:{KEY},a:{OTHER_KEY}", "twice"),
    ("token_key", f"{KEY},{OTHER_KEY}", "'k0' twice"),
    ("token_key", f"b:{KEY},k0:a:{OTHER_KEY}", "kid:key"),
    ("jwt_secret", "hunter2", "at least 32 characters"),
    ("jwt_secret", f"{'j' * 32},hunter2", "at least 32 characters"),
    ("jwt_secret", f"hunter2:{'j' * 20}", "at least 32 characters"),
    ("jwt_secret", f"hunter 2:{'j' * 32}", "kid:secret"),
    ("jwt_secret", f":{'j' * 32}", "kid:secret"),
    ("jwt_secret", f"a:{'j' * 32},a:{'k' * 32}", "twice"),
    ("jwt_secret", f"{'j' * 32},{'j' * 32}", "twice"),
    ("requests_per_hour", "0", "greater than or equal to 1"),
    ("window_seconds", "inf", "finite number"),
    ("min_request_gap_seconds", "-1", "greater than or equal to 0"),
    ("max_concurrent_requests", "1001", "less than or equal to 1000"),
    ("suspend_seconds", "-1", "greater than 0"),
    ("longest_retry_after_seconds", "0", "greater than 0"),
    ("undecided_share", "1.1", "less than or equal to 1"),
    ("storm_urls", "0", "greater than or equal to 1"),
    ("storm_agents", "0", "greater than or equal to 1"),
    ("storm_share", "0", "greater than 0"),
    ("storm_window_seconds", "0", "greater than 0"),
    ("storm_pause_seconds", "0", "greater than 0"),
    ("breaker_min_available", "20%", "valid number"),
    ("breaker_cooldown_seconds", "0", "greater than 0"),
    ("network_tries", "0", "greater than or equal to 1"),
    ("throttled_tries", "1", "greater than or equal to 2"),
    ("session_patience_seconds", "0", "greater than 0"),
    ("task_max_retries", "-1", "greater than or equal to 0"),
    ("task_max_releases", "0", "greater than or equal to 1"),
    ("raw_max_attempts", "0", "greater than or equal to 1"),
    ("runs_at_once", "0", "greater than or equal to 1"),
    ("crawls_at_once", "0", "greater than or equal to 1"),
    ("product_server_connect_seconds", "0", "greater than 0"),
    ("product_server_read_seconds", "0", "greater than 0"),
    ("product_server_breaker_failures", "0", "greater than or equal to 1"),
    ("product_server_breaker_seconds", "61", "less than or equal to 60"),
    ("product_server_credential_seconds", "0", "greater than 0"),
    ("relay_batch", "0", "greater than or equal to 1"),
    ("relay_lease_seconds", "0", "greater than 0"),
    ("relay_run_seconds", "3601", "less than or equal to 3600"),
    ("relay_longest_backoff_seconds", "0", "greater than 0"),
    ("relay_grace_seconds", "61", "less than or equal to 60"),
    ("relay_concurrent_sends", "0", "greater than or equal to 1"),
    ("outbox_max_retries", "51", "less than or equal to 50"),
    ("outbox_retry_base_seconds", "0", "greater than 0"),
    ("retry_base_seconds", "0", "greater than 0"),
    ("lease_seconds", "0", "greater than 0"),
    ("grace_seconds", "-1", "greater than or equal to 0"),
    ("crawl_slice_seconds", "0", "greater than 0"),
    ("slice_max_crashes", "0", "greater than or equal to 1"),
    ("slice_backoff_seconds", "0", "greater than 0"),
    ("slice_longest_backoff_seconds", "0", "greater than 0"),
    ("plan_backoff_seconds", "0", "greater than 0"),
    ("plan_longest_backoff_seconds", "0", "greater than 0"),
    ("deletion_hold_share", "1.1", "less than or equal to 1"),
    ("deletion_sweeps", "0", "greater than or equal to 1"),
    ("drift_block", "detail.Product Info", "takes paths of fields"),
    ("drift_block", "stock", "beginning with listing, detail or options"),
    ("recrawl", "nothing", "'adaptive' or 'everything'"),
    ("max_age_hours", "0", "greater than 0"),
    ("min_change_chance", "1.1", "less than or equal to 1"),
    ("trigger", "cron", "'dagster' or 'eventbridge'"),
    ("trigger_target_arn", "mustit-triggers", "arn:aws:sqs:"),
    ("trigger_role_arn", "mustit-rules", "takes an ARN"),
    ("trigger_api_url", "crawl.example.com", "valid URL"),
    ("trigger_api_key", "hunter2", "mk_"),
    ("task_transport", "kafka", "'postgres'"),
    ("task_queue_name", "mustit-tasks", ".fifo"),
    ("task_dlq_name", "배달.fifo", ".fifo"),
    ("aws_endpoint_url", "localhost", "valid URL"),
    ("trigger_queue_url", "mustit-triggers", "valid URL"),
    ("trigger_tick_messages", "9", "greater than or equal to 10"),
    ("trigger_tick_seconds", "31", "less than or equal to 30"),
    ("schedule_retention_days", "0", "greater than or equal to 1"),
    ("trigger_retention_days", "14", "greater than or equal to 15"),
    ("lake_uri", "gs://bucket", "s3://"),
    ("lake_uri", "s3://", "s3://bucket"),
    ("compute_logs_uri", "gs://bucket", "s3://"),
    ("compute_logs_uri", "s3:///logs", "s3://bucket"),
    ("api_host", "my.host", "takes an IP address"),
    ("api_tls_cert", "/nowhere/cert.pem", "there is no file at this path"),
    ("api_tls_key", "/nowhere/key.pem", "there is no file at this path"),
    ("api_behind_proxy", "proxy.local", "the proxy's addresses"),
    ("console_images", "perhaps", "valid boolean"),
    ("console_url", "http://user:hunter2@host", "without a user name or password"),
    ("dagster_viewer_port", "0", "greater than or equal to 1"),
    ("task_retention_months", "0", "greater than or equal to 1"),
    ("raw_retention_days", "0", "greater than or equal to 1"),
    ("raw_unchanged_days", "-1", "greater than or equal to 0"),
    ("alert_retention_days", "0", "greater than or equal to 1"),
    ("truth_retention_days", "3651", "less than or equal to 3650"),
    ("run_log_retention_days", "0", "greater than or equal to 1"),
    ("full_refresh_days", "0", "greater than 0"),
    ("run_launcher", "kubernetes", "'celery'"),
    ("broker_url", "amqp://:hunter2@h", "redis://host:6379/1"),
    ("broker_url", "redis://:hunter2@h:abc", "redis://host:6379/1"),
    ("broker_url", "redis://h:6379/hunter2", "redis://host:6379/1"),
    ("run_worker_slots", "0", "greater than or equal to 1"),
    ("run_grace_seconds", "0", "greater than 0"),
    ("check_window_hours", "0", "greater than 0"),
    ("crawl_success_percent", "101", "less than or equal to 100"),
    ("coverage_percent", "-1", "greater than or equal to 0"),
    ("completeness_percent", "101", "less than or equal to 100"),
    ("correct_percent", "most", "valid number"),
    ("products_per_day", "-1", "greater than or equal to 0"),
    ("delivery_hours", "0", "greater than 0"),
    ("fetch_p95_seconds", "0", "greater than 0"),
    ("log_format", "xml", "'pretty' or 'json'"),
    ("log_level", "loud", "'debug', 'info', 'warning' or 'error'"),
    ("outbox_age_hours", "0", "greater than 0"),
    ("overdue_intervals", "0.5", "greater than or equal to 1"),
    ("null_share", "1.1", "less than or equal to 1"),
    ("price_jump_factor", "1", "greater than 1"),
    ("suspicious_share", "20%", "valid number"),
    ("suspicious_least", "0", "greater than or equal to 1"),
    ("truth_sample", "-1", "greater than or equal to 0"),
    ("truth_seconds", "0", "greater than 0"),
    ("truth_window_days", "0", "greater than 0"),
    ("alert_urls", "hunter2", "takes addresses like json://host/path"),
    ("alert_urls", "json://host/hunter2 and hunter2", "separated by blanks or commas"),
    ("alert_repeat_hours", "0", "greater than 0"),
    ("alert_calm_seconds", "-1", "greater than or equal to 0"),
]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in list(os.environ):
        if name.startswith("MUSTIT_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    load_settings.cache_clear()
    yield
    load_settings.cache_clear()


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    return monkeypatch


def load(environment: pytest.MonkeyPatch, **values: str) -> Settings:
    for name, value in values.items():
        environment.setenv(f"MUSTIT_{name}", value)
    load_settings.cache_clear()
    return load_settings()


@pytest.mark.parametrize(("field", "value", "takes"), WRONG)
def test_a_wrong_value_names_its_variable_and_what_it_takes_in_english_and_korean(
    environment: pytest.MonkeyPatch, field: str, value: str, takes: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        load(environment, **{field.upper(): value})
    text = str(refused.value)
    assert f"MUSTIT_{field.upper()}: " in text
    assert takes in text
    assert "\n" not in text
    for secret in ("hunter2", KEY, OTHER_KEY):
        assert secret not in text
        assert secret not in refused.value.korean
    assert refused.value.__cause__ is None
    _, *lines = refused.value.korean.splitlines()
    assert lines
    assert all(re.search("[가-힣]", line) for line in lines)
    # What pydantic and our own English say.
    assert not re.search(r"Input|should|takes|must be|올바르지 않은 값", refused.value.korean)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("DATABASE_URL", "postgres://u:p%40w%2Fx@h:5432/mustit?sslmode=require&application_name=a"),
        ("DATABASE_URL", "postgresql+psycopg://u@tenant:p:w@h/mustit"),
        ("DATABASE_URL", "postgresql:///mustit?host=/run/postgresql"),
        ("DATABASE_URL", "postgresql://u:p@/mustit?host=a:5432&host=b:5432"),
        ("REDIS_URL", "redis://:p%40w@h:6380/1"),
        ("REDIS_URL", "rediss://u:p@w@h?ssl_cert_reqs=none&socket_timeout=2"),
        ("REDIS_URL", "unix:///run/redis.sock?db=1"),
        ("BROKER_URL", "rediss://u:p@h:6379/1?ssl_cert_reqs=CERT_REQUIRED"),
        ("BROKER_URL", "unix:///run/redis.sock"),
        ("LAKE_URI", "s3://bucket"),
        ("LAKE_URI", "/mnt/a@b"),
    ],
)
def test_an_address_that_a_driver_takes_is_taken(environment: pytest.MonkeyPatch, field: str, value: str) -> None:
    assert getattr(load(environment, **{**EXTERNAL, field: value}), field.lower()) == value


def test_a_wrong_value_is_listed_here_for_every_field() -> None:
    assert {field for field, _, _ in WRONG} == set(Settings.model_fields)


def test_all_wrong_values_are_named_at_once(environment: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError) as refused:
        load(environment, API_PORT="x", PAGE_SIZE="y")
    assert [line.split(":")[0] for line in str(refused.value).splitlines()] == ["MUSTIT_API_PORT", "MUSTIT_PAGE_SIZE"]


@pytest.mark.parametrize(("least", "most"), ORDERED)
def test_of_two_settings_that_belong_together_the_second_cannot_be_the_smaller_one(
    environment: pytest.MonkeyPatch, least: str, most: str
) -> None:
    assert getattr(load(environment, **{least.upper(): "9", most.upper(): "9"}), most) == 9
    with pytest.raises(SettingsError, match=f"MUSTIT_{least.upper()} is 10.* and MUSTIT_{most.upper()} 9"):
        load(environment, **{least.upper(): "10", most.upper(): "9"})


def test_a_lease_of_the_relay_outlasts_the_longest_call_that_it_may_make(environment: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="MUSTIT_RELAY_LEASE_SECONDS is 60, and takes at least 369") as refused:
        load(environment, PRODUCT_SERVER_READ_SECONDS="60")
    assert "MUSTIT_PRODUCT_SERVER_CONNECT_SECONDS and MUSTIT_PRODUCT_SERVER_READ_SECONDS" in str(refused.value)
    settings = load(environment, PRODUCT_SERVER_READ_SECONDS="60", RELAY_LEASE_SECONDS="369")
    assert settings.product_server_call_seconds == 123


def test_a_token_from_a_file_may_end_with_a_line_break(environment: pytest.MonkeyPatch) -> None:
    token = load(environment, PRODUCT_SERVER_TOKEN="hunter2\n").product_server_token
    assert token is not None
    assert token.get_secret_value() == "hunter2"


def test_the_documented_defaults_hold_and_an_empty_variable_counts_as_unset(
    environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = load(environment, PAGE_SIZE="", TOKEN_KEY="", DATABASE_URL="")
    assert (found.home, found.page_size, found.first_page_no) == (tmp_path / ".mustit", 500, 0)
    assert (found.requests_per_hour, found.window_seconds, found.min_request_gap_seconds) == (80, 3600, 1.0)
    assert (found.max_concurrent_requests, found.crawl_slice_seconds) == (100, 600)
    assert (found.task_max_retries, found.outbox_max_retries, found.deletion_sweeps) == (2, 5, 2)
    assert (found.task_max_releases, found.raw_max_attempts, found.suspend_seconds) == (5, 3, 3600)
    assert (found.storm_agents, found.storm_share, found.storm_window_seconds) == (5, 0.5, 5)
    assert (found.storm_pause_seconds, found.longest_retry_after_seconds, found.relay_batch) == (2, 86_400, 100)
    assert (found.database_connections, found.database_max_connections) == (10, 50)
    assert found.base_url is None
    assert found.listing_path == "/mustit-api/facade-api/v1/searchmini-shop-search"
    assert found.embedded
    assert found.embedded_redis


def test_secrets_are_not_shown_by_the_settings_either(environment: pytest.MonkeyPatch) -> None:
    shown = repr(load(environment, TOKEN_KEY=KEY, JWT_SECRET="j" * 32, PRODUCT_SERVER_TOKEN="hunter2"))
    for secret in (KEY, "j" * 32, "hunter2"):
        assert secret not in shown


@pytest.mark.parametrize("missing", ["DAGSTER_DATABASE_URL", "TOKEN_KEY", "JWT_SECRET"])
def test_with_a_database_of_its_own_the_secrets_are_required(environment: pytest.MonkeyPatch, missing: str) -> None:
    with pytest.raises(SettingsError, match=f"MUSTIT_DATABASE_URL set, MUSTIT_{missing} must be set too"):
        load(environment, **{name: value for name, value in EXTERNAL.items() if name != missing})


def test_rules_of_eventbridge_need_a_target(environment: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="MUSTIT_TRIGGER set to eventbridge, MUSTIT_TRIGGER_TARGET_ARN must be set"):
        load(environment, TRIGGER="eventbridge")
    arn = "arn:aws:sqs:ap-northeast-2:123456789012:mustit-triggers"
    assert load(environment, TRIGGER="eventbridge", TRIGGER_TARGET_ARN=arn).trigger_target_arn == arn


def test_an_api_destination_needs_a_role_and_an_api_its_key(environment: pytest.MonkeyPatch) -> None:
    arn = "arn:aws:events:ap-northeast-2:123456789012:api-destination/mustit-crawl-trigger/1"
    role = "arn:aws:iam::123456789012:role/mustit-rules"
    with pytest.raises(SettingsError, match="MUSTIT_TRIGGER_ROLE_ARN must be set"):
        load(environment, TRIGGER="eventbridge", TRIGGER_TARGET_ARN=arn)
    found = load(environment, TRIGGER="eventbridge", TRIGGER_TARGET_ARN=arn, TRIGGER_ROLE_ARN=role)
    assert found.triggers_by_api
    with pytest.raises(SettingsError, match="MUSTIT_TRIGGER_API_KEY are set together"):
        load(environment, TRIGGER_API_URL="https://crawl.example.com")


def test_with_a_database_of_its_own_nothing_is_embedded_or_made(
    environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = load(environment, **EXTERNAL)
    assert not found.embedded
    assert not found.embedded_redis
    assert found.token_keys().keys == {"k0": b"k" * 32}
    assert not (tmp_path / ".mustit").exists()


def test_several_addresses_of_alerts_are_told_apart_and_never_shown(environment: pytest.MonkeyPatch) -> None:
    settings = load(environment, ALERT_URLS=" slack://hunter2/b/c,json://h/?a=1,2\n  mailto://u:hunter2@h ")

    assert settings.alert_addresses() == ["slack://hunter2/b/c", "json://h/?a=1,2", "mailto://u:hunter2@h"]
    assert "hunter2" not in f"{settings!r}{settings}"
    assert load(environment, ALERT_URLS="").alert_addresses() == []


def test_a_dagster_database_alone_is_refused(environment: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="set both or neither"):
        load(environment, DAGSTER_DATABASE_URL=EXTERNAL["DAGSTER_DATABASE_URL"])


@pytest.mark.parametrize("driver", ["postgresql", "postgres", "postgresql+psycopg"])
def test_one_database_for_both_is_refused(environment: pytest.MonkeyPatch, driver: str) -> None:
    same = EXTERNAL["DATABASE_URL"].replace("postgresql", driver, 1)
    with pytest.raises(SettingsError, match="MUSTIT_DAGSTER_DATABASE_URL takes another database"):
        load(environment, **{**EXTERNAL, "DAGSTER_DATABASE_URL": same})


def test_the_first_of_several_token_keys_encrypts_and_all_decrypt() -> None:
    keys = TokenKey(f"new:{KEY}, old:{OTHER_KEY}")
    assert keys.current == "new"
    assert keys.keys == {"new": b"k" * 32, "old": b"o" * 32}
    # One without a name keeps the one that it has when another comes before it.
    assert TokenKey(KEY).keys == {"k0": b"k" * 32}
    assert TokenKey(f"new:{OTHER_KEY},{KEY}").keys == {"new": b"o" * 32, "k0": b"k" * 32}


def test_a_token_key_is_made_once_for_its_owner_only(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        made = load(environment).token_keys()
    finally:
        os.umask(previous)
    file = tmp_path / ".mustit" / "secrets" / "token_key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert load(environment).token_keys().keys == made.keys
    assert [path.name for path in file.parent.iterdir()] == ["token_key"]


def test_processes_that_start_at_once_agree_on_the_token_key(tmp_path: Path) -> None:
    code = "import sys; from mustit_pipeline.settings import load_settings; settings = load_settings();"
    code += "print(flush=True); sys.stdin.readline(); print(settings.token_keys().keys['k0'].hex())"
    variables = {**os.environ, "MUSTIT_HOME": str(tmp_path / "home"), "PYTHONPATH": str(Path(__file__).parents[2])}
    pipe = subprocess.PIPE
    racers = [
        subprocess.Popen([sys.executable, "-c", code], env=variables, stdin=pipe, stdout=pipe, text=True)
        for _ in range(3)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "\n"
    keys = {racer.communicate("\n")[0] for racer in _released_together(racers)}
    assert len(keys) == 1
    assert len(bytes.fromhex(keys.pop())) == 32


def _released_together(racers: list[subprocess.Popen[str]]) -> list[subprocess.Popen[str]]:
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("\n")
        racer.stdin.flush()
    return racers


def test_a_damaged_token_key_file_is_named_but_not_shown(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / ".mustit" / "secrets"
    folder.mkdir(parents=True)
    (folder / "token_key").write_text("hunter2")
    with pytest.raises(SettingsError, match=r"secrets/token_key.*32 bytes in base64") as refused:
        load(environment).token_keys()
    assert "hunter2" not in str(refused.value)


def test_the_simulated_world_counts_only_while_it_is_held_and_the_environment_wins(
    environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = simulated_world_file(tmp_path / ".mustit")
    file.parent.mkdir(parents=True)
    announced = {"base_url": "http://127.0.0.1:1", "product_server_url": "http://127.0.0.1:2"}
    file.write_text(json.dumps(announced))
    assert load(environment).base_url is None
    with file.open() as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        assert load(environment).base_url == announced["base_url"]
        found = load(environment, BASE_URL="http://127.0.0.1:3/")
        assert (found.base_url, found.product_server_url) == ("http://127.0.0.1:3", announced["product_server_url"])


def test_every_secret_is_made_once_on_the_embedded_default(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = load(environment, HOME=str(tmp_path / "home"))
    settings.make_secrets()
    made = {
        path.name: (path.read_text(), path.stat().st_mode & 0o777) for path in (tmp_path / "home/secrets").iterdir()
    }
    settings.make_secrets()
    assert {path.name: path.read_text() for path in (tmp_path / "home/secrets").iterdir()} == {
        name: text for name, (text, _) in made.items()
    }
    assert {name: mode for name, (_, mode) in made.items()} == {"token_key": 0o600, "jwt_secret": 0o600}
    assert [len(key) >= 32 for key in settings.signing_keys().keys.values()] == [True]


def test_the_first_signing_key_signs_and_one_without_a_name_keeps_its_name_wherever_it_stands(
    environment: pytest.MonkeyPatch,
) -> None:
    alone = load(environment, JWT_SECRET="j" * 32).signing_keys()
    both = load(environment, JWT_SECRET=f"next:{'k' * 32}, {'j' * 32}").signing_keys()

    assert list(both.keys) == ["next", alone.current]
    assert both.current == "next"
    assert both.keys == {"next": b"k" * 32, **alone.keys}
    assert "jjj" not in alone.current


def test_no_marketplace_is_called_unless_one_is_named(environment: pytest.MonkeyPatch) -> None:
    """`up` simulated a marketplace while `crawl`, without any setting, called the real one."""
    with pytest.raises(SettingsError) as refused:
        _ = load(environment).marketplace_url
    assert refused.value.code == "VALIDATION_SETTINGS"
    for text in (refused.value.message("en"), refused.value.message("ko")):
        assert "MUSTIT_BASE_URL" in text
        assert "https://m.web.mustit.co.kr" in text
        assert "mustit up" in text
        assert "mustit demo" in text
    assert load(environment, BASE_URL="http://127.0.0.1:3/").marketplace_url == "http://127.0.0.1:3"


def test_a_misspelt_variable_is_named_with_the_one_that_was_meant() -> None:
    given = {"MUSTIT_PAGESIZE": "5", "MUSTIT_PAGE_SIZE": "5", "MUSTIT_XYZZY": "1", "PATH": "/"}
    assert unknown_variables(given) == {"MUSTIT_PAGESIZE": "MUSTIT_PAGE_SIZE", "MUSTIT_XYZZY": None}


def test_run_workers_need_a_redis_to_reach_them(environment: pytest.MonkeyPatch) -> None:
    assert load(environment, RUN_LAUNCHER="celery").has_redis
    with pytest.raises(SettingsError, match="MUSTIT_REDIS_URL or MUSTIT_BROKER_URL"):
        load(environment, RUN_LAUNCHER="celery", **EXTERNAL)
    assert load(environment, RUN_LAUNCHER="celery", BROKER_URL="redis://127.0.0.1/1", REDIS_URL="off", **EXTERNAL)
