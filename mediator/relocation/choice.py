"""Who gives partition groups to whom, how many, and by which protocol.

D-CAPE takes the largest and the smallest worker from prior work, and has no formula for the rest.
So the amount, the threshold and the comparison of costs are Portolan's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

__all__ = ["Pair", "choose_pair", "choose_partitions", "choose_strategy"]

_LEAST_DIFFERENCE: Final = 0.2
"""Of the larger worker's rows: below it nothing is moved unless somebody asks for an amount."""


class Pair(NamedTuple):
    """The sender, the receiver, and how many rows are to be moved; 0: they are balanced."""

    sender: str
    receiver: str
    amount: int


def choose_pair(held: Mapping[str, int], sender: str, receiver: str) -> Pair:
    """Choose whom nobody has chosen (empty): the workers with most and with fewest rows."""
    names = sorted(held)
    sender = sender or max((each for each in names if each != receiver), key=held.__getitem__)
    receiver = receiver or min((each for each in names if each != sender), key=held.__getitem__)
    difference = held[sender] - held[receiver]
    balanced = difference <= _LEAST_DIFFERENCE * held[sender]
    return Pair(sender, receiver, 0 if balanced else difference // 2)


def choose_partitions(rows: Mapping[int, int], amount: int) -> Sequence[int]:
    """Return partitions whose rows come close to an amount: the large ones that fit, first."""
    chosen, left = [], amount
    for partition, count in sorted(rows.items(), key=lambda each: (-each[1], each[0])):
        if count <= left:
            chosen.append(partition)
            left -= count
    # One that is larger than what is left is nearer to it than none, if by less than half.
    rest = [each for each in rows if each not in chosen]
    smallest = min(rest, key=lambda each: (rows[each], each), default=None)
    if smallest is not None and rows[smallest] < 2 * left:
        chosen.append(smallest)
    return sorted(chosen)


def choose_strategy(
    rows: Mapping[str, int], receivers_states: Sequence[str], repeated: int
) -> Literal["ptlb", "mslb"]:
    """Compare rows: moved and recomputed at once, or made twice for a window.

    Args:
        rows: What the partitions have at the sender, by state.
        repeated: What tuples that arrive in a window make of them.
    """
    moved = sum(count for state, count in rows.items() if state in receivers_states)
    discarded = sum(count for state, count in rows.items() if state not in receivers_states)
    # What a plan derives is not known before it is derived: as much as the other plan does.
    unmatched = set(receivers_states) - rows.keys()
    recomputed = discarded if unmatched else 0
    return "mslb" if moved + recomputed <= repeated else "ptlb"
