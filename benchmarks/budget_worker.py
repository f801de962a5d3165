"""One worker process of a budget run: ready when it says so, then works on the open execution until its time is up."""

import json
import sys

from benchmarks.job import Job
from benchmarks.ours import open_database, settings_of
from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.planning import PRODUCT_TYPES
from mustit_pipeline.crawling.steering import open_or_join
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now


def main() -> None:
    """Arguments: the job and the changed settings; a line with the seconds to work starts it. Prints what is left."""
    job, changed = Job(**json.loads(sys.argv[1])), json.loads(sys.argv[2])
    settings = settings_of(job, **changed)
    database = open_database(job)
    print("ready", flush=True)
    seconds = float(sys.stdin.readline())
    opened = open_or_join(database, SellerId(job.seller_id), triggered_by="benchmark", now=utc_now())
    report = Crawl(database, settings, opened.stored).fetch_products(PRODUCT_TYPES, seconds)
    print(report.remaining, flush=True)
    database.close()


if __name__ == "__main__":
    main()
