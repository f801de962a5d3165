"""Schemathesis over the OpenAPI document: requests that fit it and requests that do not, with each kind of right.

All of its checks run. `MUSTIT_TEST_API_EXAMPLES=100` makes the search longer.
"""

import logging
import os
from collections.abc import Callable, Mapping
from datetime import timedelta

import pytest
import schemathesis
import structlog
from fastapi import FastAPI
from schemathesis import Case, Response
from schemathesis.checks import ignored_auth
from schemathesis.core.result import Ok
from schemathesis.pytest.lazy import get_all_tests

from mustit_pipeline.access import api_keys, users
from mustit_pipeline.access.tokens import issue
from mustit_pipeline.api.context import Ground
from mustit_pipeline.api.gate import OPEN, READS
from mustit_pipeline.domain.access import KeyName, Role, Scope, UserName
from mustit_pipeline.domain.states import OutboxStatus
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline_tests.integration.api.conftest import ENGLISH
from mustit_pipeline_tests.integration.crawls import register
from mustit_pipeline_tests.integration.rows import add_outbox

EXAMPLES = int(os.environ.get("MUSTIT_TEST_API_EXAMPLES", "2"))
# What a schema cannot say: one of two fields, the form of a value, or what two values are to each other.
BEYOND_THE_SCHEMA = {
    "VALIDATION_API_KEY",
    "VALIDATION_CURSOR",
    "VALIDATION_INTERVAL",
    "VALIDATION_INTERVAL_FORMAT",
    "VALIDATION_INTERVAL_DAYS",
    "VALIDATION_INTERVAL_HOURS",
    "VALIDATION_KEY_NAME",
    "VALIDATION_PASSWORD_LENGTH",
    "VALIDATION_PASSWORD_NAME",
    "VALIDATION_PRODUCT_SEARCH",
    "VALIDATION_SELLER_ID_BLANK",
    "VALIDATION_SELLER_ID_CHARACTERS",
    "VALIDATION_SELLER_ID_LENGTH",
    "VALIDATION_SELLER_NAME",
    "VALIDATION_USER_NAME",
}
GUARDED = ("/api/", "/metrics")

Headers = Callable[[str], Mapping[str, str]]


@pytest.fixture(autouse=True)
def _quiet() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


@pytest.fixture(autouse=True)
def _filled(ground: Ground) -> None:
    register(ground.database, "dmont")
    with ground.database.transaction() as connection:
        for item, status in enumerate((OutboxStatus.FAILED, OutboxStatus.WAITING), 1):
            add_outbox(connection, status, item)


def try_all_routes(app: FastAPI, act: Callable[[Case], None], *, boundaries: bool = False) -> None:
    """Do something with each generated request; boundary values and other methods belong to them on request."""
    config = schemathesis.Config.from_dict(
        {
            "generation": {
                "max-examples": EXAMPLES,
                "deterministic": True,
                "no-shrink": True,
                "database": "none",
                # Each test sends its own: one that is left out on purpose would be there all the same.
                "with-security-parameters": False,
            },
            "phases": {
                "coverage": {"enabled": boundaries, "unexpected-methods": ["OPTIONS", "PUT"]},
                "stateful": {"enabled": False},
            },
            # Refused all the same, with a reason of our own: see BEYOND_THE_SCHEMA.
            "checks": {"positive_data_acceptance": {"expected-statuses": ["2xx", 400, 401, 403, 404, 409, 429]}},
        }
    )
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, config=config)
    found = list(get_all_tests(schema=schema, test_func=act, settings=None, given_kwargs=None))
    assert len(found) > 20
    for one in found:
        assert isinstance(one, Ok), one
        _, run = one.ok()
        run()


def headers_of(ground: Ground, role: Role) -> Headers:
    """Headers of a user with a role; logging out ends a token of its own."""
    user = users.add(ground.database, UserName(f"the-{role}"), role, None)
    token = issue(ground.keys, user, utc_now()).text

    def headers(path: str) -> Mapping[str, str]:
        own = issue(ground.keys, user, utc_now()).text if path.endswith("/logout") else token
        return ENGLISH | {"Authorization": f"Bearer {own}"}

    return headers


def checked(case: Case, headers: Mapping[str, str], *, known_closed: bool = False) -> Response:
    """The answer to a case, after all checks; a request that fits the schema is refused for known reasons alone."""
    response = case.call_and_validate(headers=dict(headers), excluded_checks=[ignored_auth] if known_closed else [])
    if case.meta is not None and case.meta.generation.mode.is_positive and response.status_code == 400:
        assert response.json()["errorCode"] in BEYOND_THE_SCHEMA, response.text
    return response


def is_guarded(case: Case) -> bool:
    return case.operation.path.startswith(GUARDED) and case.operation.path not in OPEN


def test_a_stranger_gets_in_nowhere(app: FastAPI) -> None:
    def act(case: Case) -> None:
        response = checked(case, ENGLISH)
        assert response.status_code in (400, 401) or not is_guarded(case)

    try_all_routes(app, act)


def test_a_viewer_changes_nothing(app: FastAPI, ground: Ground) -> None:
    headers = headers_of(ground, Role.VIEWER)

    def act(case: Case) -> None:
        response = checked(case, headers(case.operation.path))
        changes = case.method not in READS and not case.operation.path.endswith("/logout")
        assert response.status_code in (400, 401, 403) or not (is_guarded(case) and changes)

    try_all_routes(app, act)


def test_an_api_key_opens_no_route_for_people(app: FastAPI, ground: Ground) -> None:
    made = api_keys.create(ground.database, KeyName("all"), list(Scope), timedelta(days=1))

    def act(case: Case) -> None:
        response = checked(case, ENGLISH | {"X-API-Key": made.text})
        for_people = is_guarded(case) and case.operation.path.startswith("/api/v1/")
        assert response.status_code in (400, 401) or not for_people

    try_all_routes(app, act)


def test_an_admin_meets_no_error_of_ours_and_no_answer_that_is_not_described(app: FastAPI, ground: Ground) -> None:
    headers = headers_of(ground, Role.ADMIN)
    # A route that lets an admin in is tried without a token too, which is enough once.
    closed: set[str] = set()

    def act(case: Case) -> None:
        label = case.operation.label
        if checked(case, headers(case.operation.path), known_closed=label in closed).status_code < 300:
            closed.add(label)

    try_all_routes(app, act, boundaries=True)
