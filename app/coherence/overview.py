"""The state of the sketch, as operators see it."""

from __future__ import annotations

import secrets
from typing import Any, Final

from sketch.filter.bloom import BloomFilter
from sketch.filter.shape import FilterShape, false_positive_rate
from sketch.protocol.port import FilterSnapshot, SketchPartitionState

__all__ = ["MOST_PARTITIONS", "describe", "measured_false_positives"]

MOST_PARTITIONS: Final = 1_000
"""Partitions that one overview shows."""
_SAMPLES: Final = 10_000


def describe(
    state: SketchPartitionState, shape: FilterShape, snapshot: FilterSnapshot, lease_s: float
) -> dict[str, Any]:
    """Describe a partition; durations are in seconds."""
    return {
        "database": state.partition.database,
        "class": state.partition.class_name,
        "generation": state.generation,
        "revision": state.revision,
        "filter": {
            "keys": state.keys,
            "fill": state.bits_set / shape.bits,
            "false_positives_estimated": false_positive_rate(shape.bits, shape.hashes, state.keys),
            "false_positives_measured": measured_false_positives(snapshot),
        },
        "handed_out": state.handed_out,
        "pending": _pending(state, lease_s),
        "revalidate_all_for_s": max(0.0, _ahead(state.revalidate_all_until_us, state)),
        "uncacheable_for_s": max(0.0, _ahead(state.uncacheable_until_us, state)),
        "purges": _purges(state),
        "bytes": state.bytes,
    }


def measured_false_positives(snapshot: FilterSnapshot) -> float:
    """Return the share of random keys that the filter contains: none of them was ever put in."""
    nonce = secrets.token_hex(16)
    keys = [f"{nonce}/{number}" for number in range(_SAMPLES)]
    return float(BloomFilter.from_bits(snapshot.shape, snapshot.bits).contains_many(keys).mean())


def _pending(state: SketchPartitionState, lease_s: float) -> dict[str, Any]:
    ends = None if state.first_lease_us is None else _ahead(state.first_lease_us, state)
    oldest = None if ends is None else lease_s - ends
    return {"writes": state.pending, "oldest_s": oldest, "first_lease_ends_in_s": ends}


def _purges(state: SketchPartitionState) -> dict[str, Any]:
    first = state.first_purge_us
    overdue = None if first is None else max(0.0, -_ahead(first, state))
    return {"keys": state.purges, "due": state.purges_due, "oldest_due_s": overdue}


def _ahead(time_us: int, state: SketchPartitionState) -> float:
    return (time_us - state.time_us) / 1_000_000
