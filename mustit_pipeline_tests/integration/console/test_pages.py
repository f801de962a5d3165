"""The pages at work: each shows what is there, acts on it through the rooms, and writes that down."""

import json
import re
from collections.abc import Callable
from html import unescape
from urllib.parse import quote

import pytest
from sqlalchemy import text

from mustit_pipeline.console import pages
from mustit_pipeline.crawling.steering import open_or_join
from mustit_pipeline.domain.states import ExecutionStatus, OutboxStatus, RawStatus
from mustit_pipeline.domain.values import CrawlingInterval, SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.monitoring.sql import activity
from mustit_pipeline.sellers import registry
from mustit_pipeline_tests.integration import rows
from mustit_pipeline_tests.integration.console.conftest import Browser
from mustit_pipeline_tests.integration.crawls import register

PAGES = (
    "/", "/sellers", "/executions", "/products", "/changes", "/outbox", "/deletions", "/holds", "/agents", "/budget",
    "/drift", "/alerts", "/users", "/audit", "/password",
)  # fmt: skip
HOSTILE = '<script>alert("x")</script>\u202eevil\u2066 \'"><img src=x onerror=alert(1)>'
UNREADABLE = (
    "/products/0", "/products/99999999999999999999", "/products/x", "/products/5", "/executions/zz",
    "/executions/0b6f13c2", "/outbox/not-a-uuid", "/changes?cursor=garbage", "/outbox?cursor=W10",
    "/sellers?page=-1", "/sellers/%00", "/sellers/unknown", "/deletions/0b6f13c2", "/products?cursor=W10",
    "/executions?cursor=zz", "/audit?cursor=W10", "/alerts?cursor=W10", "/products/5/raw/5",
)  # fmt: skip


def scalar(database: Database, query: str) -> object:
    with database.reading() as connection:
        return connection.execute(text(query)).scalar()


def actions(database: Database) -> list[tuple[str, str, str]]:
    """The audit log: who, what, on which thing."""
    with database.reading() as connection:
        rows = connection.execute(text("SELECT actor, action, target FROM audit_log ORDER BY id"))
        return [(row.actor, row.action, row.target) for row in rows]


def test_a_fresh_installation_has_every_page_and_each_is_light_with_all_its_assets(admin: Browser) -> None:
    for path in PAGES:
        page = admin.get(path)
        assert page.status_code == 200, page.text
        assert page.text.count("<h1") == 1, path
        ids = re.findall(r'\sid="([^"]+)"', page.text)
        assert len(ids) == len(set(ids)), path
        for table in re.findall(r"(?s)<table.*?</table>", page.text):
            assert "<caption" in table, path
            assert 'scope="col"' in table, path
        assets = set(re.findall(r'(?:href|src)="(/static/[^"#]+)"', page.text))
        assert assets, path
        assert len(page.content) + sum(len(admin.get(asset).content) for asset in assets) <= 150_000, path


def test_the_overview_of_a_fresh_installation_is_a_checklist(admin: Browser, database: Database) -> None:
    assert "First steps" in admin.get("/").text
    register(database, "dmont")
    with database.transaction() as connection:
        rows.add_execution(connection, ExecutionStatus.COMPLETED, "dmont")
    assert "First steps" in admin.get("/").text, "the product server's address is missing"
    with database.transaction() as connection:
        connection.execute(text("UPDATE sellers SET created_at = now() - interval '90 days'"))
    assert 'href="/sellers/dmont">See the most overdue' in admin.get("/").text


def test_the_overview_counts_every_running_crawl_and_shows_the_newest(admin: Browser, database: Database) -> None:
    with database.transaction() as connection:
        for number in range(10):
            registry.register(database, SellerId(f"shop-{number}"), "가게", CrawlingInterval.DEFAULT, utc_now())
            status = ExecutionStatus.RUNNING if number else ExecutionStatus.PAUSED
            rows.add_execution(connection, status, f"shop-{number}")
    page = admin.get("/").text
    assert '<span class="name">Running crawls</span><span class="figure">9</span>' in page
    assert page.count('aria-label="Progress of shop-') == 8


def test_the_overview_says_where_it_does_not_count_every_change(
    admin: Browser, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows.ground(database)
    with database.transaction() as connection:
        for item in range(1, 4):
            rows.add_outbox(connection, OutboxStatus.WAITING, item)
        connection.execute(text("UPDATE product_change_sets SET change_types = '{PRICE}'"))
    assert "Only the newest" not in admin.get("/").text
    monkeypatch.setattr(activity, "MOST_COUNTED", 3)
    page = admin.get("/").text
    assert "Only the newest 50,000 changed products are counted." in page
    assert '<span class="figure">3+</span>' in page


def test_a_seller_is_registered_changed_stopped_and_crawled_and_each_step_is_written_down(
    admin: Browser, database: Database
) -> None:
    seller_id = "bag & shoes/50%"
    path = f"/sellers/{quote(seller_id, safe='')}"
    made = admin.post("/sellers", seller_id=seller_id, name="가방", amount="6", unit="h")
    assert made.headers["location"] == path
    assert admin.notice(path).endswith("first crawl is due now. Written to the audit log.")
    assert "is changed" in admin.act(f"{path}/interval", amount="7", unit="d")
    assert "every 7 days" in admin.get(path).text
    assert "begins within half a minute" in admin.act(f"{path}/crawl")
    assert "under way already" in admin.act(f"{path}/crawl")
    asked = admin.post(f"{path}/deactivate")
    assert (asked.status_code, "Deactivate bag &amp; shoes/50%?" in asked.text) == (200, True)
    assert scalar(database, "SELECT status FROM sellers") == "ACTIVE"
    assert "crawled no more" in admin.act(f"{path}/deactivate")
    assert "INACTIVE and is not crawled" in admin.act(f"{path}/crawl", back=path)
    assert "crawled again" in admin.act(f"{path}/activate")
    assert [(who, what) for who, what, _ in actions(database)] == [
        ("admin", "seller.register"),
        ("admin", "seller.interval"),
        ("admin", "crawl.trigger"),
        ("admin", "seller.deactivate"),
        ("admin", "seller.activate"),
    ]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"seller_id": "", "amount": "1", "unit": "d"}, "A SellerId cannot be blank"),
        ({"seller_id": "x", "amount": "31", "unit": "d"}, "1-30 days"),
        ({"seller_id": "x", "amount": "many", "unit": "d"}, "1-30 days or 1-23 hours"),
        ({"seller_id": "x", "amount": "1", "unit": "w"}, "1-30 days or 1-23 hours"),
        ({"seller_id": "known", "amount": "1", "unit": "d"}, "registered already"),
    ],
)
def test_a_form_that_cannot_be_taken_leads_back_and_says_why(
    admin: Browser, database: Database, fields: dict[str, str], reason: str
) -> None:
    register(database, "known")
    assert reason in admin.act("/sellers", back="/sellers", **fields)


def test_one_form_acts_on_some_or_on_all_that_match_with_the_number_said_before(
    admin: Browser, database: Database
) -> None:
    for number in range(4):
        registry.register(database, SellerId(f"shop-{number}"), "가게", CrawlingInterval.DEFAULT, utc_now())
    register(database, "other")
    fields = {"action": "interval", "amount": "6", "unit": "h", "which": "all", "q": "shop", "back": "/sellers?q=shop"}
    asked = admin.post("/sellers/actions", **fields)
    assert "This concerns 4 sellers." in asked.text
    assert scalar(database, "SELECT count(*) FROM sellers WHERE interval_unit = 'HOURS'") == 0
    assert "Done: 4. Written to the audit log." in admin.act("/sellers/actions", **fields)
    assert scalar(database, "SELECT count(*) FROM sellers WHERE interval_unit = 'HOURS'") == 4
    chosen = {"action": "deactivate", "which": "chosen", "seller": ["shop-1", "shop-2"], "back": "/sellers"}
    assert "This concerns 2 sellers." in admin.post("/sellers/actions", **chosen).text
    assert "Done: 2." in admin.act("/sellers/actions", **chosen)
    again = admin.act("/sellers/actions", **chosen)
    assert "Done: 0." in again
    assert "Refused: 2" in again
    assert len(actions(database)) == 6
    assert "Choose one of the values" in admin.act("/sellers/actions", **{**chosen, "action": "explode"})


def test_undo_brings_back_what_was(admin: Browser, database: Database) -> None:
    crawl = f"/executions/{rows.ground(database).home.execution_id}"
    admin.post("/users", name="lee", role="viewer")
    role, status = (
        "SELECT role || (disabled_at IS NULL) FROM users WHERE user_name = 'lee'",
        "SELECT status FROM sellers",
    )
    interval = "SELECT interval_amount || interval_unit FROM sellers"
    crawling = "SELECT status FROM crawling_schedule_executions"
    for path, fields, state in (
        ("/sellers/dmont/interval", {"amount": "6", "unit": "h"}, interval),
        (f"{crawl}/pause", {}, crawling),
        ("/users/role", {"name": "lee", "role": "admin"}, role),
        ("/users/disable", {"name": "lee"}, role),
        ("/sellers/dmont/deactivate", {}, status),
    ):
        before = scalar(database, state)
        answer = admin.post(path, confirmed="yes", **fields)
        assert scalar(database, state) != before, path
        admin.take_back(answer.headers["location"])
        assert scalar(database, state) == before, path


def test_a_decision_without_a_way_back_is_asked_before(admin: Browser, database: Database) -> None:
    hold = deletion_hold(database)
    with database.transaction() as connection:
        connection.execute(
            text("""INSERT INTO alerts (subject, kind, title, detail, opened_at, last_seen_at)
                    VALUES ('held deletions of dmont', 'HELD_DELETIONS', 'held', '', now(), now())""")
        )
    assert '<a href="/deletions">Decide on deletions</a>' in admin.get("/alerts").text
    asked = admin.post(f"/deletions/{hold}/reject")
    assert (asked.status_code, "No product of dmont is deleted until" in asked.text) == (200, True)
    assert scalar(database, "SELECT status FROM deletion_holds") == "OPEN"
    assert "Rejected" in admin.act(f"/deletions/{hold}/reject")
    assert scalar(database, "SELECT status FROM deletion_holds") == "REJECTED"


def deletion_hold(database: Database) -> object:
    """A hold of two deletions."""
    execution = rows.ground(database).home.execution_id
    with database.transaction() as connection:
        return connection.execute(
            text("""INSERT INTO deletion_holds (hold_id, seller_id, execution_id, status, item_nos, live_count)
                    VALUES (gen_random_uuid(), 'dmont', :execution, 'OPEN', '{1,2}', 4) RETURNING hold_id"""),
            {"execution": execution},
        ).scalar_one()


def test_a_csv_file_registers_its_sellers_and_names_the_line_that_cannot_be_read(
    admin: Browser, database: Database
) -> None:
    content = "﻿dmont,D.MONT,1d\nluxshop,럭스샵,6h\nbad line\n"
    answer = admin.client.post(
        "/sellers/load", data={"form_token": admin.token()}, files={"file": ("sellers.csv", content, "text/csv")}
    )
    said = admin.notice(answer.headers["location"])
    assert "2 sellers are registered, 0 were known. Written to the audit log." in said
    assert "line 3" in said
    assert scalar(database, "SELECT count(*) FROM sellers") == 2


def test_a_crawl_is_paused_resumed_and_cancelled(admin: Browser, database: Database) -> None:
    ground = rows.ground(database)
    path = f"/executions/{ground.home.execution_id}"
    assert "is paused" in admin.act(f"{path}/pause")
    assert "Paused" in admin.get(path).text
    assert "goes on" in admin.act(f"{path}/resume")
    assert "Cancel this crawl?" in admin.post(f"{path}/cancel").text
    assert "is cancelled" in admin.act(f"{path}/cancel")
    assert "Cancelled" in admin.get(path).text
    assert [what for _, what, _ in actions(database)] == ["execution.pause", "execution.resume", "execution.cancel"]


def test_failed_events_are_sent_again_one_some_and_all(admin: Browser, database: Database) -> None:
    rows.ground(database)
    with database.transaction() as connection:
        ids = [rows.add_outbox(connection, OutboxStatus.FAILED, item) for item in range(1, 7)]
    assert "Send all 6 failed again" in admin.get("/outbox?status=FAILED").text
    assert "1 wait to be sent again" in admin.act("/outbox/retry", event=str(ids[0]), back="/outbox")
    two = {"event": [str(ids[1]), str(ids[2])], "back": "/outbox"}
    assert "2 failed events are sent again" in admin.post("/outbox/retry", **two).text
    assert "2 wait to be sent again" in admin.act("/outbox/retry", **two)
    assert "3 failed events are sent again" in admin.post("/outbox/retry", which="all").text
    assert "3 wait to be sent again" in admin.act("/outbox/retry", which="all")
    assert scalar(database, "SELECT count(*) FROM product_outbox WHERE status = 'WAITING'") == 6
    assert [what for _, what, _ in actions(database)] == ["outbox.retry"] * 4
    assert admin.get(f"/outbox/{ids[0]}").status_code == 200
    assert "Choose one of the values" in admin.act("/outbox/retry", event="explode", back="/outbox")


def test_an_agent_is_blocked_and_unblocked(admin: Browser, database: Database) -> None:
    agent = scalar(database, "SELECT agent_id FROM user_agents ORDER BY created_at LIMIT 1")
    with database.transaction() as connection:
        connection.execute(
            text("""INSERT INTO agent_bookings (booking_id, agent_id, booked_at, expires_at, answered_at)
                    SELECT gen_random_uuid(), :agent, now() - age, now() - age, now() - age
                    FROM unnest(ARRAY[interval '1 min', '2 min', '2 hours']) AS age"""),
            {"agent": agent},
        )
    assert "99,998 / 100,000" in admin.get(f"/agents?q={agent}").text
    assert "is blocked" in admin.act(f"/agents/{agent}/block")
    assert "Unblock all 1" in admin.get("/agents").text
    assert "in use again" in admin.act(f"/agents/{agent}/unblock")
    added = admin.act("/agents/load", lines="Mozilla/5.0 (new)\n# not this\n")
    assert added.startswith("1 agents are added")
    assert added.endswith("Written to the audit log.")


def test_drift_is_accepted_and_forgotten(admin: Browser, database: Database) -> None:
    register(database, "dmont")
    with database.transaction() as connection:
        connection.execute(
            text("""INSERT INTO schema_drift (path, kind, observed, expected, sample, count, seller_id)
                    VALUES ('detail.new', 'NEW', 'bool', '', 'true', 1, 'dmont')""")
        )
    assert "Nothing was chosen" in admin.act("/drift/accept")
    assert "1 field is accepted as harmless." in admin.post("/drift/accept", path="detail.new").text
    assert "1 field is accepted" in admin.act("/drift/accept", path="detail.new")
    assert "detail.new" not in admin.get("/drift").text
    assert "detail.new" in admin.get("/drift?accepted=yes").text
    assert "1 field is forgotten" in admin.act("/drift/forget", path="detail.new")


def test_users_and_keys_are_made_shown_once_and_ended(admin: Browser, app: object, database: Database) -> None:
    made = admin.post("/users", name="lee", role="viewer")
    link = re.search(r'value="http://testserver(/login/link\?key=ml_[0-9a-f_]+)"', made.text)
    assert link is not None
    assert "Written to the audit log." in made.text
    assert link[1] not in admin.get("/users").text
    lee = Browser(app)  # pyright: ignore[reportArgumentType]
    lee.post("/login/link", page=link[1], key=link[1].partition("=")[2])
    assert lee.get("/sellers").status_code == 200
    assert "is changed" in admin.act("/users/role", name="lee", role="admin")
    assert lee.get("/sellers").status_code == 303
    assert "is disabled" in admin.act("/users/disable", name="lee")
    assert "the last admin" in admin.act("/users/disable", name="admin", back="/users")
    key = re.search(r"mk_[0-9a-f]+_[0-9a-f]+", admin.post("/users/keys", name="erp", scope="trigger", days="90").text)
    assert key is not None
    trigger = {"json": {"sellerId": "unknown"}, "headers": {"X-API-Key": key[0]}}
    assert admin.client.post("/api/internal/crawling/trigger", **trigger).status_code == 404
    assert "is revoked" in admin.act("/users/keys/revoke", key=key[0].split("_")[1])
    assert admin.client.post("/api/internal/crawling/trigger", **trigger).status_code == 401
    log = admin.get("/audit").text
    assert all(f"<code>{what}</code>" in log for what in ("user.add", "user.link", "user.role", "apikey.create"))
    assert key[0] not in log


@pytest.fixture
def hostile(database: Database) -> str:
    """A seller and a product whose every text is an attack."""
    ground = rows.ground(database)
    with database.transaction() as connection:
        connection.execute(text("UPDATE sellers SET name = :name"), {"name": HOSTILE})
        rows.add_outbox(connection, OutboxStatus.FAILED, 7)
        rows.add_raw(connection, RawStatus.FAILED, 7)
        data = {
            "name": HOSTILE + "가" * 1_000_000,
            "description": HOSTILE,
            "images": ["javascript:alert(1)", 'https://x/"onerror=alert(1)', HOSTILE],
            "tags": [HOSTILE],
            "brandName": HOSTILE,
            "options": [{"optionNo": 1, "color": HOSTILE, "size": HOSTILE, "stock": 1, "sizeGuide": ""}],
            "discountPrice": 1000,
            "stock": 1,
        }
        connection.execute(
            text("""UPDATE product_change_sets SET product_data = :data, change_types = '{PRODUCT_INFO}',
                           changes = CAST(:changes AS jsonb)"""),
            {
                "data": json.dumps(data),
                "changes": json.dumps([{"type": "PRODUCT_INFO", "field": HOSTILE, "old": HOSTILE, "new": [HOSTILE]}]),
            },
        )
        connection.execute(text("UPDATE product_outbox SET last_error = :error"), {"error": HOSTILE})
        connection.execute(
            text("UPDATE crawling_schedule_executions SET error_text = :error, triggered_by = :error"),
            {"error": HOSTILE},
        )
        connection.execute(text("UPDATE product_raw_data SET body = :body"), {"body": HOSTILE})
    return str(ground.home.execution_id)


def test_text_of_others_is_shown_as_text_wherever_it_appears(admin: Browser, database: Database, hostile: str) -> None:
    raw_id = scalar(database, "SELECT raw_id FROM product_raw_data")
    outbox_id = scalar(database, "SELECT outbox_id FROM product_outbox")
    paths = (
        "/", "/sellers", "/sellers/dmont", f"/executions/{hostile}", "/executions", "/products?seller=dmont",
        "/products/7", f"/products/7/raw/{raw_id}", "/changes", "/outbox", f"/outbox/{outbox_id}",
        f"/sellers?q={quote(HOSTILE)}", f"/products?q={quote(HOSTILE)}&seller={quote(HOSTILE)}",
        f"/changes?since={quote(HOSTILE)}&seller={quote(HOSTILE)}", f"/audit?actor={quote(HOSTILE)}",
        f"/login?next={quote(HOSTILE)}", f"/nothing/{quote(HOSTILE)}",
    )  # fmt: skip
    seen = 0
    for path in paths:
        page = admin.get(path).text
        seen += "alert(" in unescape(page)
        assert "<script>" not in page, path
        assert "<img" not in page, path
        assert not re.search(r'(?:href|src|action)="(?:javascript|https?):', page), path
        assert len(page) < 150_000, path
    assert seen > 8


def test_pictures_are_loaded_only_where_a_setting_allows_it_and_only_by_https(
    database: Database, hostile: str, make_console: Callable[..., Browser]
) -> None:
    page = make_console(console_images=True).get("/products/7")
    assert re.findall(r'<img src="([^"]+)"', page.text) == ["https://x/&#34;onerror=alert(1)"]
    assert "img-src 'self' https:" in page.headers["content-security-policy"]


def test_an_address_that_cannot_be_read_is_a_page_that_says_so(admin: Browser) -> None:
    for path in UNREADABLE:
        page = admin.get(path)
        assert page.status_code in (400, 404), page.text
        if path != "/sellers/%00":
            assert "text/html" in page.headers["content-type"], path


def test_a_joined_crawl_shows_its_progress_on_the_sellers_page(admin: Browser, database: Database) -> None:
    register(database, "dmont")
    open_or_join(database, SellerId("dmont"), triggered_by="test", now=utc_now())
    page = admin.get("/sellers/dmont").text
    assert "Crawl under way" in page
    assert "Waiting for a run that plans it" in page


def test_agents_are_blocked_some_or_all_that_match_with_the_number_said_before_and_the_way_back(
    admin: Browser, database: Database
) -> None:
    blocked = "SELECT count(*) FROM user_agents WHERE status = 'BLOCKED'"
    with database.reading() as connection:
        ids = [str(one) for one in connection.execute(text("SELECT agent_id FROM user_agents LIMIT 3")).scalars()]
        firefox = text("SELECT count(*) FROM user_agents WHERE user_agent ILIKE '%firefox%'")
        number = connection.execute(firefox).scalar_one()
    some = {"action": "block", "which": "chosen", "agent": ids, "back": "/agents"}
    assert "This concerns 3 agents." in admin.post("/agents/actions", **some).text
    assert scalar(database, blocked) == 0
    answer = admin.post("/agents/actions", confirmed="yes", **some)
    assert scalar(database, blocked) == 3
    admin.take_back(answer.headers["location"])
    assert scalar(database, blocked) == 0
    every = {"action": "block", "which": "all", "q": "firefox", "back": "/agents?q=firefox"}
    assert f"This concerns {number} agents." in admin.post("/agents/actions", **every).text
    assert f"Done: {number}." in admin.act("/agents/actions", **every)
    assert scalar(database, blocked) == number


def test_crawls_are_paused_and_resumed_all_that_match(
    admin: Browser, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground = rows.ground(database)
    with monkeypatch.context() as few:
        few.setattr(pages.executions, "MOST_AT_ONCE", 1)
        with database.transaction() as connection:
            for number in range(2):
                registry.register(database, SellerId(f"shop-{number}"), "가게", CrawlingInterval.DEFAULT, utc_now())
                rows.add_execution(connection, ExecutionStatus.FAILED, f"shop-{number}")
        asked = admin.post("/executions/actions", action="resume", which="all").text
        assert "This concerns 1 crawl. So many at once: the first" in asked
    path = f"/executions/{ground.home.execution_id}"
    assert "This concerns 1 crawl." in admin.post("/executions/actions", action="pause", which="all").text
    assert "Done: 1." in admin.act("/executions/actions", action="pause", which="all")
    assert "Paused" in admin.get(path).text
    assert "Nothing was chosen." in admin.act("/executions/actions", action="pause", which="all", back="/executions")
    assert "Done: 1." in admin.act(
        "/executions/actions", action="resume", which="chosen", execution=str(ground.home.execution_id)
    )
    admin.post("/executions/actions", action="explode", back="/executions")
    assert "Choose one of the values" not in admin.get("/executions", headers={"X-Live": "1"}).text
    assert "Choose one of the values" in admin.notice("/executions")


def test_fields_that_match_are_accepted_together(admin: Browser, database: Database) -> None:
    register(database, "dmont")
    with database.transaction() as connection:
        for number in range(60):
            connection.execute(
                text("""INSERT INTO schema_drift (path, kind, observed, expected, sample, count, seller_id)
                        VALUES (:path, 'NEW', 'bool', '', 'true', 1, 'dmont')"""),
                {"path": f"{'detail' if number % 2 else 'options'}.field{number}"},
            )
    page = admin.get("/drift").text
    assert (page.count('name="path"'), "Accept all 60 that match" in page) == (25, True)
    assert admin.get("/drift?page=2").text.count('name="path"') == 10
    assert "30 fields are accepted as harmless." in admin.post("/drift/accept", which="all", q="detail").text
    assert "30 fields are accepted." in admin.act("/drift/accept", which="all", q="detail")
    assert scalar(database, "SELECT count(*) FROM schema_drift WHERE accepted_at IS NULL") == 30
