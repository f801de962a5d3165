"""`mustit doctor`: finds problems, and says how to fix them."""

import math
import os
import time
from collections.abc import Iterator

import httpx
import redis
import typer
from rich.text import Text

from mustit_pipeline.agents import roster
from mustit_pipeline.agents.sql import agents
from mustit_pipeline.agents.vault import SessionUnreadable, SessionVault
from mustit_pipeline.catalog.sql import deletions, drift
from mustit_pipeline.cli.findings import Finding, Health, verdict, watched
from mustit_pipeline.cli.output import Json, lasting, out, print_json, print_table
from mustit_pipeline.cli.runtime import dagster_instance
from mustit_pipeline.delivery.product_server import OF_THE_SERVER
from mustit_pipeline.domain.states import HoldStatus
from mustit_pipeline.embedded import EmbeddedError
from mustit_pipeline.foundation import schema
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database, DatabaseUnreachable, addresses, open_database
from mustit_pipeline.outbox.sql import outbox
from mustit_pipeline.settings import Settings, SettingsError, load_settings, unknown_variables

KEY_SAMPLE = 200
TIMEOUT_SECONDS = 5.0
# Daemons send a heartbeat every 30 s, and a tick may take as long again.
SILENT_SECONDS = 120.0


def doctor(as_json: Json = False) -> None:
    """Check everything that the pipeline needs; exit 1 if there is a problem, 0 with only warnings.

    Example: `mustit doctor --json`
    """
    findings = list(examine())
    if as_json:
        print_json(
            [{"subject": f.subject, "health": f.health.value, "detail": f.detail, "remedy": f.remedy} for f in findings]
        )
    else:
        colour = {Health.OK: "green", Health.WARNING: "yellow", Health.PROBLEM: "red"}
        print_table(
            "mustit doctor",
            ["", "what", "found", "how to fix it"],
            [(Text(f.health, style=colour[f.health]), f.subject, f.detail, f.remedy) for f in findings],
        )
        out.print(verdict(findings), highlight=False)
    raise typer.Exit(1 if any(finding.health is Health.PROBLEM for finding in findings) else 0)


def examine() -> Iterator[Finding]:
    """Every finding, in order of dependence."""
    try:
        settings = load_settings()
    except SettingsError as error:
        yield Finding("settings", Health.PROBLEM, str(error), "Correct the variable and try again.")
        return
    unknown = unknown_variables(os.environ)
    if unknown:
        named = ", ".join(f"{name} (meant {meant}?)" if meant else name for name, meant in unknown.items())
        yield Finding("settings", Health.WARNING, f"no setting reads {named}", "Correct the name, or unset it.")
    else:
        yield Finding("settings", Health.OK, f"MUSTIT_HOME is {settings.home}")
    yield from _hosts(settings)
    database = None
    try:
        database = open_database(settings, check_schema=False)
    except (DatabaseUnreachable, EmbeddedError) as error:
        yield Finding("PostgreSQL", Health.PROBLEM, str(error), _database_remedy(settings))
    if database is not None:
        try:
            yield from _database(settings, database)
        finally:
            database.close()
    yield _marketplace(settings)
    yield _product_server(settings)


def _hosts(settings: Settings) -> Iterator[Finding]:
    """Whether runs on other hosts have a shared place for their output and data."""
    if settings.run_launcher != "celery" or settings.embedded:
        return
    remedy = "Set {} to s3://… or to a path that all hosts share, the same everywhere."
    if settings.lake_uri is None:
        detail = "each day's Parquet stays on whichever host does the run"
        yield Finding("lake", Health.PROBLEM, detail, remedy.format("MUSTIT_LAKE_URI"))
    if settings.compute_logs_uri is None:
        detail = "stays on the host that does the run: the UI cannot show it, and it is never deleted"
        yield Finding("output of runs", Health.WARNING, detail, remedy.format("MUSTIT_COMPUTE_LOGS_URI"))


def _database(settings: Settings, database: Database) -> Iterator[Finding]:
    kind = "embedded" if settings.embedded else "configured"
    with database.reading() as connection:
        found = schema.status(connection)
    yield Finding("PostgreSQL", Health.OK, f"{kind}, answers")
    try:
        with database.reading() as connection:
            schema.require_current(connection)
        yield Finding("schema", Health.OK, found.expected)
    except schema.SchemaMismatch as error:
        remedy = "Install the newer mustit_pipeline." if "newer" in str(error) else "Run `mustit db upgrade`."
        yield Finding("schema", Health.PROBLEM, str(error), remedy)
    else:
        yield _token_key(settings, database)
        yield _agents(settings, database)
        yield _outbox(database)
        yield _held_deletions(database)
        yield _drift(database)
        yield from watched(settings, database)
    yield _redis(settings)
    yield _daemon(settings)


def _database_remedy(settings: Settings) -> str:
    if settings.embedded:
        return "Read the log named here; `mustit` starts PostgreSQL by itself once the cause is gone."
    return "Start PostgreSQL, or correct MUSTIT_DATABASE_URL."


def _token_key(settings: Settings, database: Database) -> Finding:
    """Whether the present key opens the stored tokens."""
    try:
        vault = SessionVault(settings.token_keys())
    except SettingsError as error:
        return Finding("token key", Health.PROBLEM, str(error), "Put the key back, or set MUSTIT_TOKEN_KEY.")
    with database.reading() as connection:
        ids = [row.agent_id for row in agents.read_agents(connection)][:KEY_SAMPLE]
        sealed = [(agent_id, agents.read_session(connection, agent_id)) for agent_id in ids]
    tokens = [(agent_id, session) for agent_id, session in sealed if session is not None]
    wrong = 0
    for agent_id, session in tokens:
        try:
            vault.open(agent_id, session)
        except SessionUnreadable:
            wrong += 1
    if wrong:
        return Finding(
            "token key",
            Health.PROBLEM,
            f"{wrong} of {len(tokens)} stored tokens do not open with this key",
            "Put the old value behind the new key in MUSTIT_TOKEN_KEY (name:key,old value); otherwise new tokens are "
            "issued one by one.",
        )
    return Finding("token key", Health.OK, f"opens {len(tokens)} stored tokens")


def _agents(settings: Settings, database: Database) -> Finding:
    with database.reading() as connection:
        pool = roster.pool_status(connection, settings, utc_now())
    detail = (
        f"{pool.available} of {pool.total} available, {pool.suspended} suspended, {pool.blocked} blocked, "
        f"circuit {pool.circuit}"
    )
    if not pool.total:
        return Finding("user agents", Health.PROBLEM, detail, "Run `mustit db upgrade` to add the built-in ones.")
    if pool.blocked:
        return Finding(
            "user agents", Health.WARNING, detail, "See `mustit agents list`, then `mustit agents unblock ID`."
        )
    if pool.circuit != "closed" or not pool.available:
        return Finding("user agents", Health.WARNING, detail, "They rest and come back by themselves.")
    return Finding("user agents", Health.OK, detail)


def _outbox(database: Database) -> Finding:
    with database.reading() as connection:
        counts = outbox.counts(connection)
    detail = f"{counts.waiting} waiting, {counts.sending} in flight, {counts.failed} failed"
    if counts.failed:
        return Finding(
            "outbox", Health.PROBLEM, detail, "See `mustit outbox list --status FAILED`, then `mustit outbox retry`."
        )
    return Finding("outbox", Health.OK, detail)


def _held_deletions(database: Database) -> Finding:
    """Whether deletions are held back and wait for a decision."""
    with database.reading() as connection:
        found = deletions.newest_holds(connection, status=HoldStatus.OPEN, seller_id=None, limit=5)
    if not found.rows:
        return Finding("held deletions", Health.OK, "none")
    of = ", ".join(f"{len(hold.item_nos)} of {hold.seller_id}" for hold in found.rows) + (" …" if found.more else "")
    return Finding("held deletions", Health.WARNING, of, "See `mustit deletions list`, then approve or reject.")


def _drift(database: Database) -> Finding:
    """Whether the marketplace's bodies still have the shape that the parser expects."""
    with database.reading() as connection:
        fields, full = drift.count_open(connection), drift.is_full(connection)
    if full:
        return Finding(
            "schema drift",
            Health.WARNING,
            f"{drift.MOST_ROWS:,} deviations are recorded, and no new ones beside them",
            "See `mustit drift list --all`, then `mustit drift forget PATH` for what is over.",
        )
    if not fields:
        return Finding("schema drift", Health.OK, "none")
    changed = "1 field has" if fields == 1 else f"{fields} fields have"
    return Finding(
        "schema drift",
        Health.WARNING,
        f"{changed} changed in the marketplace's bodies",
        "See `mustit drift list`, then `mustit drift accept PATH` for what is harmless.",
    )


def _redis(settings: Settings) -> Finding:
    url = addresses(settings).redis_url
    if url is None and settings.embedded_redis:
        detail = "no redis-server is here, from a wheel or on PATH: PostgreSQL counts the limits alone"
        return Finding("Redis", Health.OK, detail)
    if url is None:
        return Finding("Redis", Health.OK, "off: PostgreSQL counts the limits alone")
    try:
        with redis.Redis.from_url(  # pyright: ignore[reportUnknownMemberType]
            url, socket_timeout=TIMEOUT_SECONDS
        ) as client:
            client.ping()  # pyright: ignore[reportUnknownMemberType]
    except redis.RedisError as error:
        return Finding(
            "Redis", Health.WARNING, f"does not answer: {error}", "Start it; until then PostgreSQL counts the limits."
        )
    return Finding("Redis", Health.OK, "answers")


def _daemon(settings: Settings) -> Finding:
    try:
        with dagster_instance(settings) as instance:
            statuses = instance.get_daemon_statuses()
    except DatabaseUnreachable as error:
        return Finding("Dagster", Health.PROBLEM, str(error), "Start it, or correct MUSTIT_DAGSTER_DATABASE_URL.")
    # Dagster itself calls a daemon healthy for half an hour after its last heartbeat.
    heard = {
        name: time.time() - status.last_heartbeat.timestamp if status.last_heartbeat is not None else math.inf
        for name, status in statuses.items()
        if status.required
    }
    silent = sorted(name for name, ago in heard.items() if ago > SILENT_SECONDS)
    if silent:
        return Finding(
            "Dagster daemon",
            Health.PROBLEM,
            f"not running: {', '.join(silent).lower()}",
            "Start it with `mustit up` (or `dagster-daemon run`); nothing is crawled by itself until then.",
        )
    return Finding(
        "Dagster daemon", Health.OK, f"running, last heartbeat {lasting(max(heard.values(), default=0.0))} ago"
    )


def _marketplace(settings: Settings) -> Finding:
    if settings.base_url is None:
        remedy = "Set MUSTIT_BASE_URL, or run `mustit up` to have one simulated."
        return Finding("marketplace", Health.PROBLEM, "no address is set", remedy)
    answer = _ask(settings.base_url + "/")
    if isinstance(answer, str):
        return Finding("marketplace", Health.PROBLEM, f"{settings.base_url}: {answer}", "Check MUSTIT_BASE_URL.")
    if answer.status_code >= 500:
        detail = f"{settings.base_url} answers {answer.status_code}"
        return Finding("marketplace", Health.PROBLEM, detail, "Wait for it, or check MUSTIT_BASE_URL.")
    if "token" not in answer.cookies:
        detail = f"{settings.base_url} answers {answer.status_code} but gives no token cookie"
        return Finding("marketplace", Health.PROBLEM, detail, "Check that MUSTIT_BASE_URL is the marketplace.")
    return Finding("marketplace", Health.OK, f"{settings.base_url} answers and issues tokens")


def _product_server(settings: Settings) -> Finding:
    if settings.product_server_url is None:
        remedy = "Set MUSTIT_PRODUCT_SERVER_URL, or run `mustit up` to have one simulated."
        return Finding("product server", Health.PROBLEM, "no address is set", remedy)
    token = settings.product_server_token
    headers = {} if token is None else {"Authorization": f"Bearer {token.get_secret_value()}"}
    answer = _ask(f"{settings.product_server_url}/api/v1/products/mustit-doctor/1", headers)
    if isinstance(answer, str):
        detail = f"{settings.product_server_url}: {answer}"
        return Finding("product server", Health.PROBLEM, detail, "Start it, or check MUSTIT_PRODUCT_SERVER_URL.")
    if answer.status_code in (401, 403):
        detail = f"refuses our key with {answer.status_code}"
        return Finding("product server", Health.PROBLEM, detail, "Check MUSTIT_PRODUCT_SERVER_TOKEN.")
    if answer.status_code >= 500 or answer.status_code in OF_THE_SERVER:
        detail = f"{settings.product_server_url} answers {answer.status_code}"
        then = (
            "Events wait, and are sent by themselves once it is back."
            if answer.status_code in OF_THE_SERVER
            else f"{settings.outbox_max_retries} such answers make an event FAILED: once it is back, "
            "`mustit outbox retry --status FAILED`."
        )
        return Finding("product server", Health.PROBLEM, detail, f"Look at its own logs. {then}")
    return Finding("product server", Health.OK, f"{settings.product_server_url} answers")


def _ask(url: str, headers: dict[str, str] | None = None) -> httpx.Response | str:
    """The answer, or the reason why there is none."""
    try:
        # Without its body, which may be endless.
        with httpx.stream("GET", url, headers=headers, timeout=TIMEOUT_SECONDS, trust_env=False) as answer:
            return answer
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        # The error of a call with a secret may contain it.
        return f"cannot be reached ({type(error).__name__ if headers else error})"
