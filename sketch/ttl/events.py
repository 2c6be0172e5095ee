"""What is told of lives: metrics subscribe."""

from __future__ import annotations

from typing import NamedTuple

from sketch.protocol.port import Partition

__all__ = ["TtlGranted"]


class TtlGranted(NamedTuple):
    """An answer of a class was granted a life of so many seconds; 0: it must not be kept."""

    partition: Partition
    life_s: float
