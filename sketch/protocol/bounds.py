"""Bounds of one call of the server's sketch: its keys, its versions, and the TTLs it grants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Final

from sketch.protocol.port import Partition, Purge, SketchLimits, SketchUnavailable

__all__ = [
    "KEYS_AT_ONCE",
    "REPEAT_INSTANTS",
    "by_partition",
    "checked",
    "checked_keys",
    "granted_us",
    "known_versions",
    "lifetime_us",
    "microseconds",
    "repeat_step_us",
]

KEYS_AT_ONCE: Final = 5_000
"""The maximum of keys in one call: its script blocks the server."""

KEY_BYTES: Final = 4_096
# Lua's numbers are doubles: a larger version would not be exact in Redis.
_MAX_VERSION: Final = 2**53 - 1


def checked(text: str) -> str:
    """Return a key or token; raises `SketchUnavailable` if it is too long, or not valid UTF-8."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise SketchUnavailable("A key of the sketch is not UTF-8.") from None
    if size > KEY_BYTES:
        raise SketchUnavailable(f"A key of the sketch is longer than {KEY_BYTES} bytes.")
    return text


def checked_keys(keys: Sequence[str]) -> tuple[str, ...]:
    """Return the keys of one call; raises `SketchUnavailable` if they are too many."""
    if len(keys) > KEYS_AT_ONCE:
        raise SketchUnavailable(f"The sketch takes at most {KEYS_AT_ONCE} keys at once.")
    return tuple(map(checked, keys))


def known_versions(versions: Mapping[str, int]) -> dict[str, int]:
    """Return the versions that are stored; a greater one counts as unknown.

    Raises:
        SketchUnavailable: They are too many, or a key is invalid.
    """
    checked_keys(tuple(versions))
    return {key: v for key, v in versions.items() if 0 < v <= _MAX_VERSION}


def by_partition(purges: Iterable[Purge]) -> dict[Partition, list[Purge]]:
    partitions: dict[Partition, list[Purge]] = {}
    for purge in purges:
        partitions.setdefault(purge.partition, []).append(purge)
    return partitions


REPEAT_INSTANTS: Final = 4
"""Repeated purges are delayed to the next of this many instants in each `purge_repeat_s`."""


def microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)


def lifetime_us(limits: SketchLimits) -> int:
    """Return the time after which no copy ever handed out is fresh (microseconds)."""
    current = limits.layers * microseconds(limits.max_ttl_s) + microseconds(limits.margin_s)
    return max(current, microseconds(limits.earlier_lifetime_s))


def granted_us(limits: SketchLimits, ttl_s: float) -> int:
    """Return the longest TTL that may be granted; 0 for one that is not a positive number."""
    if not isfinite(ttl_s) or ttl_s <= 0:
        return 0
    return microseconds(min(ttl_s, limits.max_ttl_s))


def repeat_step_us(limits: SketchLimits) -> int:
    return max(1, microseconds(limits.purge_repeat_s or 0.0) // REPEAT_INSTANTS)
