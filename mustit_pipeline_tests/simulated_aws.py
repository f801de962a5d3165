"""A simulated AWS over HTTP, and eyes and hands on it through another client than ours."""

import json
import logging
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import boto3
import httpx
from moto.server import ThreadedMotoServer

REGION = "ap-northeast-2"
VARIABLES = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": REGION}


@dataclass(frozen=True)
class Queue:
    """An SQS queue, as those who write into it see it."""

    url: str
    client: Any

    def send(self, *bodies: object) -> list[str]:
        """Put messages in, texts as they are and all else as JSON; says their ids."""
        texts = [body if isinstance(body, str) else json.dumps(body) for body in bodies]
        return [self.client.send_message(QueueUrl=self.url, MessageBody=text)["MessageId"] for text in texts]

    def left(self) -> int:
        """Messages that are not deleted, received or not."""
        wanted = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.client.get_queue_attributes(QueueUrl=self.url, AttributeNames=wanted)["Attributes"]
        return sum(int(number) for number in found.values())


@dataclass(frozen=True)
class SimulatedAws:
    """Where it listens."""

    endpoint: str

    def client(self, service: str) -> Any:
        return boto3.client(service, endpoint_url=self.endpoint)

    def queue(self, name: str = "mustit-triggers", *, visibility_seconds: int = 30) -> Queue:
        client = self.client("sqs")
        attributes = {"VisibilityTimeout": str(visibility_seconds)}
        return Queue(client.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"], client)

    def reset(self) -> None:
        """Forget everything."""
        self.let_in("inf")
        httpx.post(f"{self.endpoint}/moto-api/reset", trust_env=False).raise_for_status()

    def let_in(self, requests: str) -> None:
        """So many more requests are let in, from any sender."""
        httpx.post(f"{self.endpoint}/moto-api/reset-auth", content=requests, trust_env=False).raise_for_status()


@contextmanager
def simulated_aws() -> Generator[SimulatedAws]:
    """One on a free port; its callers need VARIABLES in the environment."""
    # It would log every call.
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    made = SimulatedAws(f"http://{host}:{port}")
    try:
        yield made
    finally:
        made.reset()
        server.stop()
