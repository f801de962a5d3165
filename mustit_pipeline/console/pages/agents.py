"""User agents and the state of their pool."""

from functools import partial
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Response
from sqlalchemy import Connection

from mustit_pipeline.agents import roster
from mustit_pipeline.agents.roster import PoolStatus
from mustit_pipeline.agents.sql import agents
from mustit_pipeline.agents.sql.agents import AgentRow
from mustit_pipeline.api.paths import IdInPath
from mustit_pipeline.console import live
from mustit_pipeline.console.forms import Sending, ask
from mustit_pipeline.console.languages import marked
from mustit_pipeline.console.pages.bulk import Question, act_on_all, chosen_ids
from mustit_pipeline.console.pages.frame import SIZE, by_number, chosen, framed, unreadable_choice
from mustit_pipeline.console.reasons import agent_reason
from mustit_pipeline.console.visits import Undo, Visit, Visiting
from mustit_pipeline.crawling.forecast import used_up
from mustit_pipeline.domain.states import AgentStatus
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.monitoring.sql.activity import Moving
from mustit_pipeline.settings import Settings

router = APIRouter()

Words = Annotated[str, Query(max_length=200)]
PageNumber = Annotated[int, Query(ge=0, le=1_000_000)]

ACTIONS = {"block": marked("Block the agents"), "unblock": marked("Unblock the agents")}

VERDICTS = {
    "paused": marked("The marketplace throttles all agents; calls go on later."),
    "none": marked("No agent is available."),
    "half-open": marked("The breaker is half-open: a trial request decides."),
    "open": marked("The breaker is open: too few agents are left."),
    "used up": marked("Every agent has used its requests of the window."),
    "free": marked("Agents are free."),
}


@router.get("/agents")
def list_agents(visit: Visiting, status: str = "", q: Words = "", page: PageNumber = 0) -> Response:
    """The pool and its agents, found by part of the user agent or of the id."""
    wanted, words, now = chosen(AgentStatus, status), q.replace("\0", "").strip(), utc_now()
    with visit.database.reading() as connection:
        pool = roster.pool_status(connection, visit.settings, now)
        found = _matching(connection, wanted, words)
        shown = found[page * SIZE : (page + 1) * SIZE]
        return framed(
            visit,
            connection,
            "agents.html",
            events=live.address(Moving.CRAWLS),
            pool=pool,
            verdict=visit.say(VERDICTS[_verdict(visit.settings, pool)]),
            found=shown,
            left=roster.left_in_window(connection, visit.settings, [agent.agent_id for agent in shown]),
            total=len(found),
            q=words,
            status=wanted,
            statuses=list(AgentStatus),
            actions=[(action, visit.say(text)) for action, text in ACTIONS.items()],
            reasons={agent.agent_id: agent_reason(visit, agent.reason) for agent in shown},
            pager=by_number(visit, "/agents", page, len(found), status=wanted, q=words),
        )


def _matching(connection: Connection, status: AgentStatus | None, words: str) -> list[AgentRow]:
    """Agents of a filter; there are as many as a person has loaded, and all are in memory for the pool anyway."""
    wanted = words.casefold()
    return [
        agent
        for agent in roster.list_agents(connection)
        if status in (None, agent.status)
        and (wanted in agent.user_agent.casefold() or str(agent.agent_id).startswith(wanted))
    ]


@router.post("/agents/actions")
def act(visit: Visiting, sent: Sending) -> Response:
    """Block or unblock several agents: those that were chosen, or all that match."""
    action = sent.text("action")
    if action not in ACTIONS:
        raise unreadable_choice()
    with visit.database.reading() as connection:
        if sent.text("which") == "all":
            found = _matching(connection, chosen(AgentStatus, sent.text("status")), sent.text("q"))
        else:
            ids = set(chosen_ids(sent, "agent"))
            found = [agent for agent in roster.list_agents(connection) if agent.agent_id in ids]
    targets = [agent.agent_id for agent in found if (agent.status is AgentStatus.BLOCKED) is (action == "unblock")]
    text = visit.say_number("This concerns %(number)s agent.", "This concerns %(number)s agents.", len(targets))
    question = Question(visit.say(ACTIONS[action]), text, danger=action == "block")
    other = "unblock" if action == "block" else "block"
    fields = [("action", other), ("which", "chosen"), *(("agent", str(one)) for one in targets)]
    undo = Undo("/agents/actions", tuple(fields))
    change = partial(_change, visit, action)
    return act_on_all(visit, sent, "/agents", targets, question=question, change=change, undo=undo)


def _change(visit: Visit, action: str, agent_id: UUID) -> None:
    database = visit.audited(f"agent.{action}", roster.target(agent_id))
    with database.transaction() as connection:
        if action == "block":
            roster.block(connection, agent_id)
        else:
            roster.unblock(connection, visit.settings, agent_id)


@router.post("/agents/load")
def load(visit: Visiting, sent: Sending) -> Response:
    """Add user agents, one a line."""
    lines = sent.untouched("lines").splitlines()
    with visit.audited("agents.load", roster.NEW_AGENTS).transaction() as connection:
        report = roster.load(connection, lines)
    said = visit.say(
        "%(added)s agents are added, %(known)s were known, %(rejected)s lines were refused.",
        added=f"{report.added:,}",
        known=f"{report.known:,}",
        rejected=f"{len(report.rejected):,}",
    )
    return visit.done("/agents", visit.say_logged(said), good=not report.rejected)


@router.post("/agents/resume")
def resume_calls(visit: Visiting, sent: Sending) -> Response:
    """End a pause of all calls and close the breaker, once that is confirmed."""
    if not sent.is_confirmed:
        return ask(
            visit,
            sent,
            title=visit.say("Let calls go on now?"),
            text=visit.say("The pause ends and the breaker closes, although the marketplace may still throttle."),
            action=visit.say("Let calls go on"),
        )
    with visit.audited("agents.resume", roster.ALL_AGENTS).transaction() as connection:
        roster.close_circuit(connection, visit.settings)
        roster.end_pause(connection)
    return visit.done("/agents", visit.say("Calls go on. Written to the audit log."))


@router.post("/agents/unblock")
def unblock_all(visit: Visiting, sent: Sending) -> Response:
    """Put every blocked agent back into use, once that is confirmed."""
    if not sent.is_confirmed:
        with visit.database.reading() as connection:
            blocked = sum(one.status is AgentStatus.BLOCKED for one in roster.list_agents(connection))
        return ask(
            visit,
            sent,
            title=visit.say("Unblock all agents?"),
            text=visit.say_number(
                "%(number)s agent is put back into use with a new token.",
                "%(number)s agents are put back into use with new tokens.",
                blocked,
            ),
            action=visit.say("Unblock"),
        )
    with visit.audited("agents.unblock", roster.ALL_AGENTS).transaction() as connection:
        freed = roster.unblock_all(connection, visit.settings)
    said = visit.say_number(
        "%(number)s agent is in use again. Written to the audit log.",
        "%(number)s agents are in use again. Written to the audit log.",
        len(freed),
    )
    return visit.done("/agents", said)


@router.post("/agents/{id}/block")
def block(wanted: IdInPath, visit: Visiting, sent: Sending) -> Response:
    """Take an agent out of use; unblocking undoes it."""
    with visit.database.reading() as connection:
        agent = agents.find(connection, wanted)
    _change(visit, "block", agent.agent_id)
    said, undo = visit.say("The agent is blocked. Written to the audit log."), Undo(f"/agents/{agent.agent_id}/unblock")
    return visit.done(sent.back or "/agents", said, undo=undo)


@router.post("/agents/{id}/unblock")
def unblock(wanted: IdInPath, visit: Visiting, sent: Sending) -> Response:
    """Put a blocked agent back into use."""
    with visit.database.reading() as connection:
        agent = agents.find(connection, wanted)
    _change(visit, "unblock", agent.agent_id)
    said = visit.say("The agent is in use again. Written to the audit log.")
    return visit.done(sent.back or "/agents", said)


def _verdict(settings: Settings, pool: PoolStatus) -> str:
    if pool.host_paused_until is not None:
        return "paused"
    if not pool.available:
        return "none"
    if pool.circuit != "closed":
        return pool.circuit
    return "used up" if used_up(settings, pool) else "free"
