"""What a relocation needs of the state that it moves, and how a receiver takes a group in.

Nothing here knows of joins. A state has an id, which says what it holds wherever it is kept; some
states are derived from others, and can be made anew from them. So states may be those of a plan, or
records of a store with their index and their views.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from mediator.relocation.messages import Group, Routed

__all__ = ["Adopted", "States", "adopt"]


class States(Protocol):
    """The states of one worker, divided by partition."""

    @property
    def ids(self) -> Sequence[str]:
        """The ids of all states, each behind those that it is derived from."""

    @property
    def shape(self) -> Mapping[str, Sequence[str]]:
        """What is derived, and from what: the plan, in a form that can be kept."""

    def reshape(self, shape: Mapping[str, Sequence[str]]) -> None:
        """Go on with another plan: what it derives anew is made from what there is."""

    def cheaper_shape(self, watermark_s: float) -> Mapping[str, Sequence[str]] | None:
        """Return a plan that is worth a change, by what arrived last; None: there is none."""

    def insert(self, partition: int, routed: Routed) -> Iterable[Any]:
        """Keep a tuple, and return the results that it makes; not those of new tuples only."""

    def install(self, partition: int, state: str, rows: Sequence[Any]) -> int:
        """Keep rows of a state without making results; return how many."""

    def recompute(self, partition: int, state: str) -> int:
        """Make a derived state from what the partition holds, without results; return its rows."""

    def restore(self, partition: int, processed: Iterable[Routed]) -> None:
        """Keep tuples that were inserted before, and derive the other states, without results."""

    def export(self, partition: int) -> Mapping[str, list[Any]]:
        """Return the rows of every state that a partition has."""

    def drop(self, partition: int) -> None:
        """Forget a partition."""

    def rows(self, partition: int) -> Mapping[str, int]:
        """Return how many rows each state of a partition has."""

    def arriving(self, partition: int, watermark_s: float) -> int:
        """Return how many tuples would arrive within a window, by the latest of them."""

    @property
    def work(self) -> int:
        """Rows that were kept or joined."""

    def purge(self, partition: int, watermark_s: float) -> None:
        """Drop what no tuple from the watermark on can join."""

    def begin(self, partition: int, relocation: int) -> None:
        """Take all that a partition holds for old, and what is inserted by its flag."""

    def end(self, partition: int) -> None:
        """Make no difference between old and new any more."""

    def holds_old(self, partition: int, watermark_s: float) -> bool:
        """Say whether any state, derived ones too, has an old row that may still be joined."""


class Adopted(NamedTuple):
    """Rows that were taken over, had no state here, and were made anew."""

    moved: int
    discarded: int
    recomputed: int


def adopt(states: States, group: Group) -> Adopted:
    """Take a partition group in: match states by id, and recompute, bottom-up, what had no match.

    What is recomputed are pairs that the sender has joined already, so nothing is emitted (D-CAPE,
    section 4).
    """
    moved = recomputed = 0
    # In this order each state finds those that it is derived from, shipped or recomputed.
    for state in states.ids:
        if state in group.states:
            moved += states.install(group.partition, state, group.states[state])
        else:
            recomputed += states.recompute(group.partition, state)
    unmatched = group.states.keys() - set(states.ids)
    discarded = sum(len(group.states[state]) for state in unmatched)
    return Adopted(moved, discarded, recomputed)
