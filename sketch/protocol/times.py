"""Times of the server's sketch, in microseconds."""

from __future__ import annotations

from math import isfinite
from typing import Final

from sketch.protocol.port import SketchLimits

__all__ = ["AGAINS", "again_step_us", "granted_us", "lifetime_us", "microseconds"]

AGAINS: Final = 4
"""Repeated purges are put off to the next of so many instants in each `purge_again_s`."""


def microseconds(seconds: float) -> int:
    """Round seconds to microseconds."""
    return round(seconds * 1_000_000)


def lifetime_us(limits: SketchLimits) -> int:
    """Return after which time no copy that was ever handed out is alive."""
    return limits.layers * microseconds(limits.longest_ttl_s) + microseconds(limits.margin_s)


def granted_us(limits: SketchLimits, ttl_s: float) -> int:
    """Return the life that may be given to an answer at most; 0 for what makes no sense."""
    if not isfinite(ttl_s) or ttl_s <= 0:
        return 0
    return microseconds(min(ttl_s, limits.longest_ttl_s))


def again_step_us(limits: SketchLimits) -> int:
    """Return the distance between the instants to which repeated purges are put off."""
    return max(1, microseconds(limits.purge_again_s or 0.0) // AGAINS)
