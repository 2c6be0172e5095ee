"""Alignment of several inputs by time, so that no backlog makes tuples late."""

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
    """A page read from an input: a stream, or the classes of a database.

    Attributes:
        tuples: In the input's order.
        until_s: If more is waiting, the latest time read, in seconds since 1970, including changes
            that made no tuple; infinity: nothing is waiting.
    """

    tuples: Sequence[LoggedTuple]
    until_s: float


def aligned(pages: Sequence[InputPage], watermark_s: float) -> list[LoggedTuple]:
    """Merge pages of inputs by time; each input keeps its order.

    If more of an input is waiting, tuples of other inputs that are later than its page also wait:
    they would raise the watermark above tuples not read yet.

    Args:
        pages: One per input.
        watermark_s: The current watermark. An input read up to an earlier time is late anyway, so
            nothing waits for it.
    """
    # By the latest time so far: a stream may have tuples out of order.
    timed = [
        list(zip(accumulate((item.time_s for item in page.tuples), max), page.tuples, strict=True))
        for page in pages
    ]
    ends = (page.until_s for page in pages)
    until_s = min((end_s for end_s in ends if end_s >= watermark_s), default=inf)
    return [item for time_s, item in merge(*timed, key=itemgetter(0)) if time_s <= until_s]
