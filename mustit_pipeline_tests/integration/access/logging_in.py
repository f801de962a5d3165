"""A process that logs in: `python -m … DATABASE_URL ADDRESS`, the password on stdin; prints `in` or the code."""

import sys
from typing import Any

from sqlalchemy import make_url

from mustit_pipeline.access.login import login
from mustit_pipeline.domain.errors import DomainError
from mustit_pipeline.foundation.database import Database, make_engine
from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.conftest import JWT_SECRET, TOKEN_KEY, dagster_beside

if __name__ == "__main__":
    _, url, address = sys.argv
    values: dict[str, Any] = {
        "database_url": url,
        "dagster_database_url": dagster_beside(url),
        "token_key": TOKEN_KEY,
        "jwt_secret": JWT_SECRET,
    }
    try:
        login(Database(make_engine(make_url(url))), Settings(**values), "kim", sys.stdin.read(), address)
    except DomainError as error:
        print(error.code)
    else:
        print("in")
