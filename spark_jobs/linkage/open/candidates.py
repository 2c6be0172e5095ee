"""All pairs of blocks of records, each pair once: where several rules find it, by the first.

Records come sorted by rule and key. A record brings its keys under all rules (0: no block), so that
whether an earlier rule finds a pair as well is seen on the pair itself, and nothing has to be made
distinct afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

from spark_jobs.linkage.open.strings import Rows

__all__ = ["Blocked", "Candidates", "candidates"]

_PAIRS: Final = 500_000


@dataclass(frozen=True, slots=True)
class Blocked:
    """Records in the order of their blocks.

    Attributes:
        rule: By which rule a record stands here.
        keys: Its keys under all rules, shape (records, rules).
        source: Number of the table it is from.
        known: Whether its cluster is known.
        within: Whether records of one table are compared.
    """

    rule: NDArray[np.int8]
    keys: Rows
    source: NDArray[np.int16]
    known: NDArray[np.bool_]
    within: bool


@dataclass(frozen=True, slots=True)
class Candidates:
    """Pairs to be compared: rows i and j, and for each the rules that find it as bits."""

    i: Rows
    j: Rows
    rules: Rows


def candidates(records: Blocked) -> Iterator[Candidates]:
    """All pairs, in parts of bounded size."""
    i, j, rules = (np.empty(_PAIRS, np.int64) for _ in range(3))
    at, other = 0, 1
    while at < len(records.rule):
        count, at, other = _fill(
            records.rule,
            records.keys,
            records.source,
            records.known,
            records.within,
            at,
            other,
            i,
            j,
            rules,
        )
        if count:
            yield Candidates(i[:count].copy(), j[:count].copy(), rules[:count].copy())


@njit(cache=True, nogil=True)
def _fill(
    rule: Any,
    keys: Any,
    source: Any,
    known: Any,
    within: bool,
    at: int,
    other: int,
    i: Any,
    j: Any,
    rules: Any,
) -> Any:
    """Fill i, j and rules; return how many pairs there are, and where to go on."""
    count = 0
    while at < len(rule):
        r = rule[at]
        while other < len(rule) and rule[other] == r and keys[other, r] == keys[at, r]:
            if (within or source[at] != source[other]) and not (known[at] and known[other]):
                mask = _shared(keys, at, other)
                if mask & ((1 << r) - 1) == 0:
                    i[count], j[count], rules[count] = at, other, mask
                    count += 1
            other += 1
            if count == len(i):
                return count, at, other
        at += 1
        other = at + 1
    return count, at, other


@njit(cache=True, nogil=True)
def _shared(keys: Any, at: int, other: int) -> int:
    """The rules under which both have the same key, as bits."""
    mask = 0
    for r in range(keys.shape[1]):
        if keys[at, r] != 0 and keys[at, r] == keys[other, r]:
            mask |= 1 << r
    return mask
