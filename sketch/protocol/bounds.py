"""Bounds of one call of the server's sketch: its keys and versions, and the times it may grant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Final

from sketch.protocol.port import Partition, Purge, SketchLimits, SketchUnavailable

__all__ = [
    "AGAINS",
    "again_step_us",
    "by_partition",
    "checked",
    "checked_keys",
    "granted_us",
    "known_versions",
    "lifetime_us",
    "microseconds",
]

KEYS_AT_ONCE: Final = 5_000
KEY_BYTES: Final = 4_096
_HIGHEST_VERSION: Final = 2**53 - 1


def checked(text: str) -> str:
    """Return a key or token.

    Raises:
        SketchUnavailable: It is too long, or no text that has a form in UTF-8.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise SketchUnavailable("A key of the sketch is not UTF-8.") from None
    if size > KEY_BYTES:
        raise SketchUnavailable(f"A key of the sketch is longer than {KEY_BYTES} bytes.")
    return text


def checked_keys(keys: Sequence[str]) -> tuple[str, ...]:
    """Return the keys of one call.

    Raises:
        SketchUnavailable: They are too many, or one of them is none.
    """
    if len(keys) > KEYS_AT_ONCE:
        raise SketchUnavailable(f"The sketch takes at most {KEYS_AT_ONCE} keys at once.")
    return tuple(map(checked, keys))


def known_versions(versions: Mapping[str, int]) -> dict[str, int]:
    """Return the versions that are kept; a version beyond counts as unknown.

    Raises:
        SketchUnavailable: They are too many, or one is of no key.
    """
    checked_keys(tuple(versions))
    return {key: v for key, v in versions.items() if 0 < v <= _HIGHEST_VERSION}


def by_partition(purges: Iterable[Purge]) -> dict[Partition, list[Purge]]:
    """Group purges by their partition."""
    partitions: dict[Partition, list[Purge]] = {}
    for purge in purges:
        partitions.setdefault(purge.partition, []).append(purge)
    return partitions


AGAINS: Final = 4
"""Repeated purges are put off to the next of so many instants in each `purge_again_s`."""


def microseconds(seconds: float) -> int:
    """Round seconds to microseconds."""
    return round(seconds * 1_000_000)


def lifetime_us(limits: SketchLimits) -> int:
    """Return after which time no copy that was ever handed out is alive."""
    return limits.layers * microseconds(limits.longest_ttl_s) + microseconds(limits.margin_s)


def granted_us(limits: SketchLimits, ttl_s: float) -> int:
    """Return the TTL that an answer may be granted at most; 0 for what makes no sense."""
    if not isfinite(ttl_s) or ttl_s <= 0:
        return 0
    return microseconds(min(ttl_s, limits.longest_ttl_s))


def again_step_us(limits: SketchLimits) -> int:
    """Return the distance between the instants to which repeated purges are put off."""
    return max(1, microseconds(limits.purge_again_s or 0.0) // AGAINS)
