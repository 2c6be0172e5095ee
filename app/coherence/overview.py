"""The state of the sketch, for operators."""

from __future__ import annotations

import secrets
from typing import Any, Final

from sketch.filter.bloom import BloomFilter
from sketch.filter.shape import FilterShape, false_positive_rate
from sketch.protocol.port import FilterSnapshot, SketchPartitionState

__all__ = ["MAX_PARTITIONS", "describe", "measured_false_positives"]

MAX_PARTITIONS: Final = 1_000
"""Maximum of partitions in an overview."""
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
        "revalidate_all_for_s": max(0.0, _seconds_until(state.revalidate_all_until_us, state)),
        "uncacheable_for_s": max(0.0, _seconds_until(state.uncacheable_until_us, state)),
        "purges": _purges(state),
        "bytes": state.bytes,
    }


def measured_false_positives(snapshot: FilterSnapshot) -> float:
    """Return the share of random keys, which were never inserted, that the filter contains."""
    nonce = secrets.token_hex(16)
    keys = [f"{nonce}/{number}" for number in range(_SAMPLES)]
    return float(BloomFilter.from_bits(snapshot.shape, snapshot.bits).contains_many(keys).mean())


def _pending(state: SketchPartitionState, lease_s: float) -> dict[str, Any]:
    ends_in_s = (
        None if state.first_lease_us is None else _seconds_until(state.first_lease_us, state)
    )
    oldest_s = None if ends_in_s is None else lease_s - ends_in_s
    return {"writes": state.pending, "oldest_s": oldest_s, "first_lease_ends_in_s": ends_in_s}


def _purges(state: SketchPartitionState) -> dict[str, Any]:
    first_due_us = state.first_purge_us
    overdue_s = None if first_due_us is None else max(0.0, -_seconds_until(first_due_us, state))
    return {"keys": state.purges, "due": state.purges_due, "oldest_due_s": overdue_s}


def _seconds_until(time_us: int, state: SketchPartitionState) -> float:
    return (time_us - state.time_us) / 1_000_000
