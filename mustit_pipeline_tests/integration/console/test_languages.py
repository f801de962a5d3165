"""Both languages: every text has its Korean, and the page follows the browser or the switch."""

import re

from babel.messages.pofile import read_po

from mustit_pipeline.catalog.product_data import CATEGORY_LEVELS, EMPTY_SHIPPING
from mustit_pipeline.console.languages import CATALOGUE
from mustit_pipeline.console.words import FIELDS, PARTS, WORDS
from mustit_pipeline.domain.access import Role
from mustit_pipeline.domain.states import AgentStatus, ChangeType, ExecutionStatus, OutboxStatus, RawStatus, TaskType
from mustit_pipeline_tests.integration.console.conftest import KOREAN, Browser, MakeBrowser
from mustit_pipeline_tests.integration.console.texts import Message, messages

PLACE = re.compile(r"%\((\w+)\)s")


def translated() -> dict[str, str]:
    with CATALOGUE.open("rb") as file:
        entries = [entry for entry in read_po(file, locale="ko") if entry.id]
    return {
        entry.id[0] if isinstance(entry.id, tuple) else str(entry.id): entry.string[0]
        if isinstance(entry.string, tuple)
        else str(entry.string)
        for entry in entries
    }


def test_every_text_has_its_korean_with_the_same_places_and_none_is_left_over() -> None:
    korean, found = translated(), {message.text: message for message in messages()}
    assert len(found) > 400
    assert set(found) == set(korean)
    for text, message in found.items():
        assert korean[text].strip(), text
        assert set(PLACE.findall(korean[text])) == _places(message), text


def _places(message: Message) -> set[str]:
    return set(PLACE.findall(message.text)) | set(PLACE.findall(message.plural or ""))


def test_every_state_that_a_page_shows_has_a_word() -> None:
    states = [*AgentStatus, *ChangeType, *ExecutionStatus, *OutboxStatus, *RawStatus, *TaskType, *Role]
    assert {str(state) for state in states} <= set(WORDS)
    assert {"discountPrice", "stock", "name"} <= set(FIELDS)
    assert {*EMPTY_SHIPPING, *CATEGORY_LEVELS} <= set(PARTS)


def test_the_page_is_korean_unless_the_browser_or_the_switch_prefers_english(
    anyone: Browser, log_in: MakeBrowser
) -> None:
    assert "로그인" in anyone.get("/login", headers={"Accept-Language": ""}).text
    assert '<html lang="en"' in anyone.get("/login").text
    assert anyone.post("/preferences", page="/login", language="ko", back="/login").headers["location"] == "/login"
    assert '<html lang="ko"' in anyone.get("/login").text
    kim = log_in(Role.ADMIN, language=KOREAN)
    page = kim.get("/").text
    assert "확인이 필요한 일" in page
    kim.post("/preferences", language="en", theme="dark", back="/")
    page = kim.get("/").text
    assert "Needs a person" in page
    assert 'data-theme="dark"' in page


def test_a_korean_page_has_no_english_sentence(log_in: MakeBrowser) -> None:
    kim = log_in(Role.ADMIN, language=KOREAN)
    for path in ("/", "/sellers", "/agents", "/users", "/outbox", "/drift", "/holds", "/deletions"):
        page = kim.get(path)
        assert page.status_code == 200, path
        main = re.sub(r"(?s)<(code|pre|script|style|title)\b.*?</\1>|<[^>]+>", " ", page.text.partition("<main")[2])
        assert re.findall(r"\b[A-Za-z]+ (?:is|are|the|of|to|a|and) [a-z]+", main) == [], path
