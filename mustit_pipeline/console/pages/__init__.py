"""The pages of the console, each with its own router."""

from fastapi import APIRouter

from mustit_pipeline.console import live
from mustit_pipeline.console.pages import (
    agents,
    alerts,
    audit,
    budget,
    changes,
    deletions,
    drift,
    executions,
    holds,
    outbox,
    overview,
    products,
    seller,
    sellers,
    session,
    users,
)

PAGES: tuple[APIRouter, ...] = (
    session.router,
    live.router,
    overview.router,
    sellers.router,
    seller.router,
    executions.router,
    products.router,
    changes.router,
    outbox.router,
    deletions.router,
    holds.router,
    agents.router,
    budget.router,
    drift.router,
    alerts.router,
    users.router,
    audit.router,
)
