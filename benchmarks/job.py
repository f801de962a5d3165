"""What a contender is told and reports."""

import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Job:
    """One crawl of one seller into a database of the contender's own."""

    base_url: str
    listing_path: str
    seller_id: str
    page_size: int
    concurrency: int
    database_url: str
    redis_url: str
    home: str
    first: bool
    # Only ours has a policy: the others fetch everything.
    recrawl: str = "everything"
    # Between two requests of an agent: what slows a crawl down to so many requests a second.
    min_gap_seconds: float = 0.0

    def listing(self, page_no: int, page_size: int | None = None) -> str:
        """The address of a listing page."""
        size = self.page_size if page_size is None else page_size
        seller = quote(self.seller_id, safe="")
        return f"{self.base_url}{self.listing_path}?sellerId={seller}&pageNo={page_no}&pageSize={size}&order=LATEST"

    def detail(self, item_no: int) -> str:
        return f"{self.base_url}/mustit-api/facade-api/v1/item/{item_no}/detail/top"

    def options(self, item_no: int) -> str:
        return f"{self.base_url}/mustit-api/legacy-api/v1/auction_products/{item_no}/options"

    def pages(self, count: int) -> range:
        return range(-(-count // self.page_size))


@dataclass(slots=True)
class Outcome:
    """How a contender's crawl went; what it stored is read back from its database."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    stages: dict[str, float] = field(default_factory=dict[str, float])
    products: int = 0
    # As the marketplace counted them.
    requests: int = 0
    created: list[int] = field(default_factory=list[int])
    changed: list[int] = field(default_factory=list[int])


class Stopwatch:
    """The time from the start of a crawl, in all and by stage."""

    def __init__(self) -> None:
        self.stages: dict[str, float] = {}
        self._cpu, self._start = time.process_time(), time.perf_counter()
        self._last = self._start

    def lap(self, stage: str) -> None:
        """The stage, or one more stretch of it, that ends here."""
        now = time.perf_counter()
        self.stages[stage] = self.stages.get(stage, 0.0) + now - self._last
        self._last = now

    def outcome(self) -> Outcome:
        """The time until now, before anything is read back."""
        return Outcome(time.perf_counter() - self._start, time.process_time() - self._cpu, 0, self.stages)


def peak_bytes() -> int:
    """The most memory that this process has held."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not ru_maxrss on Linux: a new program inherits the peak of the process that started it.
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def contend(crawl: Callable[[Job], Outcome]) -> None:
    """The whole life of a contender's process: a job as its argument, the outcome as its last line of output."""
    job = Job(**json.loads(sys.argv[1]))
    outcome = crawl(job)
    outcome.peak_bytes = outcome.peak_bytes or peak_bytes()
    print(json.dumps(asdict(outcome)), flush=True)
