"""A process that writes a day and stops in its middle, for a test to kill it there.

python -m mustit_pipeline_tests.integration.lake.child LAKE_URI FOLDER [ENDPOINT]
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import gettempdir

import orjson

from mustit_pipeline.lake.export import write_catalog
from mustit_pipeline.lake.place import lake_of
from mustit_pipeline.lake.sql.catalog_states import ProductState
from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.integration.lake.history import DAY, in_seoul
from mustit_pipeline_tests.integration.product_data import product_data

SELLERS = ("a", "b", "c")


def states() -> Iterator[ProductState]:
    """Products of some sellers; after the first one of the last seller none comes any more."""
    for seller_id in SELLERS:
        for item_no in range(1, 4):
            data = orjson.dumps(product_data(seller_id, item_no)).decode()
            yield ProductState(seller_id, item_no, 2, in_seoul(DAY, "12:00"), data)
            if seller_id == SELLERS[-1]:
                print("in the middle", flush=True)
                time.sleep(600)


def main() -> None:
    uri, folder, *endpoint = sys.argv[1:]
    settings = Settings(
        home=Path(gettempdir()),
        lake_uri=uri,
        aws_endpoint_url=endpoint[0] if endpoint else None,
    )  # pyright: ignore[reportCallIssue]
    with lake_of(settings).replace(folder) as fresh:
        write_catalog(fresh, states())


if __name__ == "__main__":
    main()
