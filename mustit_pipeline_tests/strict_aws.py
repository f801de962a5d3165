"""A simulated AWS that is as strict as the real one, in front of moto, with faults that can be switched on.

moto accepts a deduplication id again once its message is deleted, and deletes by a receipt whose time is over. Here
both are refused as SQS does, and what breaks SQS's limits is an error.
"""

import hashlib
import json
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from uuid import uuid4

import boto3
import httpx

from mustit_pipeline_tests.own_servers import QuietHandler, serving
from mustit_pipeline_tests.simulated_aws import SimulatedAws

DEDUPLICATION_SECONDS = 300.0
NAME = re.compile(r"[!-~]{1,128}")
SQS = "AmazonSQS."
Names = tuple[str, str]
PASSED_ON = ("x-amz-target", "content-type", "authorization", "x-amz-date", "x-amzn-query-mode")


class Fault(Enum):
    """What may happen to a call."""

    NONE = "as usual"
    ERROR = "answered with 500, nothing is done"
    THROTTLED = "refused for now, nothing is done"
    LOST = "done, but the answer is lost"
    HALF = "a batch of which every other entry is refused for now"


@dataclass
class _Receipt:
    message_id: str
    group: str
    until: float


@dataclass
class _Queue:
    """What SQS remembers of one queue, and moto does not."""

    # By group too: the queues ask for that.
    sent: dict[Names, tuple[float, str]] = field(default_factory=dict[Names, tuple[float, str]])
    receipts: dict[str, _Receipt] = field(default_factory=dict[str, _Receipt])
    newest: dict[str, str] = field(default_factory=dict[str, str])
    repeated: deque[dict[str, Any]] = field(default_factory=deque[dict[str, Any]])


@dataclass
class StrictAws:
    """Where it listens, what was called, and what is to go wrong."""

    behind: SimulatedAws
    endpoint: str = ""
    calls: Counter[str] = field(default_factory=Counter[str])
    # Service, operation and the name of what it is about.
    made: set[tuple[str, str, str]] = field(default_factory=set[tuple[str, str, str]])
    broken: list[str] = field(default_factory=list[str])
    # How often each received message is delivered again, late and in reverse order.
    repeats: int = 0
    # Whether the number of messages in a queue is told as it was before any came.
    counts_late: bool = False
    # Told of each call, by its operation, before it is answered.
    on_call: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        self._faults: dict[str, deque[Fault]] = {}
        self._queues: dict[str, _Queue] = {}
        self._lock = threading.RLock()
        self._clients: dict[str, Any] = {}
        # The API keys of connections, which EventBridge does not show again.
        self._keys: dict[str, dict[str, str]] = {}
        self._moto = httpx.Client(base_url=self.behind.endpoint, trust_env=False, timeout=30)

    def client(self, service: str) -> Any:
        """A client that speaks to moto itself, past all faults."""
        if service not in self._clients:
            self._clients[service] = boto3.client(service, endpoint_url=self.behind.endpoint)
        return self._clients[service]

    def left(self, name: str) -> int:
        """Messages of a queue that are not deleted, received or not."""
        client = self.client("sqs")
        wanted = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        url = client.get_queue_url(QueueName=name)["QueueUrl"]
        found = client.get_queue_attributes(QueueUrl=url, AttributeNames=wanted)["Attributes"]
        return sum(int(value) for value in found.values())

    def go_wrong(self, operation: str, *faults: Fault) -> None:
        """The next calls of this operation go wrong, one after the other."""
        self._faults.setdefault(operation, deque()).extend(faults)

    def fire(self, rule: str) -> None:
        """Do what EventBridge does when a rule's time has come, which moto never does."""
        events = self.client("events")
        assert events.describe_rule(Name=rule)["State"] == "ENABLED"
        for target in events.list_targets_by_rule(Rule=rule)["Targets"]:
            name = target["Arn"].rpartition(":")[2]
            if name.startswith("api-destination/"):
                assert target["RoleArn"], "EventBridge calls an API destination only in a role"
                called = events.describe_api_destination(Name=name.split("/")[1])
                key = self._keys[called["ConnectionArn"].rpartition("/")[0].rpartition("/")[2]]
                httpx.request(
                    called["HttpMethod"],
                    called["InvocationEndpoint"],
                    content=target["Input"],
                    headers={key["ApiKeyName"]: key["ApiKeyValue"], "Content-Type": "application/json"},
                    trust_env=False,
                ).raise_for_status()
            else:
                url = self.client("sqs").get_queue_url(QueueName=name)["QueueUrl"]
                self.client("sqs").send_message(QueueUrl=url, MessageBody=target["Input"])

    def reset(self) -> None:
        """Forget everything, moto's queues and rules too."""
        with self._lock:
            self._faults.clear()
            self._queues.clear()
            self.calls.clear()
            self.made.clear()
            self.broken.clear()
            self.repeats, self.counts_late, self.on_call = 0, False, None
            self._moto.post("/moto-api/reset").raise_for_status()

    def answer(self, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, Any]] | None:
        """The status and body of the answer; None where it is lost."""
        target = headers.get("x-amz-target", "")
        operation = target.rpartition(".")[2]
        asked: dict[str, Any] = json.loads(body or b"{}")
        with self._lock:
            if self.on_call is not None:
                self.on_call(operation)
            self.calls[operation] += 1
            self.made.add((target.partition(".")[0], operation, _about(asked)))
            if operation in ("CreateConnection", "UpdateConnection"):
                self._keys[asked["Name"]] = asked["AuthParameters"]["ApiKeyAuthParameters"]
            faults = self._faults.get(operation)
            fault = faults.popleft() if faults else None
            if fault is Fault.ERROR:
                return 500, {"__type": "InternalFailure", "message": "made for a test"}
            if fault is Fault.THROTTLED:
                return 400, {"__type": "ThrottlingException", "message": "made for a test"}
            refused = self._halve(asked) if fault is Fault.HALF else []
            status, answer = self._strictly(operation, asked, headers) if target.startswith(SQS) else (0, {})
            if not status:
                status, answer = self._pass_on(headers, asked)
            if refused:
                answer.setdefault("Failed", []).extend(refused)
            if self.counts_late and operation == "GetQueueAttributes":
                found = answer["Attributes"]
                found.update({name: "0" for name in found if name.startswith("Approximate")})
            return None if fault is Fault.LOST else (status, answer)

    def _halve(self, asked: dict[str, Any]) -> list[dict[str, Any]]:
        entries = asked["Entries"]
        asked["Entries"] = entries[::2]
        return [
            {"Id": entry["Id"], "SenderFault": False, "Code": "InternalError", "Message": "half"}
            for entry in entries[1::2]
        ]

    def _strictly(self, operation: str, asked: dict[str, Any], headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
        queue = self._queues.setdefault(asked.get("QueueUrl", "").rpartition("/")[2], _Queue())
        if operation == "SendMessageBatch":
            return self._send(queue, asked, headers)
        if operation == "ReceiveMessage":
            return self._receive(queue, asked, headers)
        if operation in ("DeleteMessageBatch", "ChangeMessageVisibilityBatch"):
            return self._with_receipts(queue, asked, headers)
        return 0, {}

    def _send(self, queue: _Queue, asked: dict[str, Any], headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
        self._expect(0 < len(asked["Entries"]) <= 10, "a batch of more than ten")
        now, known, new = time.monotonic(), list[dict[str, Any]](), list[dict[str, Any]]()
        for entry in asked["Entries"]:
            names = _names(entry)
            self._expect(all(map(NAME.fullmatch, names)), f"names that SQS refuses: {names}")
            sent_at, message_id = queue.sent.get(names, (-DEDUPLICATION_SECONDS, ""))
            if now - sent_at < DEDUPLICATION_SECONDS:
                digest = hashlib.md5(entry["MessageBody"].encode(), usedforsecurity=False).hexdigest()
                known.append({"Id": entry["Id"], "MessageId": message_id, "MD5OfMessageBody": digest})
            else:
                new.append(entry)
        status, answer = 200, {"Successful": list[dict[str, Any]](), "Failed": list[dict[str, Any]]()}
        if new:
            status, answer = self._pass_on(headers, asked | {"Entries": new})
            by_id = {entry["Id"]: entry for entry in new}
            for entry in answer.get("Successful", []):
                queue.sent[_names(by_id[entry["Id"]])] = now, entry["MessageId"]
        answer.setdefault("Successful", []).extend(known)
        return status, answer

    def _receive(self, queue: _Queue, asked: dict[str, Any], headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
        asked_at = time.monotonic()
        status, answer = self._pass_on(headers, asked)
        now = time.monotonic()
        in_flight = {one.group for handle, one in queue.receipts.items() if self._holds(queue, handle, now)}
        given = answer.setdefault("Messages", [])
        for one in given:
            group = one.get("Attributes", {}).get("MessageGroupId", "")
            self._expect(not group or group not in in_flight, f"a second message of the group {group} is in flight")
            receipt = _Receipt(one["MessageId"], group, asked_at + asked.get("VisibilityTimeout", 30))
            queue.receipts[one["ReceiptHandle"]] = receipt
            queue.newest[one["MessageId"]] = one["ReceiptHandle"]
        room = asked.get("MaxNumberOfMessages", 1) - len(given)
        late = [queue.repeated.popleft() for _ in range(min(room, len(queue.repeated)))]
        for one in given:
            queue.repeated.extendleft(one | {"ReceiptHandle": f"late-{uuid4().hex}"} for _ in range(self.repeats))
        given.extend(late)
        return status, answer

    def _with_receipts(
        self, queue: _Queue, asked: dict[str, Any], headers: dict[str, str]
    ) -> tuple[int, dict[str, Any]]:
        self._expect(0 < len(asked["Entries"]) <= 10, "a batch of more than ten")
        now = time.monotonic()
        valid = [entry for entry in asked["Entries"] if self._holds(queue, entry["ReceiptHandle"], now)]
        refused = [
            {"Id": entry["Id"], "SenderFault": True, "Code": "InvalidParameterValue", "Message": "has expired"}
            for entry in asked["Entries"]
            if entry not in valid
        ]
        status, answer = 200, dict[str, Any]()
        if valid:
            status, answer = self._pass_on(headers, asked | {"Entries": valid})
            for entry in valid:
                seconds = entry.get("VisibilityTimeout")
                if seconds is None:
                    del queue.receipts[entry["ReceiptHandle"]]
                else:
                    queue.receipts[entry["ReceiptHandle"]].until = now + seconds
        answer.setdefault("Failed", []).extend(refused)
        return status, answer

    def _holds(self, queue: _Queue, handle: str, now: float) -> bool:
        receipt = queue.receipts.get(handle)
        return receipt is not None and receipt.until > now and queue.newest[receipt.message_id] == handle

    def _expect(self, kept: bool, rule: str) -> None:
        if not kept:
            self.broken.append(rule)

    def _pass_on(self, headers: dict[str, str], asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        passed = {name: value for name, value in headers.items() if name in PASSED_ON}
        answer = self._moto.post("/", content=json.dumps(asked), headers=passed)
        return answer.status_code, answer.json() if answer.content else {}


def _names(entry: dict[str, Any]) -> Names:
    return entry["MessageGroupId"], entry["MessageDeduplicationId"]


def _about(asked: dict[str, Any]) -> str:
    named = next((asked[key] for key in ("QueueUrl", "QueueName", "Rule", "Name") if key in asked), "")
    return named.rpartition("/")[2]


@contextmanager
def strict_aws(behind: SimulatedAws) -> Generator[StrictAws]:
    """One on a free port in front of a simulated one."""
    made = StrictAws(behind)

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"
        # Head and body in one packet: the second of two would wait 40 ms for the receiver's acknowledgement.
        wbufsize = -1

        def do_POST(self) -> None:
            body = self.body()
            answered = made.answer({name.lower(): value for name, value in self.headers.items()}, body)
            if answered is None:
                self.close_connection = True
                return
            status, answer = answered
            self.answer(status, json.dumps(answer).encode(), Content_Type="application/x-amz-json-1.0")

    with serving(Handler) as url:
        made.endpoint = url
        yield made
