"""The spider: token, count, listing pages, then the detail and the options of every product."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import orjson
import scrapy
from scrapy.http import Response

from benchmarks.job import Job

AGENT = "Mozilla/5.0 (X11; Linux x86_64) scrapy"


class SellerSpider(scrapy.Spider):
    """One seller's products as items."""

    name = "seller"

    def __init__(self, job: Job, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.job = job
        self._headers: dict[str, str] = {}

    async def start(self) -> AsyncIterator[scrapy.Request]:
        yield scrapy.Request(self.job.base_url + "/", self.read_token, headers={"User-Agent": AGENT})

    def read_token(self, response: Response) -> Iterator[scrapy.Request]:
        pairs = (cookie.decode().partition(";")[0].partition("=") for cookie in response.headers.getlist("Set-Cookie"))
        cookies = {name: value for name, _, value in pairs}
        self._headers = {
            "User-Agent": AGENT,
            "Authorization": f"Bearer {cookies['token']}",
            "Cookie": f"nid={cookies['nid']}; mustit_uid={cookies['mustit_uid']}",
        }
        yield self._request(self.job.listing(0, 1), self.read_count)

    def read_count(self, response: Response) -> Iterator[scrapy.Request]:
        for page_no in self.job.pages(orjson.loads(response.body)["count"]):
            yield self._request(self.job.listing(page_no), self.read_listing)

    def read_listing(self, response: Response) -> Iterator[scrapy.Request]:
        for listed in orjson.loads(response.body)["items"]:
            yield self._request(self.job.detail(listed["itemNo"]), self.read_detail, listed=listed)

    def read_detail(self, response: Response, listed: dict[str, Any]) -> Iterator[scrapy.Request]:
        detail = orjson.loads(response.body)
        yield self._request(self.job.options(listed["itemNo"]), self.read_options, listed=listed, detail=detail)

    def read_options(
        self, response: Response, listed: dict[str, Any], detail: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        yield {"listed": listed, "detail": detail, "options": orjson.loads(response.body)}

    def _request(self, url: str, callback: Any, **carried: Any) -> scrapy.Request:
        return scrapy.Request(url, callback, headers=self._headers, cb_kwargs=carried)
