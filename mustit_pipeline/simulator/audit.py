"""The marketplace's record of requests, by which a crawler is judged."""

import time
from collections import Counter, defaultdict, deque
from typing import Any

# Enough for the longest fault scenario; the half million of a benchmark would only cost memory.
_REMEMBERED_ARRIVALS = 100_000


class AgentAudit:
    """One user agent's record."""

    __slots__ = (
        "by_endpoint",
        "in_flight",
        "injected_429",
        "last",
        "limit_429",
        "most_in_flight",
        "most_in_window",
        "smallest_gap",
    )

    def __init__(self) -> None:
        self.by_endpoint: Counter[str] = Counter()
        self.in_flight = 0
        self.most_in_flight = 0
        self.most_in_window = 0
        self.smallest_gap: float | None = None
        self.last: float | None = None
        self.limit_429 = 0
        self.injected_429 = 0

    def as_json(self) -> dict[str, Any]:
        return {
            "byEndpoint": dict(self.by_endpoint),
            "maxInWindow": self.most_in_window,
            "maxInFlight": self.most_in_flight,
            "smallestGapSeconds": self.smallest_gap,
            "limit429": self.limit_429,
            "injected429": self.injected_429,
        }


class Audit:
    """Counters over all agents since the start or the last reset."""

    def __init__(self) -> None:
        self._agents: dict[str, AgentAudit] = {}
        self._in_flight = 0
        self.reset()

    def reset(self) -> None:
        """Reset the counters; running requests still end here."""
        open_requests = {name: agent.in_flight for name, agent in self._agents.items() if agent.in_flight}
        self._agents = {}
        for name, count in open_requests.items():
            self.agent(name).in_flight = count
        self._most_in_flight = self._in_flight
        self._by_endpoint: Counter[str] = Counter()
        self._statuses: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._limit_429: Counter[str] = Counter({"window": 0, "gap": 0})
        self._faults: Counter[str] = Counter()
        self._urls: Counter[str] = Counter()
        self._without_cookies = 0
        self._arrivals: deque[float] = deque(maxlen=_REMEMBERED_ARRIVALS)

    def agent(self, name: str) -> AgentAudit:
        """The record of that agent."""
        record = self._agents.get(name)
        if record is None:
            record = self._agents[name] = AgentAudit()
        return record

    def began(self, agent: str, endpoint: str, url: str) -> None:
        """A request of any endpoint arrived."""
        record = self.agent(agent)
        record.by_endpoint[endpoint] += 1
        record.in_flight += 1
        record.most_in_flight = max(record.most_in_flight, record.in_flight)
        self._in_flight += 1
        self._most_in_flight = max(self._most_in_flight, self._in_flight)
        self._by_endpoint[endpoint] += 1
        self._urls[url] += 1
        self._arrivals.append(time.time())

    def counted(self, agent: str, now: float, in_window: int, *, cookies: bool) -> None:
        """The request counts in the agent's limits."""
        record = self.agent(agent)
        record.most_in_window = max(record.most_in_window, in_window)
        if record.last is not None:
            gap = now - record.last
            record.smallest_gap = gap if record.smallest_gap is None else min(gap, record.smallest_gap)
        record.last = now
        if not cookies:
            self._without_cookies += 1

    def ended(self, agent: str) -> None:
        """It was answered, or its caller has closed the connection."""
        self.agent(agent).in_flight -= 1
        self._in_flight -= 1

    def answered(self, endpoint: str, status: int) -> None:
        """With this status."""
        self._statuses[endpoint][str(status)] += 1

    def over_limit(self, agent: str, cause: str) -> None:
        """The agent broke a limit and got a 429 for it."""
        self._limit_429[cause] += 1
        self.agent(agent).limit_429 += 1

    def fault(self, agent: str, kind: str) -> None:
        """A switched-on fault was served."""
        self._faults[kind] += 1
        if kind in ("429", "storm"):
            self.agent(agent).injected_429 += 1

    @property
    def urls(self) -> dict[str, int]:
        """How often each address was asked for."""
        return dict(self._urls)

    @property
    def arrivals(self) -> list[float]:
        """When requests came, as seconds since the epoch: a caller on this host has the same clock."""
        return list(self._arrivals)

    def as_json(self) -> dict[str, Any]:
        """The whole record."""
        agents = self._agents.values()
        sessions = self._by_endpoint["session"]
        return {
            "requests": self._by_endpoint.total() - sessions,
            "sessions": sessions,
            "byEndpoint": dict(self._by_endpoint),
            "statuses": {endpoint: dict(counts) for endpoint, counts in self._statuses.items()},
            "maxInWindow": max((agent.most_in_window for agent in agents), default=0),
            "inFlight": self._in_flight,
            "maxInFlight": self._most_in_flight,
            "maxInFlightPerAgent": max((agent.most_in_flight for agent in agents), default=0),
            "limit429": self._limit_429.total(),
            "limit429ByCause": dict(self._limit_429),
            "injected429": sum(agent.injected_429 for agent in agents),
            "faults": dict(self._faults),
            "withoutCookies": self._without_cookies,
            "byAgent": {name: agent.as_json() for name, agent in self._agents.items()},
        }
