"""Ids made in bulk."""

import time
from uuid import RFC_4122

from mustit_pipeline.random_ids import time_ordered_uuids


def test_ids_of_a_later_time_are_greater_and_say_when_they_were_made() -> None:
    before = time.time_ns() // 1_000_000
    first = time_ordered_uuids(1000)
    time.sleep(0.002)
    later = time_ordered_uuids(1000)

    assert max(first) < min(later)
    assert len({*first, *later}) == 2000
    assert {(one.version, one.variant) for one in first} == {(7, RFC_4122)}
    assert all(before <= one.int >> 80 <= time.time_ns() // 1_000_000 for one in first)
    assert len({one.int & 0xFFFF for one in first}) > 900, "the rest is random"
