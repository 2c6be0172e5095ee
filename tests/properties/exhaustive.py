"""Exhaustive search of a state machine: all states are visited, the nearest first."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

__all__ = ["Found", "Transition", "search"]

S = TypeVar("S")


class Transition(Protocol):
    """A move of a state machine: what happens, the state after it, whether that breaks it."""

    @property
    def what(self) -> str: ...
    @property
    def state(self) -> Any: ...
    @property
    def broken(self) -> bool: ...


M = TypeVar("M", bound=Transition)


class Found(NamedTuple, Generic[M]):
    """How many states there are, and the moves that lead to a broken guarantee, if there is one."""

    states: int
    broken: tuple[M, ...]

    @property
    def path(self) -> tuple[str, ...]:
        return tuple(move.what for move in self.broken)


def search(
    first: S,
    moves: Callable[[S], Iterable[M]],
    canonical: Callable[[S], S] = lambda state: state,
    most: int = 10_000_000,
) -> Found[M]:
    """Visit all states, up to `most`, until a move is broken.

    States of one canonical form are the same, and only that one is visited; `first` is its own.
    """
    gc.disable()  # nothing here is a cycle, and looking for some takes a third of the time
    try:
        return _search(first, moves, canonical, most)
    finally:
        gc.enable()


def _search(
    first: S, moves: Callable[[S], Iterable[M]], canonical: Callable[[S], S], most: int
) -> Found[M]:
    predecessors: dict[S, S | None] = {first: None}
    queue = deque([first])
    while queue:
        state = queue.popleft()
        for move in moves(state):
            if move.broken:
                states = [state]
                while (before := predecessors[states[-1]]) is not None:
                    states.append(before)
                return Found(len(predecessors), _path(moves, canonical, states[::-1]))
            after = canonical(move.state)
            if after not in predecessors:
                predecessors[after] = state
                queue.append(after)
        assert len(predecessors) <= most, "the model is larger than was thought"
    return Found(len(predecessors), ())


def _path(
    moves: Callable[[S], Iterable[M]], canonical: Callable[[S], S], states: list[S]
) -> tuple[M, ...]:
    """Repeat the moves, so that participants keep their numbers from start to end."""
    path: list[M] = []
    state, *rest = states
    for following in rest:
        path.append(next(it for it in moves(state) if canonical(it.state) == following))
        state = path[-1].state
    return (*path, next(it for it in moves(state) if it.broken))
