"""Launch a backfill through the GraphQL API of the running Dagster UI."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx

from mustit_pipeline.cli.runtime import RunFailed

if TYPE_CHECKING:
    import dagster as dg

TIMEOUT_SECONDS = 60.0
# A daemon that every instance needs.
DAEMON = "SENSOR"
HEARTBEAT = """query($daemon: String!) {
  instance { daemonHealth { daemonStatus(daemonType: $daemon) { healthy lastHeartbeatTime } } }
}"""
LAUNCH = """mutation($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) {
    __typename
    ... on LaunchBackfillSuccess { backfillId }
    ... on PythonError { message }
    ... on UnauthorizedError { message }
    ... on PartitionKeysNotFoundError { message }
  }
}"""
ENDED = {"COMPLETED", "COMPLETED_SUCCESS", "COMPLETED_FAILED", "FAILED", "CANCELED"}


@dataclass(frozen=True, slots=True)
class BackfillState:
    """The progress of a backfill: its state, and the number of its runs by state."""

    status: str
    runs: Counter[str]

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED


class DagsterUI:
    """The UI of one Dagster instance."""

    def __init__(self, url: str) -> None:
        self._url = url

    def serves(self, instance: "dg.DagsterInstance") -> bool:
        """Whether it answers, its daemon lives, and it is the UI of this instance: both see the same heartbeat."""
        before = _heartbeat(instance)
        if before is None:
            return False
        try:
            status = self._ask(HEARTBEAT, {"daemon": DAEMON})["instance"]["daemonHealth"]["daemonStatus"]
        except (httpx.HTTPError, ValueError, KeyError, TypeError, RunFailed):
            return False
        return bool(status["healthy"]) and status["lastHeartbeatTime"] in (before, _heartbeat(instance))

    def launch_backfill(
        self, assets: Sequence[str], partitions: Sequence[str], *, config: Mapping[str, Any], title: str
    ) -> str:
        """Launch a backfill of these assets, one run per partition; returns its id."""
        params = {
            "assetSelection": [{"path": [asset]} for asset in assets],
            "partitionNames": list(partitions),
            "title": title,
            "runConfigData": json.dumps(config, ensure_ascii=False),
        }
        try:
            answer = self._ask(LAUNCH, {"params": params})["launchPartitionBackfill"]
        except httpx.HTTPError as error:
            raise RunFailed(f"The Dagster UI at {self._url} did not answer: {error!r}") from None
        if answer["__typename"] != "LaunchBackfillSuccess":
            raise RunFailed(f"Dagster refused the backfill: {answer.get('message', answer['__typename'])}")
        return answer["backfillId"]

    def _ask(self, query: str, variables: Mapping[str, Any]) -> Any:
        answer = httpx.post(
            f"{self._url}/graphql",
            json={"query": query, "variables": variables},
            timeout=TIMEOUT_SECONDS,
            trust_env=False,
        )
        document = answer.json()
        if document.get("errors"):
            raise RunFailed(f"Dagster did not understand the question: {document['errors'][0]['message']}")
        return document["data"]


def backfill_state(instance: "dg.DagsterInstance", backfill_id: str) -> BackfillState:
    """The progress of a backfill in the instance."""
    import dagster as dg

    backfill = instance.get_backfill(backfill_id)
    if backfill is None:
        raise RunFailed(f"Dagster does not know the backfill {backfill_id}")
    runs = instance.get_runs(filters=dg.RunsFilter(tags={"dagster/backfill": backfill_id}))
    return BackfillState(backfill.status.value, Counter(run.status.value for run in runs))


def failed_partitions(instance: "dg.DagsterInstance", backfill_id: str) -> dict[str, str]:
    """Partitions whose run in this backfill failed, and the run."""
    import dagster as dg

    wanted = dg.RunsFilter(tags={"dagster/backfill": backfill_id}, statuses=[dg.DagsterRunStatus.FAILURE])
    return {run.tags.get("dagster/partition", ""): run.run_id for run in instance.get_runs(filters=wanted)}


def _heartbeat(instance: "dg.DagsterInstance") -> float | None:
    status = instance.get_daemon_statuses([DAEMON])[DAEMON]
    return None if status.last_heartbeat is None else status.last_heartbeat.timestamp
