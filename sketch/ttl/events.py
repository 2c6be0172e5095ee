"""What is told of lives: metrics subscribe."""

from __future__ import annotations

from typing import NamedTuple

from sketch.protocol.port import Part

__all__ = ["LifeGranted"]


class LifeGranted(NamedTuple):
    """An answer of a class was granted a life of so many seconds; 0: it must not be kept."""

    part: Part
    life_s: float
