"""User agents and the numbers of a day over HTTP."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from mustit_pipeline.domain.states import TaskStatus
from mustit_pipeline.foundation.database import Database
from mustit_pipeline_tests.integration.api.test_crawls import entries
from mustit_pipeline_tests.integration.rows import SELLER, add_task, ground

AGENTS = "/api/v1/user-agents"
METRICS = "/api/v1/metrics/crawling"


def test_agents_are_listed_page_by_page_without_their_sessions(viewer: TestClient, database: Database) -> None:
    with database.transaction() as connection:
        connection.execute(
            text("""UPDATE user_agents SET session = 'very secret', session_key_id = 'k',
                                           token_expires_at = now() + interval '1 h'""")
        )
    first, last = (viewer.get(AGENTS, params={"size": 40, "page": page}) for page in (0, 1))
    assert (first.json()["totalElements"], first.json()["totalPages"]) == (50, 2)
    listed = [*first.json()["content"], *last.json()["content"]]
    assert len({agent["agentId"] for agent in listed}) == 50
    assert listed[0]["tokenExpiresAt"] is not None
    assert "very secret" not in first.text
    assert "session" not in first.text.lower()
    assert viewer.get(AGENTS, params={"status": "BLOCKED"}).json()["totalElements"] == 0


def test_an_agent_is_blocked_and_unblocked_and_the_pool_counts_it(admin: TestClient, database: Database) -> None:
    agent_id = admin.get(AGENTS, params={"size": 1}).json()["content"][0]["agentId"]
    blocked = admin.post(f"{AGENTS}/{agent_id}/block").json()
    assert (blocked["status"], blocked["reason"]) == ("BLOCKED", "blocked by an admin")
    assert admin.post(f"{AGENTS}/{agent_id[:8]}/block").json()["errorCode"][:8] == "CONFLICT"
    pool = admin.get(f"{AGENTS}/status").json()
    assert (pool["totalCount"], pool["availableCount"], pool["suspendedCount"], pool["blockedCount"]) == (50, 49, 0, 1)
    assert (pool["circuit"], pool["requestsPerWindow"]) == ("closed", 49 * 100_000)
    assert admin.post(f"{AGENTS}/{agent_id}/unblock").json()["status"] == "AVAILABLE"
    assert [(row["action"], row["target"], row["after"]["status"]) for row in entries(database)] == [
        ("agent.block", f"agent {agent_id}", "BLOCKED"),
        ("agent.unblock", f"agent {agent_id}", "AVAILABLE"),
    ]
    unknown = admin.post(f"{AGENTS}/0123456789/block")
    assert (unknown.status_code, unknown.json()["errorCode"]) == (404, "NOT_FOUND_USER_AGENT")


def test_agents_are_added_and_calls_go_on_when_an_admin_says_so(
    admin: TestClient, viewer: TestClient, database: Database
) -> None:
    wanted = {"userAgents": ["Mozilla/5.0 (new)", "", "Mozilla/5.0 (new)", "not\tone"]}
    added = admin.post(AGENTS, json=wanted)
    assert (added.status_code, added.json()["added"], added.json()["known"]) == (201, 1, 1)
    assert [one["number"] for one in added.json()["rejected"]] == [4]
    with database.transaction() as connection:
        connection.execute(
            text("UPDATE pool_state SET breaker_open_until = now() + interval '1 h', paused_until = now() + '1 h'")
        )
    assert admin.get(f"{AGENTS}/status").json()["circuit"] == "open"
    assert viewer.post(f"{AGENTS}/resume").status_code == 403
    pool = admin.post(f"{AGENTS}/resume").json()
    assert (pool["totalCount"], pool["circuit"], pool["hostPausedUntil"]) == (51, "closed", None)
    assert [row["action"] for row in entries(database)] == ["agents.load", "agents.resume"]


def test_a_sellers_day_has_its_rates_in_percent_and_its_tasks(viewer: TestClient, database: Database) -> None:
    rows = ground(database)
    with database.transaction() as connection:
        states = [TaskStatus.COMPLETED] * 3 + [TaskStatus.FAILED, TaskStatus.IN_PROGRESS, TaskStatus.RETRY]
        for item, status in enumerate(states):
            add_task(connection, rows.home, status, item)
        connection.execute(text("UPDATE crawling_schedule_executions SET started_at = now()"))
    today = viewer.get(METRICS, params={"sellerId": SELLER}).json()
    assert (today["sellerId"], today["date"]) == (SELLER, str(datetime.now(ZoneInfo("Asia/Seoul")).date()))
    assert (today["successRate"], today["progressRate"], today["crawls"]) == (50.0, 0.0, 1)
    assert today["taskStats"] == {"total": 6, "completed": 3, "failed": 1, "inProgress": 1, "waiting": 1}
    assert viewer.get(METRICS, params={"sellerId": SELLER, "date": today["date"]}).json() == today


@pytest.mark.parametrize("day", ["0001-01-01", "2020-02-29", "9999-12-31"])
def test_a_day_without_crawls_is_all_zeros_however_far_away(viewer: TestClient, database: Database, day: str) -> None:
    ground(database)
    found = viewer.get(METRICS, params={"sellerId": SELLER, "date": day}).json()
    assert (found["date"], found["successRate"], found["taskStats"]["total"]) == (day, 0.0, 0)


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ({}, 400, "VALIDATION_REQUEST"),
        ({"sellerId": "unknown"}, 404, "NOT_FOUND_SELLER"),
        ({"sellerId": SELLER, "date": "2026-02-30"}, 400, "VALIDATION_REQUEST"),
    ],
)
def test_metrics_of_no_seller_or_no_day_are_refused(
    viewer: TestClient, query: dict[str, str], status: int, code: str
) -> None:
    refused = viewer.get(METRICS, params=query)
    assert (refused.status_code, refused.json()["errorCode"]) == (status, code)
