"""Own writes, remembered until a filter that knows of them is in use (COHERENCE.md, "The client").

A filter that was generated before a write does not name what the write made stale. Until there is a
later one the objects written are read from the origin, so that a client sees what it wrote.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from sketch.client.clock import Clock
from sketch.client.resources import object_key

__all__ = ["OwnWrites"]

_KEYS = 10_000
"""Keys that are told apart; beyond, every object counts as written."""


class OwnWrites:
    """Which groups of which objects were written, and when.

    Args:
        clock: The client's clock.
        limit: Keys that are told apart.
    """

    def __init__(self, clock: Clock, limit: int = _KEYS) -> None:
        self._clock = clock
        self._limit = limit
        self._under_way: Counter[str] = Counter()
        self._ended: dict[str, float] = {}
        self._classes_under_way: Counter[str] = Counter()
        self._classes_ended: dict[str, float] = {}
        self._all_ended = -math.inf

    @contextmanager
    def writing(
        self, class_name: str, ids: Sequence[str], groups: Iterable[str] = ()
    ) -> Iterator[None]:
        """Remember objects as written, from now on and whatever comes of it.

        Args:
            class_name: Their class.
            ids: The objects.
            groups: The groups that may change; none: all.
        """
        names = tuple(groups) or ("",)
        keys = [object_key(class_name, id_, group) for id_ in ids for group in names]
        self._under_way.update(keys)
        self._classes_under_way[class_name] += 1
        try:
            yield
        finally:
            self._classes_under_way[class_name] -= 1
            self._under_way.subtract(keys)
            self._under_way += Counter()
            self._note(class_name, keys)

    def doubt(self, class_name: str, id_: str) -> None:
        """Take an object for written, by whomever: copies that were made before do no more."""
        self._note(class_name, [object_key(class_name, id_, "")])

    def _note(self, class_name: str, keys: Sequence[str]) -> None:
        now = self._clock()
        self._classes_ended[class_name] = now
        self._ended.update(dict.fromkeys(keys, now))
        if len(self._ended) > self._limit:
            self._ended.clear()
            self._all_ended = now

    def floor(self, class_name: str, id_: str, groups: Iterable[str]) -> float:
        """Return the time after which an answer must have been asked for.

        Returns:
            Minus infinity if nothing of the object was written, infinity while it is.
        """
        keys = [object_key(class_name, id_, group) for group in ("", *groups)]
        if any(key in self._under_way for key in keys):
            return math.inf
        return max(self._all_ended, *(self._ended.get(key, -math.inf) for key in keys))

    def floor_of_class(self, class_name: str) -> float:
        """Return the same for results of queries, which any write to the class may change."""
        if self._classes_under_way[class_name]:
            return math.inf
        return self._classes_ended.get(class_name, -math.inf)

    def forget(self, born: float) -> None:
        """Forget the writes that ended before a filter was generated.

        Args:
            born: The earliest time at which the filter can have been generated.
        """
        self._ended = {key: ended for key, ended in self._ended.items() if ended >= born}
        self._classes_ended = {n: at for n, at in self._classes_ended.items() if at >= born}
        if self._all_ended < born:
            self._all_ended = -math.inf
