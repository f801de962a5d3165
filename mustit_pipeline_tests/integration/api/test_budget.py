"""The request budget over HTTP, as it is and as it would be."""

from fastapi.testclient import TestClient


def test_a_larger_pool_has_more_requests_and_nonsense_is_refused(viewer: TestClient) -> None:
    usual = viewer.get("/api/v1/budget").json()
    larger = viewer.get("/api/v1/budget", params={"agents": 2 * usual["agents"], "maxAge": 48}).json()
    assert usual["promiseKept"] is True
    assert larger["capacityPerDay"] == 2 * usual["capacityPerDay"]
    assert larger["maxAgeHours"] == 48
    for wrong in ({"agents": 0}, {"maxAge": "x"}, {"days": 0}):
        assert viewer.get("/api/v1/budget", params=wrong).status_code == 400
