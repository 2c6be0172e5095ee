"""Events of TTL estimation, for metrics."""

from __future__ import annotations

from typing import NamedTuple

from sketch.protocol.port import Partition

__all__ = ["TtlGranted"]


class TtlGranted(NamedTuple):
    """An answer of a class was granted a TTL, in seconds; 0: it must not be kept."""

    partition: Partition
    ttl_s: float
