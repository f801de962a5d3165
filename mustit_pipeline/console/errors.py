"""Errors as pages: what happened, in the reader's language, and the way on."""

from http import HTTPStatus

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from mustit_pipeline.api.problems import retry_after, unavailable
from mustit_pipeline.console.forms import sent_form
from mustit_pipeline.console.languages import marked
from mustit_pipeline.console.visits import Visit, visit_of
from mustit_pipeline.domain.errors import DomainError
from mustit_pipeline.environment_failure import EnvironmentFailure
from mustit_pipeline.foundation.database import is_away

log = structlog.get_logger(__name__)

NO_PAGE = marked("There is no page at this address.")
UNREADABLE = marked("The address or the form has a value that this page cannot read.")
OUR_FAULT = marked("Something went wrong here. Tell the operator the request id below.")


def install(app: FastAPI) -> None:
    """Answer every error of the console with a page."""
    app.add_exception_handler(DomainError, _domain)
    app.add_exception_handler(EnvironmentFailure, _away)
    app.add_exception_handler(SQLAlchemyError, _database)
    app.add_exception_handler(RequestValidationError, _unreadable)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)


def error_page(visit: Visit, error: DomainError) -> Response:
    """The page of a known error."""
    response = plain_error_page(visit, error.status, error.message(visit.language), error.code)
    response.headers.update(retry_after(error))
    return response


def plain_error_page(visit: Visit, status: int, text: str, code: str = "") -> Response:
    """A page for a status."""
    return visit.page("error.html", status, status=status, text=text, code=code)


async def _domain(request: Request, error: Exception) -> Response:
    """A refused form leads back to its page, which says why; everything else is a page of its own."""
    assert isinstance(error, DomainError)
    visit, sent = visit_of(request), sent_form(request)
    if sent is not None and sent.back and error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return visit.done(sent.back, error.message(visit.language), good=False)
    return error_page(visit, error)


async def _away(request: Request, error: Exception) -> Response:
    log.error("request failed", error=str(error))
    return error_page(visit_of(request), unavailable())


async def _database(request: Request, error: Exception) -> Response:
    assert isinstance(error, SQLAlchemyError)
    if is_away(error):
        log.warning("database away", error=type(error).__name__)
        return error_page(visit_of(request), unavailable())
    log.error("request failed", exc_info=error)
    return await _unexpected(request, error)


async def _unreadable(request: Request, error: Exception) -> Response:
    visit = visit_of(request)
    return plain_error_page(visit, HTTPStatus.BAD_REQUEST, visit.say(UNREADABLE))


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    visit = visit_of(request)
    missing = error.status_code in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)
    return plain_error_page(visit, error.status_code, visit.say(NO_PAGE if missing else UNREADABLE))


async def _unexpected(request: Request, error: Exception) -> Response:
    visit = visit_of(request)
    return plain_error_page(visit, HTTPStatus.INTERNAL_SERVER_ERROR, visit.say(OUR_FAULT))
