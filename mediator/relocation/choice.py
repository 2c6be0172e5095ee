"""The choice of sender, receiver, partition groups and protocol of a relocation.

D-CAPE takes the choice of the largest and the smallest worker from prior work, and has no formulas
for the amount, the threshold and the comparison of costs: these are Portolan's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

__all__ = ["Pair", "choose_pair", "choose_partitions", "choose_strategy"]

_MIN_DIFFERENCE: Final = 0.2
"""Minimum difference, as a share of the larger worker's rows, to move rows unasked."""


class Pair(NamedTuple):
    """The sender, the receiver, and how many rows to move; 0: they are balanced."""

    sender: str
    receiver: str
    amount: int


def choose_pair(rows: Mapping[str, int], sender: str, receiver: str) -> Pair:
    """Choose an unset (empty) sender or receiver: the workers with most and fewest rows."""
    names = sorted(rows)
    sender = sender or max((name for name in names if name != receiver), key=rows.__getitem__)
    receiver = receiver or min((name for name in names if name != sender), key=rows.__getitem__)
    difference = rows[sender] - rows[receiver]
    balanced = difference <= _MIN_DIFFERENCE * rows[sender]
    return Pair(sender, receiver, 0 if balanced else difference // 2)


def choose_partitions(rows: Mapping[int, int], amount: int) -> Sequence[int]:
    """Return partitions with about `amount` rows: first the large ones that fit."""
    chosen, remaining = [], amount
    for partition, count in sorted(rows.items(), key=lambda item: (-item[1], item[0])):
        if count <= remaining:
            chosen.append(partition)
            remaining -= count
    # Adding a partition larger than the remainder comes closer to the amount than adding none if it
    # is smaller than twice the remainder.
    unchosen = [partition for partition in rows if partition not in chosen]
    smallest = min(unchosen, key=lambda partition: (rows[partition], partition), default=None)
    if smallest is not None and rows[smallest] < 2 * remaining:
        chosen.append(smallest)
    return sorted(chosen)


def choose_strategy(
    rows: Mapping[str, int], receivers_states: Sequence[str], repeated: int
) -> Literal["ptlb", "mslb"]:
    """Compare the rows moved and recomputed at once with those made twice for a window.

    Args:
        rows: Rows of the partitions at the sender, by state.
        repeated: Rows that tuples arriving in a window would make twice.
    """
    moved = sum(count for state, count in rows.items() if state in receivers_states)
    discarded = sum(count for state, count in rows.items() if state not in receivers_states)
    # The rows that a plan derives are unknown beforehand: assume as many as in the other plan.
    unmatched = set(receivers_states) - rows.keys()
    recomputed = discarded if unmatched else 0
    return "mslb" if moved + recomputed <= repeated else "ptlb"
