"""Aligning what is read of several streams by time, so that no backlog makes tuples late."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import merge
from itertools import accumulate
from math import inf
from operator import itemgetter

from mediator.standing.results import LoggedTuple

__all__ = ["aligned"]


def aligned(
    inputs: Sequence[Sequence[LoggedTuple]], page: int, watermark_s: float
) -> list[LoggedTuple]:
    """Merge pages of streams by time; each keeps its own order.

    Where a page is full, more of its stream may be waiting. Tuples of other streams that are later
    than all of the page wait as well: they would raise the watermark above what is not read yet.

    Args:
        inputs: What was read, by stream.
        page: Tuples that were read of a stream at most.
        watermark_s: The present watermark. A page that is all below it is late anyway, and nothing
            waits for it.
    """
    # By the latest time so far: a stream may have tuples that are earlier than those before.
    timed = [
        list(zip(accumulate((each.time_s for each in some), max), some, strict=True))
        for some in inputs
    ]
    ends = [some[-1][0] for some in timed if len(some) >= page]
    until_s = min((end_s for end_s in ends if end_s >= watermark_s), default=inf)
    return [each for time_s, each in merge(*timed, key=itemgetter(0)) if time_s <= until_s]
