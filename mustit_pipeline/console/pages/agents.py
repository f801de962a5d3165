"""User agents and the state of their pool; and the request budget."""

from fastapi import APIRouter, Response

from mustit_pipeline.agents import roster
from mustit_pipeline.agents.roster import PoolStatus
from mustit_pipeline.agents.sql import agents
from mustit_pipeline.api.paths import IdInPath
from mustit_pipeline.console import live
from mustit_pipeline.console.forms import Sending, ask
from mustit_pipeline.console.languages import marked
from mustit_pipeline.console.pages.frame import chosen, framed
from mustit_pipeline.console.visits import Visiting
from mustit_pipeline.crawling.budget import view
from mustit_pipeline.crawling.outlook import used_up
from mustit_pipeline.domain.states import AgentStatus
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.monitoring.sql.activity import Moving
from mustit_pipeline.settings import Settings

router = APIRouter()

MOST_AGENTS, MOST_HOURS = 100_000, 8760

VERDICTS = {
    "paused": marked("The marketplace throttles all agents; calls go on later."),
    "none": marked("No agent is available."),
    "half-open": marked("The breaker is half-open: a trial request decides."),
    "open": marked("The breaker is open: too few agents are left."),
    "used up": marked("Every agent has used its requests of the window."),
    "free": marked("Agents are free."),
}


@router.get("/agents")
def list_agents(visit: Visiting, status: str = "") -> Response:
    """The pool and its agents."""
    wanted, now = chosen(AgentStatus, status), utc_now()
    with visit.database.reading() as connection:
        pool = roster.pool_status(connection, visit.settings, now)
        every = roster.list_agents(connection)
        return framed(
            visit,
            connection,
            "agents.html",
            events=live.address(Moving.CRAWLS),
            pool=pool,
            verdict=visit.say(VERDICTS[_verdict(visit.settings, pool)]),
            found=[agent for agent in every if wanted in (None, agent.status)],
            status=wanted,
            statuses=list(AgentStatus),
        )


@router.get("/budget")
def budget(visit: Visiting, agents: str = "", hours: str = "") -> Response:
    """What the pool may ask for, what that keeps fresh, and what another pool or promise would."""
    now = utc_now()
    instead, promised = _number(agents, MOST_AGENTS), _number(hours, MOST_HOURS)
    with visit.database.reading() as connection:
        pool = roster.pool_status(connection, visit.settings, now)
        window = visit.settings.window_seconds / 3600
        return framed(
            visit,
            connection,
            "budget.html",
            events=live.address(Moving.CRAWLS),
            pool=pool,
            allowed=pool.available * visit.settings.requests_per_hour,
            per_day=int(pool.available * visit.settings.requests_per_hour * 24 / window),
            agents=instead,
            hours=promised,
            promises=visit.settings.recrawl == "adaptive",
            found=view(
                connection, visit.settings, now, agents_instead=instead, max_age_instead=promised and float(promised)
            ),
        )


def _number(text: str, most: int) -> int | None:
    """A whole number of a form, if it is one."""
    return (
        min(max(int(text), 1), most) if text.isascii() and text.isdigit() and len(text) < len(str(most)) + 1 else None
    )


@router.post("/agents/load")
def load(visit: Visiting, sent: Sending) -> Response:
    """Add user agents, one a line."""
    lines = sent.untouched("lines").splitlines()
    with visit.audited("agents.load", "agents").transaction() as connection:
        report = roster.load(connection, lines)
    said = visit.say(
        "%(added)s agents are added, %(known)s were known, %(rejected)s lines were refused.",
        added=report.added,
        known=report.known,
        rejected=len(report.rejected),
    )
    return visit.done("/agents", said, good=not report.rejected)


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
    with visit.audited("agents.resume", "agents", roster.look_at_pool).transaction() as connection:
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
    with visit.audited("agents.unblock", "agents", roster.look_at_pool).transaction() as connection:
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
    database = visit.audited("agent.block", f"agent {agent.agent_id}", roster.look(agent.agent_id))
    with database.transaction() as connection:
        roster.block(connection, agent.agent_id)
    return visit.done(sent.back or "/agents", visit.say("The agent is blocked. Written to the audit log."))


@router.post("/agents/{id}/unblock")
def unblock(wanted: IdInPath, visit: Visiting, sent: Sending) -> Response:
    """Put a blocked agent back into use."""
    with visit.database.reading() as connection:
        agent = agents.find(connection, wanted)
    database = visit.audited("agent.unblock", f"agent {agent.agent_id}", roster.look(agent.agent_id))
    with database.transaction() as connection:
        roster.unblock(connection, visit.settings, agent.agent_id)
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
