"""Random ids in bulk: reading the system's randomness is the most expensive part of an id."""

import os
import time
from uuid import UUID

_SIZE = 16
_NOISE_BITS = 80
_MARKS = (0xF << 76) | (0b11 << 62)
_VERSION_7 = (7 << 76) | (0b10 << 62)


def random_uuids(number: int) -> list[UUID]:
    """Version-4 UUIDs from one read of randomness."""
    noise = os.urandom(_SIZE * number)
    return [UUID(bytes=noise[start : start + _SIZE], version=4) for start in range(0, len(noise), _SIZE)]


def time_ordered_uuids(number: int) -> list[UUID]:
    """Version-7 UUIDs: later ones are greater, so that rows of one time are close together in a large index."""
    moment = (time.time_ns() // 1_000_000) << _NOISE_BITS
    size = _NOISE_BITS // 8
    noise = os.urandom(size * number)
    return [
        UUID(int=moment | int.from_bytes(noise[start : start + size]) & ~_MARKS | _VERSION_7)
        for start in range(0, len(noise), size)
    ]
