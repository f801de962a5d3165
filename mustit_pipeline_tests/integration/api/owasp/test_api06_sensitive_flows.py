"""API6 Unrestricted access to sensitive business flows: asking often does no more than asking once."""

from fastapi.testclient import TestClient
from sqlalchemy import text

from mustit_pipeline.domain.access import Scope
from mustit_pipeline.foundation.database import Database
from mustit_pipeline_tests.integration.api.conftest import MakeClient


def test_a_hundred_triggers_are_one_crawl(admin: TestClient, with_key: MakeClient, database: Database) -> None:
    admin.post("/api/v1/sellers", json={"sellerId": "dmont", "name": "x"})
    machine = with_key(Scope.TRIGGER)
    answers = [machine.post("/api/internal/crawling/trigger", json={"sellerId": "dmont"}) for _ in range(50)]
    answers += [admin.post("/api/v1/sellers/dmont/crawl") for _ in range(50)]
    assert {answer.status_code for answer in answers} == {200, 202}
    assert len({answer.json()["executionId"] for answer in answers}) == 1
    assert [answer.json()["joined"] for answer in answers] == [False] + [True] * 99
    with database.reading() as connection:
        assert connection.execute(text("SELECT count(*) FROM crawling_schedule_executions")).scalar_one() == 1


def test_a_seller_who_is_not_crawled_is_not_triggered_either(admin: TestClient, with_key: MakeClient) -> None:
    admin.post("/api/v1/sellers", json={"sellerId": "dmont", "name": "x"})
    admin.post("/api/v1/sellers/dmont/deactivate")
    assert admin.post("/api/v1/sellers/dmont/crawl").status_code == 409
    trigger = with_key(Scope.TRIGGER).post("/api/internal/crawling/trigger", json={"sellerId": "dmont"})
    assert trigger.status_code == 409
