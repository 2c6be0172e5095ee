"""Inconsistency windows: for how long each server hides a write, drawn for every write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Protocol

__all__ = ["Constant", "PerServer", "Uniform", "Windows"]


class Windows(Protocol):
    """The staleness generator of the paper."""

    def draw(self, servers: Sequence[str]) -> Mapping[str, float]:
        """Return the window of each server for one write, in seconds, none of them negative."""


class Constant:
    """The same window everywhere, always; the only generator of the paper."""

    def __init__(self, seconds: float) -> None:
        self._seconds = _checked(seconds)

    def draw(self, servers: Sequence[str]) -> Mapping[str, float]:
        """Return that window for all servers."""
        return dict.fromkeys(servers, self._seconds)


class Uniform:
    """Windows between two bounds, so that a later write may overtake an earlier one."""

    def __init__(self, least_s: float, most_s: float, seed: int) -> None:
        self._least_s, self._most_s = _checked(least_s), _checked(most_s)
        self._random = Random(seed)  # noqa: S311 - to be repeated, not to be secret

    def draw(self, servers: Sequence[str]) -> Mapping[str, float]:
        """Return a window for each server."""
        return {name: self._random.uniform(self._least_s, self._most_s) for name in servers}


class PerServer:
    """A window of its own for each server; none for those that are not named."""

    def __init__(self, seconds: Mapping[str, float]) -> None:
        self._seconds = {name: _checked(window) for name, window in seconds.items()}

    def draw(self, servers: Sequence[str]) -> Mapping[str, float]:
        """Return the windows."""
        return {name: self._seconds.get(name, 0.0) for name in servers}


def _checked(seconds: float) -> float:
    if not seconds >= 0:
        raise ValueError("a window is a time that is not negative")
    return seconds
