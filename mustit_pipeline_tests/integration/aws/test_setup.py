"""`mustit aws setup`: what the settings name is made once, and the policies allow just the calls that are made."""

import fnmatch
import json
import subprocess
import sys
from functools import partial
from typing import Any

import pytest
from sqlalchemy import text

from mustit_pipeline.aws.policy import setup_policy, work_policy
from mustit_pipeline.aws.rule_comparison import different_rules
from mustit_pipeline.aws.rule_relay import relay_rules
from mustit_pipeline.aws.setup import make_destination, make_queues
from mustit_pipeline.aws.trigger_queue import TriggerQueue
from mustit_pipeline.crawling.dead_letters import DeadLetters, QueueDepths, depths
from mustit_pipeline.crawling.results import TaskResult
from mustit_pipeline.crawling.steering import deactivate_seller
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.scheduling.triggers import take_triggers
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.contract.task_queues import Queues, fetched
from mustit_pipeline_tests.integration.aws.asking import asking
from mustit_pipeline_tests.strict_aws import StrictAws

QUEUE = "https://sqs.ap-northeast-2.amazonaws.com/123456789012/mustit-triggers"
TARGET = "arn:aws:sqs:ap-northeast-2:123456789012:mustit-triggers"
SERVICES = {"AmazonSQS": "sqs", "AWSEvents": "events"}


@pytest.fixture
def make(make_settings: MakeSettings, strict: StrictAws) -> MakeSettings:
    return partial(
        make_settings,
        task_transport="sqs",
        aws_endpoint_url=strict.endpoint,
        trigger="eventbridge",
        trigger_target_arn=TARGET,
        trigger_queue_url=QUEUE,
        trigger_api_url="https://crawl.example.com",
        trigger_api_key="mk_1_secret",
        lease_seconds=0.4,
        task_max_retries=0,
    )


def test_queues_and_the_dead_letter_queue_are_made_once_and_changed_where_they_differ(
    make_settings: MakeSettings, strict: StrictAws
) -> None:
    make = partial(make_settings, task_transport="sqs", aws_endpoint_url=strict.endpoint)
    planned = make_queues(make(), dry_run=True)
    assert [(one.name, one.created) for one in planned] == [
        ("mustit-crawler-tasks-dlq.fifo", True),
        ("mustit-crawler-tasks.fifo", True),
    ]
    assert strict.client("sqs").list_queues().get("QueueUrls", []) == []

    made = make_queues(make())
    assert [one.created for one in made] == [True, True]
    client = strict.client("sqs")
    url = client.get_queue_url(QueueName="mustit-crawler-tasks.fifo")["QueueUrl"]
    found = client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    policy = json.loads(found["RedrivePolicy"])
    assert (found["FifoQueue"], found["VisibilityTimeout"], policy["maxReceiveCount"]) == ("true", "30", 3)
    assert policy["deadLetterTargetArn"].endswith(":mustit-crawler-tasks-dlq.fifo")

    assert [(one.created, one.changed) for one in make_queues(make())] == [(False, {}), (False, {})]
    [_, changed] = make_queues(make(lease_seconds=60, task_max_retries=4))
    assert changed.changed.keys() == {"RedrivePolicy", "VisibilityTimeout"}
    found = client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert (found["VisibilityTimeout"], json.loads(found["RedrivePolicy"])["maxReceiveCount"]) == ("60", 5)


def test_the_trigger_queue_lets_the_rules_of_schedules_send_and_keeps_a_policy_that_it_has(
    make: MakeSettings, strict: StrictAws
) -> None:
    settings = make(task_transport="postgres")
    [made] = make_queues(settings)
    assert (made.name, made.created) == ("mustit-triggers", True)
    [statement] = json.loads(made.changed["Policy"])["Statement"]
    assert statement["Condition"]["ArnLike"]["aws:SourceArn"].endswith(":rule/mustit-crawler-*")

    assert [(one.created, one.changed) for one in make_queues(settings)] == [(False, {})]


def test_the_api_destination_posts_to_our_api_with_its_key(make: MakeSettings, strict: StrictAws) -> None:
    settings = make()
    planned = make_destination(settings, dry_run=True)
    assert planned is not None
    assert (planned.created, planned.arn) == (True, None)

    first, second = make_destination(settings), make_destination(settings)

    assert first is not None
    assert second is not None
    assert (first.created, second.created, first.arn == second.arn) == (True, False, True)
    found = strict.client("events").describe_api_destination(Name="mustit-crawl-trigger")
    assert (found["InvocationEndpoint"], found["HttpMethod"]) == (
        "https://crawl.example.com/api/internal/crawling/trigger",
        "POST",
    )


def test_the_command_says_what_it_would_make_and_makes_it(
    make: MakeSettings, strict: StrictAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = asking(make(), monkeypatch)
    names = ["mustit-triggers", "mustit-crawler-tasks-dlq.fifo", "mustit-crawler-tasks.fifo"]

    planned = ask("aws", "setup", "--dry-run")
    assert [(one["name"], one["created"]) for one in planned["queues"]] == [(name, True) for name in names]
    assert planned["apiDestination"]["arn"] is None
    assert strict.client("sqs").list_queues().get("QueueUrls", []) == []
    made = ask("aws", "setup")
    assert made["apiDestination"]["arn"].startswith("arn:aws:events:")
    assert made["policies"].keys() == {"work", "setup"}
    assert "mk_1_secret" not in json.dumps(made)

    assert [one["changed"] for one in ask("aws", "setup")["queues"]] == [{}, {}, {}]


def test_the_policies_allow_just_the_calls_that_are_made(
    database: Database, make: MakeSettings, strict: StrictAws
) -> None:
    settings = make()
    make_queues(settings)
    # As if an operator had changed them all by hand.
    for queue in strict.client("sqs").list_queues()["QueueUrls"]:
        strict.client("sqs").set_queue_attributes(QueueUrl=queue, Attributes={"MessageRetentionPeriod": "60"})
    make_queues(settings)
    for _ in range(2):
        make_destination(settings)
    assert made_by(strict) == allowed(setup_policy(settings))
    # AWS asks for more where a connection is made, and moto does not.
    assert [one["Sid"] for one in setup_policy(settings)["Statement"]][-2:] == [
        "SecretOfConnection",
        "RoleOfConnection",
    ]

    strict.made.clear()
    _work(database, make, strict)
    assert made_by(strict) == allowed(work_policy(settings))


def test_no_call_waits_inside_a_transaction(database: Database, make: MakeSettings, strict: StrictAws) -> None:
    """PostgreSQL would keep rows locked and a connection busy for as long as AWS takes."""
    open_ones = text("""
        SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND state LIKE 'idle in transaction%'
    """)
    inside: list[str] = []

    def look(operation: str) -> None:
        with database.reading() as connection:
            if connection.execute(open_ones).scalar_one():
                inside.append(operation)

    make_queues(make())
    strict.on_call = look
    _work(database, make, strict)

    assert strict.calls.total() > 20
    assert inside == []


def _work(database: Database, make: MakeSettings, strict: StrictAws) -> None:
    """All that workers, runs, sensors and operators do, once."""
    settings = make()
    queues = Queues("sqs", database, make)
    stored = queues.opened("s", new=2)
    queue = queues.queue(stored)
    first, second = queue.claim(2)
    queue.renew([first, second])
    second.task.fail("the last attempt", utc_now())
    queues.store().store([fetched(first), TaskResult(second)])
    queue.rest()
    assert depths(settings) == QueueDepths(visible=0, in_flight=0, dead=1)
    letters = DeadLetters(database, settings)
    assert len(letters.redrive_all()) == 1
    with letters.look(1) as [letter]:
        letters.drop(letter)
    strict.client("sqs").send_message(
        QueueUrl=strict.client("sqs").get_queue_url(QueueName="mustit-triggers")["QueueUrl"], MessageBody="{}"
    )
    assert take_triggers(database, settings, TriggerQueue(settings, QUEUE), utc_now).messages == 1
    relay_rules(database, settings, utc_now)
    assert different_rules(database, settings) == []
    deactivate_seller(database, SellerId("s"), utc_now())
    relay_rules(database, settings, utc_now)


def made_by(strict: StrictAws) -> set[tuple[str, str]]:
    """The actions of the calls that were made, with the resources that they were about."""
    return {
        (f"{SERVICES[service]}:{operation.removesuffix('Batch')}", _resource(operation, about))
        for service, operation, about in strict.made
    }


def _resource(operation: str, about: str) -> str:
    return "*" if operation == "ListRules" else "mustit-crawler-s" if about.startswith("mustit-crawler-s") else about


def allowed(policy: dict[str, Any]) -> set[tuple[str, str]]:
    """The actions of a policy, with the names of the resources of this test that its patterns fit."""
    names = [
        ("sqs", "mustit-crawler-tasks.fifo"),
        ("sqs", "mustit-crawler-tasks-dlq.fifo"),
        ("sqs", "mustit-triggers"),
        ("events", "mustit-crawl-trigger"),
        ("events", "mustit-crawler-s"),
        ("events", "*"),
    ]
    return {
        (action, name)
        for statement in policy["Statement"]
        for action in statement["Action"]
        for resource in statement["Resource"]
        for service, name in names
        if action.startswith(f"{service}:")
        and (resource == name if "*" in (resource, name) else fnmatch.fnmatch(name, _name(resource)))
    }


def _name(arn: str) -> str:
    return arn.rpartition(":")[2].rpartition("/")[2]


def test_nothing_of_aws_is_imported_without_the_settings() -> None:
    """Importing boto3 costs every command, every run and the web server half a second."""
    code = """
import sys
from importlib import import_module
from typer.testing import CliRunner
from mustit_pipeline.cli.app import COMMANDS, app
assert CliRunner().invoke(app, ["--help"]).exit_code == 0
for module, _, _ in COMMANDS.values():
    import_module(f"mustit_pipeline.cli.{module}")
import mustit_pipeline.definitions, mustit_pipeline.web, mustit_pipeline.crawling.queue
print(sorted(name for name in sys.modules if name.split(".")[0] in ("boto3", "botocore", "s3transfer", "pyarrow")))
"""
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert asked.stdout.splitlines()[-1] == "[]"
