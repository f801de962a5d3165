"""`mustit agents`: the pool of user agents."""

from datetime import datetime
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from mustit_pipeline.agents import roster
from mustit_pipeline.agents.roster import PoolStatus
from mustit_pipeline.agents.sql import agents as stored_agents
from mustit_pipeline.agents.sql.agents import AgentRow
from mustit_pipeline.api.answers.user_agents import AgentAnswer, PoolAnswer
from mustit_pipeline.cli.list_options import iso
from mustit_pipeline.cli.output import (
    Json,
    end_load,
    local,
    out,
    print_fields,
    print_json,
    print_outcome,
    print_table,
    until,
)
from mustit_pipeline.cli.runtime import Runtime, runtime
from mustit_pipeline.crawling.forecast import used_up
from mustit_pipeline.domain.filters import IdPrefix
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.settings import Settings

app = typer.Typer(help="The pool of user agents.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(metavar="ID", help="The agent's id, or its first digits.")]


@app.command("list", epilog="Example: `mustit agents list`")
def show_all(as_json: Json = False) -> None:
    """List the agents with their state, health and use."""
    with runtime() as ground, ground.database.reading() as connection:
        agents = roster.list_agents(connection)
    if as_json:
        print_json([AgentAnswer.document_of(agent) for agent in agents])
        return
    print_table(
        f"{len(agents)} agents",
        ["id", "status", "health", "today", "token until", "resting until", "last used", "user agent"],
        [
            (
                agent.agent_id,
                agent.status,
                agent.health,
                agent.requests_today,
                local(agent.token_expires_at),
                local(agent.suspended_until),
                local(agent.last_used_at),
                agent.user_agent[:40],
            )
            for agent in agents
        ],
    )


@app.command("status", epilog="Example: `mustit agents status --json`")
def status(as_json: Json = False) -> None:
    """Show how many agents are usable, why others are not, and when the next one is free."""
    now = utc_now()
    with runtime() as ground, ground.database.reading() as connection:
        pool = roster.pool_status(connection, ground.settings, now)
    if as_json:
        print_json(PoolAnswer.whole(pool, ground.settings.requests_per_hour).document())
    else:
        _print_status(ground.settings, pool, now)


def _print_status(settings: Settings, pool: PoolStatus, now: datetime) -> None:
    """Print the pool: first the verdict, then the numbers behind it."""
    out.print(_verdict(settings, pool, now), highlight=False)
    allowed = pool.available * settings.requests_per_hour
    window = (
        f"{settings.window_seconds / 60:g} min" if settings.window_seconds >= 60 else f"{settings.window_seconds:g} s"
    )
    print_fields(
        {
            "agents": f"{pool.available:,} of {pool.total:,} available",
            f"requests of the last {window}": f"{pool.used_in_window:,} of {allowed:,}, {pool.in_flight:,} in flight",
            "requests today": f"{pool.requests_today:,}",
            "suspended": pool.suspended
            if pool.next_recovery_at is None
            else f"{pool.suspended}; the first is back {until(pool.next_recovery_at, now)}",
            "blocked": pool.blocked
            if not pool.blocked
            else f"{pool.blocked}: see `mustit agents list`, then `unblock`",
            "with a session token": pool.with_token
            if pool.with_token >= pool.available
            else f"{pool.with_token}; the rest get one with their next request",
            "breaker": pool.circuit,
            "requests counted by": "none: being handed over" if pool.counter == "moving" else pool.counter,
        }
    )


def _verdict(settings: Settings, pool: PoolStatus, now: datetime) -> str:
    """What limits the pool; the most important reason first."""
    if pool.host_paused_until is not None:
        return f"[yellow]the marketplace throttles all agents[/], calls go on {until(pool.host_paused_until, now)}"
    if pool.next_free_at is None:
        back = pool.next_recovery_at
        return f"[red]no agent is available[/]{'' if back is None else f'; the first is back {until(back, now)}'}"
    if pool.circuit == "half-open":
        return "[yellow]the breaker is half-open[/]: a trial request closes or re-opens it"
    if pool.circuit_open_until is not None:
        return f"[red]the breaker is open[/], too few agents are left; a trial {until(pool.circuit_open_until, now)}"
    if used_up(settings, pool):
        return f"[yellow]every agent has used its requests[/]; the next is free {until(pool.next_free_at, now)}"
    if pool.next_free_at > now:
        free = until(pool.next_free_at, now)
        if pool.in_flight:
            return f"[green]every agent is at work[/]; the next is free {free} at the latest"
        return f"[green]every agent rests after its request[/]; the next is free {free}"
    return "[green]agents are free[/]"


@app.command("load", epilog="Example: `mustit agents load agents.txt`")
def load(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="One user agent a line.")],
    as_json: Json = False,
) -> None:
    """Add user agents from a file, one a line; blank lines and lines that start with # are left out."""
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    with runtime() as ground, ground.audited("agents.load", roster.NEW_AGENTS).transaction() as connection:
        report = roster.load(connection, lines)
    end_load(report.added, report.known, report.rejected, word="added", as_json=as_json)


@app.command("block", epilog="Example: `mustit agents block 3f2c90d4`")
def block(agent_id: Id, as_json: Json = False) -> None:
    """Take an agent out of use until it is unblocked."""
    with runtime() as ground:
        found = _find(ground, agent_id)
        database = ground.audited("agent.block", roster.target(found))
        with database.transaction() as connection:
            _say(roster.block(connection, found), as_json)


@app.command("unblock", epilog="Example: `mustit agents unblock --all`")
def unblock(
    agent_id: Annotated[str | None, typer.Argument(metavar="ID", help="The agent's id, or its first digits.")] = None,
    all_agents: Annotated[
        bool, typer.Option("--all", help="Every blocked agent, and all calls if they are paused.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Unblock one agent or all of them, with a new token; --all also ends a pause of all calls."""
    if (agent_id is None) is not all_agents:
        raise typer.BadParameter("give either an agent's id or --all")
    with runtime() as ground:
        if agent_id is not None:
            found = _find(ground, agent_id)
            database = ground.audited("agent.unblock", roster.target(found))
            with database.transaction() as connection:
                _say(roster.unblock(connection, ground.settings, found), as_json)
        else:
            database = ground.audited("agents.unblock", roster.ALL_AGENTS)
            with database.transaction() as connection:
                paused = roster.end_pause(connection)
                _say_unblocked(roster.unblock_all(connection, ground.settings), paused, as_json)


@app.command("resume", epilog="Example: `mustit agents resume`")
def resume(as_json: Json = False) -> None:
    """Resume calls now: close the breaker and end a pause of all calls. Suspended and blocked agents stay so."""
    with runtime() as ground:
        database = ground.audited("agents.resume", roster.ALL_AGENTS)
        with database.transaction() as connection:
            circuit = roster.close_circuit(connection, ground.settings)
            paused = roster.end_pause(connection)
    if as_json:
        print_json({"closedCircuitUntil": iso(circuit), "endedPauseUntil": iso(paused)})
        return
    if circuit is not None:
        out.print(f"The breaker is closed; a trial would have decided at {local(circuit)}.", highlight=False)
    if paused is not None:
        out.print(f"Calls go on; they would have paused until {local(paused)}.", highlight=False)
    if circuit is None and paused is None:
        out.print("The breaker is closed and nothing is paused.", highlight=False)


def _find(ground: Runtime, given: str) -> UUID:
    with ground.database.reading() as connection:
        return stored_agents.find(connection, IdPrefix(given)).agent_id


def _say_unblocked(agents: list[AgentRow], paused: datetime | None, as_json: bool) -> None:
    if as_json:
        freed = [{"agentId": str(agent.agent_id), "reason": agent.reason} for agent in agents]
        print_json({"unblocked": freed, "endedPauseUntil": iso(paused)})
        return
    if paused is not None:
        out.print(f"Calls go on; they would have paused until {local(paused)}.", highlight=False)
    for agent in agents:
        out.print(f"{agent.agent_id} is AVAILABLE; it was blocked: {agent.reason}", highlight=False, markup=False)
    out.print(f"{len(agents)} agents unblocked." if agents else "No agent is blocked.", highlight=False)


def _say(agent: AgentRow, as_json: bool) -> None:
    print_outcome(AgentAnswer.document_of(agent), f"{agent.agent_id} is {agent.status}.", as_json=as_json)
