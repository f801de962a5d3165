"""Random ids in bulk."""

import uuid

import pytest

from mustit_pipeline.foundation.random_ids import random_uuids


@pytest.mark.parametrize("number", [0, 1, 5000])
def test_as_many_distinct_version_4_uuids_come_as_are_asked_for(number: int) -> None:
    made = random_uuids(number)

    assert len(made) == len(set(made)) == number
    assert {(one.version, one.variant) for one in made} <= {(4, uuid.RFC_4122)}


def test_two_reads_share_no_id() -> None:
    assert not set(random_uuids(1000)) & set(random_uuids(1000))
