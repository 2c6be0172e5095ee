"""Many writes in few round trips: calls of one shape go as one pipeline."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final

from mediator.stores.port import Write
from mediator.stores.postgres.write.shape import WriteShape, shape_of

__all__ = ["Batch", "batches"]


_TOGETHER: Final = 128
"""Writes in one transaction: each holds a lock, of which a server has 6,400 as it comes."""


@dataclass(slots=True)
class Batch:
    """Writes of one shape, with their positions among all."""

    shape: WriteShape
    calls: list[tuple[int, Write]] = field(default_factory=list)

    def chunks(self) -> list[list[tuple[int, Write]]]:
        """Divide into transactions; a record's calls keep their order."""
        return [self.calls[i : i + _TOGETHER] for i in range(0, len(self.calls), _TOGETHER)]


def batches(calls: Sequence[Write], token: str = "") -> list[Batch]:
    """Divide calls into batches which, run one after the other, keep the order of each record.

    A call joins the last batch of its shape, unless a later batch holds a call on its record.
    Writes that insert are at most one to a record in a batch: one that must be tried again, because
    a concurrent insert was faster, must not be overtaken.
    """
    divided: list[Batch] = []
    open_: dict[WriteShape, int] = {}
    last: dict[Hashable, int] = {}
    for position, call in enumerate(calls):
        shape, key = shape_of(call, token), (call.fragment, call.id)
        earliest = last.get(key, -1) + (1 if shape.whole else 0)
        at = open_.get(shape, -1)
        if at < max(earliest, 0):
            at = open_[shape] = len(divided)
            divided.append(Batch(shape))
        divided[at].calls.append((position, call))
        last[key] = at
    return divided
