"""The union of several partitions' filters."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import numpy as np

from sketch.filter.shape import FilterShape
from sketch.protocol.port import FilterSnapshot

__all__ = ["NO_GENERATION", "full_bits", "unite"]

NO_GENERATION: Final = "0" * 32
_REVISION_BYTES: Final = 8


def full_bits(shape: FilterShape) -> bytes:
    return b"\xff" * (shape.bits // 8)


def unite(snapshots: Sequence[FilterSnapshot]) -> FilterSnapshot:
    """Return the union of filters of one shape, with the earliest of their times."""
    if len(snapshots) == 1:
        return snapshots[0]
    shape = snapshots[0].shape
    all_stale = any(s.revalidate_all for s in snapshots)
    identity = "".join(f"{s.generation}{s.revision}." for s in snapshots)
    return FilterSnapshot(
        shape=shape,
        bits=full_bits(shape) if all_stale else _join(snapshots),
        time_us=min(s.time_us for s in snapshots),
        generation=_digest("".join(s.generation for s in snapshots), 16).hex(),
        # A digest, not a sum: two replicas that read the same partitions at once may see different
        # changes, but equally many.
        revision=int.from_bytes(_digest(identity, _REVISION_BYTES)),
        revalidate_all=all_stale,
    )


def _join(snapshots: Sequence[FilterSnapshot]) -> bytes:
    bits = np.frombuffer(snapshots[0].bits, dtype=np.uint8).copy()
    for snapshot in snapshots[1:]:
        bits |= np.frombuffer(snapshot.bits, dtype=np.uint8)
    return bits.tobytes()


def _digest(text: str, size: int) -> bytes:
    return blake2b(text.encode(), digest_size=size).digest()
