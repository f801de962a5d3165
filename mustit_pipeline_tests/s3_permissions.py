"""The calls that reach a simulated S3, as the permissions that they need, compared with a policy."""

import logging
import re
from collections.abc import Generator, Set
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

# As moto's web server logs it.
CALL = re.compile(r"(GET|HEAD|PUT|POST|DELETE) (\S+) HTTP")


@contextmanager
def just_what_is_allowed(policy: dict[str, Any], log: pytest.LogCaptureFixture) -> Generator[None]:
    """At the end every call has been one that the policy allows, and every action of it has been needed."""
    with log.at_level(logging.INFO, logger="werkzeug"):
        yield
    told = [record.getMessage() for record in log.records if record.name == "werkzeug"]
    needed = {_needed(*found.groups()) for line in told if (found := CALL.search(line)) is not None}
    allowed = [
        (action, resource.removeprefix("arn:aws:s3:::"))
        for statement in policy["Statement"]
        for action in statement["Action"]
        for resource in statement["Resource"]
    ]
    refused = [
        (action, about)
        for action, about in needed
        # Which objects are deleted together stands in the body.
        if not any(action == known and (not about or fnmatchcase(about, pattern)) for known, pattern in allowed)
    ]
    assert refused == []
    assert {action for action, _ in needed} == {action for action, _ in allowed}


def _needed(method: str, address: str) -> tuple[str, str]:
    """The action that IAM looks for in a policy, and the resource that the call is about."""
    url = urlsplit(address)
    about = url.path.strip("/")
    action = _action(method, bool(about.partition("/")[2]), parse_qs(url.query, keep_blank_values=True).keys())
    return action, "" if method == "POST" and action == "s3:DeleteObject" else about


def _action(method: str, is_object: bool, asked: Set[str]) -> str:
    if not is_object:
        if method == "POST" and "delete" in asked:
            return "s3:DeleteObject"
        return "s3:ListBucketMultipartUploads" if "uploads" in asked else "s3:ListBucket"
    if method == "DELETE":
        return "s3:AbortMultipartUpload" if "uploadId" in asked else "s3:DeleteObject"
    return "s3:PutObject" if method in ("PUT", "POST") else "s3:GetObject"
