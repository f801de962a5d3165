"""The pages of the console, each with its own router."""

from fastapi import APIRouter

from mustit_pipeline.console.pages import session

PAGES: tuple[APIRouter, ...] = (session.router,)
