"""Partitions of the feed: every object belongs to one of them, for good."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

__all__ = ["PARTITIONS", "partition_of"]

PARTITIONS: Final = 4
"""Streams of each database's feed. Another number would break the order of changes."""


def partition_of(class_name: str, object_id: str) -> int:
    """Return the partition of an object's changes."""
    name = f"{class_name}/{object_id}".encode()
    return int.from_bytes(blake2b(name, digest_size=4).digest()) % PARTITIONS
