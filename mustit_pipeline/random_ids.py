"""Random ids in bulk: asking the system for randomness costs more than everything else about an id."""

import os
from uuid import UUID

_SIZE = 16


def random_uuids(number: int) -> list[UUID]:
    """So many version-4 UUIDs from one read."""
    noise = os.urandom(_SIZE * number)
    return [UUID(bytes=noise[start : start + _SIZE], version=4) for start in range(0, len(noise), _SIZE)]
