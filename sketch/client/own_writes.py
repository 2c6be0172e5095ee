"""Own writes, remembered while anything older may be in use (docs/protocol.md, "The client").

A filter that was generated before a write does not name what the write made stale. Until there is a
later one the objects written are read from the origin, so that a client sees what it wrote. Its own
copies from before are young enough for longer than that, and must not be shown either.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
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
        self._ended: dict[str, float] = {}
        self._classes_ended: dict[str, float] = {}
        self._all_ended = -math.inf

    @contextmanager
    def writing(
        self, class_name: str, ids: Sequence[str], groups: Callable[[], Iterable[str]] = tuple
    ) -> Iterator[None]:
        """Remember objects as written once a write is over, whatever came of it.

        A read beside it may come before it.

        Args:
            class_name: Their class.
            ids: The objects.
            groups: Returns the groups that may change, by then; none: all.
        """
        try:
            yield
        finally:
            names = tuple(groups()) or ("",)
            keys = [object_key(class_name, id_, name) for id_ in ids for name in names]
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
        """Return until when an answer must know what was written; minus infinity: it was not."""
        keys = [object_key(class_name, id_, group) for group in ("", *groups)]
        return max(self._all_ended, *(self._ended.get(key, -math.inf) for key in keys))

    def floor_of_class(self, class_name: str) -> float:
        """Return the same for results of queries, which any write to the class may change."""
        return self._classes_ended.get(class_name, -math.inf)

    def blur(self) -> None:
        """Let each write count for every object: groups have other names now."""
        self._all_ended = max(self._all_ended, *self._classes_ended.values(), -math.inf)

    def forget(self, before: float) -> None:
        """Forget the writes that ended before a time."""
        self._ended = {key: ended for key, ended in self._ended.items() if ended >= before}
        self._classes_ended = {n: at for n, at in self._classes_ended.items() if at >= before}
        if self._all_ended < before:
            self._all_ended = -math.inf
