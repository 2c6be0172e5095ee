"""Exhaustive breadth-first search of a state machine."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

__all__ = ["SearchResult", "Transition", "search"]

S = TypeVar("S")


class Transition(Protocol):
    """A move of a state machine: its label, the state after it, whether it breaks a guarantee."""

    @property
    def label(self) -> str: ...
    @property
    def state(self) -> Any: ...
    @property
    def broken(self) -> bool: ...


M = TypeVar("M", bound=Transition)


class SearchResult(NamedTuple, Generic[M]):
    """The number of visited states, and the moves to a broken guarantee, if there is one."""

    states: int
    broken: tuple[M, ...]

    @property
    def path(self) -> tuple[str, ...]:
        return tuple(move.label for move in self.broken)


def search(
    first: S,
    moves: Callable[[S], Iterable[M]],
    canonical: Callable[[S], S] = lambda state: state,
    max_states: int = 10_000_000,
) -> SearchResult[M]:
    """Visit all states, up to `max_states`, until a move breaks a guarantee.

    States with the same canonical form are the same state; `first` must be canonical.
    """
    gc.disable()  # there are no cycles here, and collection takes a third of the time
    try:
        return _search(first, moves, canonical, max_states)
    finally:
        gc.enable()


def _search(
    first: S, moves: Callable[[S], Iterable[M]], canonical: Callable[[S], S], max_states: int
) -> SearchResult[M]:
    predecessors: dict[S, S | None] = {first: None}
    queue = deque([first])
    while queue:
        state = queue.popleft()
        for move in moves(state):
            if move.broken:
                states = [state]
                while (before := predecessors[states[-1]]) is not None:
                    states.append(before)
                return SearchResult(len(predecessors), _path(moves, canonical, states[::-1]))
            after = canonical(move.state)
            if after not in predecessors:
                predecessors[after] = state
                queue.append(after)
        assert len(predecessors) <= max_states, "the model has more states than expected"
    return SearchResult(len(predecessors), ())


def _path(
    moves: Callable[[S], Iterable[M]], canonical: Callable[[S], S], states: list[S]
) -> tuple[M, ...]:
    """Repeat the moves without canonical forms, so that participants keep their numbers."""
    path: list[M] = []
    state, *remaining = states
    for target in remaining:
        path.append(next(move for move in moves(state) if canonical(move.state) == target))
        state = path[-1].state
    return (*path, next(move for move in moves(state) if move.broken))
