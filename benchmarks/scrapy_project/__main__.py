"""Runs the spider as a contender."""

from typing import Any

import psycopg
from scrapy.crawler import CrawlerProcess

from benchmarks.job import Job, Outcome, Stopwatch, contend
from benchmarks.scrapy_project.pipeline import SCHEMA, PostgresPipeline
from benchmarks.scrapy_project.spider import SellerSpider


def settings(job: Job) -> dict[str, Any]:
    """What a careful user of Scrapy sets for one fast host."""
    return {
        "CONCURRENT_REQUESTS": job.concurrency,
        "CONCURRENT_REQUESTS_PER_DOMAIN": job.concurrency,
        "CONCURRENT_ITEMS": job.concurrency,
        "DOWNLOAD_DELAY": 0,
        "COOKIES_ENABLED": False,
        "ROBOTSTXT_OBEY": False,
        "RETRY_ENABLED": True,
        "TELNETCONSOLE_ENABLED": False,
        "REFERER_ENABLED": False,
        "REDIRECT_ENABLED": False,
        "METAREFRESH_ENABLED": False,
        "LOG_LEVEL": "WARNING",
        "TWISTED_REACTOR": "twisted.internet.asyncioreactor.AsyncioSelectorReactor",
        "ITEM_PIPELINES": {PostgresPipeline: 300},
        "DATABASE_URL": job.database_url,
    }


def crawl(job: Job) -> Outcome:
    """Crawl the seller and read back what was stored."""
    with psycopg.connect(job.database_url) as connection:
        for statement in filter(str.strip, SCHEMA.split(";")):
            connection.execute(statement.encode())
        # Those of this crawl are read back.
        connection.execute("TRUNCATE changes")
        connection.commit()
        process = CrawlerProcess(settings(job))
        watch = Stopwatch()
        process.crawl(SellerSpider, job=job)
        process.start()
        outcome = watch.outcome()
        items = [row[0] for row in connection.execute("SELECT item_no FROM changes")]
        counted = connection.execute("SELECT count(*) FROM products").fetchone()
    outcome.products = counted[0] if counted else 0
    outcome.created, outcome.changed = (items, []) if job.first else ([], items)
    return outcome


if __name__ == "__main__":
    contend(crawl)
