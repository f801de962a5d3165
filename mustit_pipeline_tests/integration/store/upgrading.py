"""An upgrade of a database's schema in a process of its own."""

import sys

from sqlalchemy import make_url

from mustit_pipeline.store import schema
from mustit_pipeline.store.database import make_engine

if __name__ == "__main__":
    engine = make_engine(make_url(sys.argv[1]))
    with engine.begin() as connection:
        print(schema.upgrade(connection).current)
    engine.dispose()
