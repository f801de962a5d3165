"""What a log line is about can be read from it, in a worker and in a request."""

from fastapi.testclient import TestClient
from sqlalchemy import text
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from mustit_pipeline.api.context import Ground
from mustit_pipeline.foundation import logs
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline.web import create_web
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.crawls import crawl, register

SELLER = "럭셔리 샵&co"


def test_a_failed_attempt_is_logged_with_its_task_its_execution_and_its_seller(
    database: Database, make_settings: MakeSettings, marketplace: RunningSimulator, market: MarketplaceControl
) -> None:
    market.add_seller(SELLER, 3)
    register(database, SELLER)
    market.fault("status", "detail", status=404)
    with capture_logs(processors=[merge_contextvars, logs.add_ids]) as lines:
        crawl(database, make_settings(base_url=marketplace.url, page_size=20), SELLER)
    with database.reading() as connection:
        failed = connection.execute(text("SELECT task_id, execution_id FROM crawler_tasks WHERE status = 'FAILED'"))
        expected = {(str(row.task_id), str(row.execution_id), SELLER) for row in failed}
    found = {
        (line["task_id"], line["execution_id"], line["seller_id"])
        for line in lines
        if line["event"] == "attempt failed"
    }
    assert len(expected) == 3
    assert found == expected


def test_lines_of_a_request_have_its_id_and_the_next_one_has_another(
    database: Database, make_settings: MakeSettings
) -> None:
    settings = make_settings()
    with (
        TestClient(create_web(Ground(settings, database, settings.signing_keys()))) as client,
        capture_logs(processors=[merge_contextvars, logs.add_ids]) as lines,
    ):
        for request_id in ("first", "second"):
            client.get("/health/live", headers={"X-Request-Id": request_id})
    assert [line["request_id"] for line in lines if line["event"] == "request"] == ["first", "second"]
