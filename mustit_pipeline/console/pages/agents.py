"""User agents and the state of their pool; and the request budget."""

from collections.abc import Sequence
from datetime import timedelta
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
from mustit_pipeline.console import charts, live
from mustit_pipeline.console.formats import Formats
from mustit_pipeline.console.forms import Sending, ask
from mustit_pipeline.console.languages import marked
from mustit_pipeline.console.pages.bulk import Question, act_on_all
from mustit_pipeline.console.pages.frame import SIZE, by_number, chosen, framed, unreadable_choice
from mustit_pipeline.console.reasons import agent_reason
from mustit_pipeline.console.visits import Undo, Visit, Visiting
from mustit_pipeline.crawling.budget import SellerFreshness, SellerOrder, WhatIf, view
from mustit_pipeline.crawling.outlook import used_up
from mustit_pipeline.domain.errors import DomainError, ValidationFailed
from mustit_pipeline.domain.filters import IdPrefix
from mustit_pipeline.domain.states import AgentStatus
from mustit_pipeline.domain.values import CrawlingInterval, SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.monitoring import staleness
from mustit_pipeline.monitoring.sql.activity import Moving
from mustit_pipeline.monitoring.staleness import Sampled, SellerSize
from mustit_pipeline.sellers.sql import sellers
from mustit_pipeline.settings import Settings

router = APIRouter()

Words = Annotated[str, Query(max_length=200)]
PageNumber = Annotated[int, Query(ge=0, le=1_000_000)]

ACTIONS = {"block": marked("Block the agents"), "unblock": marked("Unblock the agents")}
MOST_AGENTS, MOST_HOURS = 100_000, 8760
SHOWN, LONGEST_NAME = 20, 14

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
        return framed(
            visit,
            connection,
            "agents.html",
            events=live.address(Moving.CRAWLS),
            pool=pool,
            verdict=visit.say(VERDICTS[_verdict(visit.settings, pool)]),
            found=found[page * SIZE : (page + 1) * SIZE],
            total=len(found),
            q=words,
            status=wanted,
            statuses=list(AgentStatus),
            actions=[(action, visit.say(text)) for action, text in ACTIONS.items()],
            reasons={agent.agent_id: agent_reason(visit, agent.reason) for agent in found},
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
            found = [agents.find(connection, IdPrefix(one)) for one in dict.fromkeys(sent.all("agent"))]
    targets = [agent.agent_id for agent in found if (agent.status is AgentStatus.BLOCKED) is (action == "unblock")]
    text = visit.say_number("This concerns %(number)s agent.", "This concerns %(number)s agents.", len(targets))
    question = Question(visit.say(ACTIONS[action]), text, danger=action == "block")
    other = "unblock" if action == "block" else "block"
    fields = [("action", other), ("which", "chosen"), *(("agent", str(one)) for one in targets)]
    undo = Undo("/agents/actions", tuple(fields))
    change = partial(_change, visit, action)
    return act_on_all(visit, sent, "/agents", targets, question=question, change=change, undo=undo)


def _change(visit: Visit, action: str, agent_id: UUID) -> None:
    database = visit.audited(f"agent.{action}", f"agent {agent_id}", roster.look(agent_id))
    with database.transaction() as connection:
        if action == "block":
            roster.block(connection, agent_id)
        else:
            roster.unblock(connection, visit.settings, agent_id)


@router.get("/budget")
def budget(  # noqa: PLR0917
    visit: Visiting, agents: str = "", hours: str = "", interval: str = "", seller: str = "", by: str = ""
) -> Response:
    """What the pool may ask for, what that keeps fresh, and what another pool, promise or interval would."""
    now = utc_now()
    instead, promised, every = _number(agents, MOST_AGENTS), _number(hours, MOST_HOURS), _interval(interval)
    order = SellerOrder.AGE if by == SellerOrder.AGE else SellerOrder.FRESHNESS
    since = now - timedelta(days=visit.settings.truth_window_days)
    what_if = WhatIf(agents=instead, max_age=promised and float(promised), interval=every)
    with visit.database.reading() as connection:
        only = seller if seller and _is_known(connection, seller) else None
        found = view(connection, visit.settings, now, what_if=what_if, order=order, most=SHOWN, only=only)
        sampled = staleness.shares(connection, since, now)
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
            interval=every,
            seller=only,
            order=order,
            found=found,
            chart=_freshness_chart(found.sellers, Formats(visit.language)),
            sources=[(source, staleness.of_source(sampled, source)) for source in Sampled],
            sizes=[(size, staleness.of_size(sampled, size)) for size in SellerSize],
        )


def _freshness_chart(sellers: Sequence[SellerFreshness], formats: Formats) -> charts.Bars:
    """Expected freshness by seller; the axis begins below the least fresh one, for small differences to be seen."""
    rows = [
        (cut(one.seller_id), 100 * one.expected_freshness, formats.percent(100 * one.expected_freshness, 1))
        for one in sellers
    ]
    lowest = min((share for _, share, _ in rows), default=0.0)
    low = 0.0 if lowest < 50 else 50.0 if lowest < 90 else 90.0
    return charts.bars(rows, low, 100.0, [(mark, formats.percent(mark, 0)) for mark in (low, (low + 100) / 2, 100.0)])


def cut(seller_id: str) -> str:
    """A seller's id that fits beside its bar."""
    return seller_id if len(seller_id) <= LONGEST_NAME else f"{seller_id[: LONGEST_NAME - 1]}…"


def _is_known(connection: Connection, seller: str) -> bool:
    try:
        sellers.get(connection, SellerId(seller))
    except DomainError:
        return False
    return True


def _interval(text: str) -> CrawlingInterval | None:
    """An interval of a form, if it is one."""
    try:
        return CrawlingInterval.parse(text)
    except ValidationFailed:
        return None


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
