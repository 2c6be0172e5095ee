"""Aligning what is read of several inputs by time, so that no backlog makes tuples late."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import merge
from itertools import accumulate
from math import inf
from operator import itemgetter
from typing import NamedTuple

from mediator.standing.results import LoggedTuple

__all__ = ["InputPage", "aligned"]


class InputPage(NamedTuple):
    """What was read of an input: a stream, or the classes of a database.

    Attributes:
        tuples: In the order of the input.
        until_s: Up to which time it was read, in seconds since 1970, if more of it is waiting: the
            latest of what was read, also of what made no tuple; infinity: nothing is waiting.
    """

    tuples: Sequence[LoggedTuple]
    until_s: float


def aligned(pages: Sequence[InputPage], watermark_s: float) -> list[LoggedTuple]:
    """Merge pages of inputs by time; each keeps its own order.

    Where more of an input is waiting, tuples of others that are later than what was read of it wait
    as well: they would raise the watermark above what is not read yet.

    Args:
        pages: What was read, by input.
        watermark_s: The present watermark. An input that was read up to an earlier time is late
            anyway, and nothing waits for it.
    """
    # By the latest time so far: a stream may have tuples that are earlier than those before.
    timed = [
        list(zip(accumulate((each.time_s for each in page.tuples), max), page.tuples, strict=True))
        for page in pages
    ]
    ends = (page.until_s for page in pages)
    until_s = min((end_s for end_s in ends if end_s >= watermark_s), default=inf)
    return [each for time_s, each in merge(*timed, key=itemgetter(0)) if time_s <= until_s]
