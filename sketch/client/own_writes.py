"""Own writes, remembered while older responses may be in use (docs/protocol.md, "The client").

A filter that was generated before a write lacks the keys that the write made stale. Until a later
filter arrives, written objects are read from the origin, so that a client sees its own writes. Its
earlier copies stay young enough for longer than that, and must not be returned either.

An object counts as a whole. Only the service knows which of its groups a write changes: the time of
the last write, for example, is in a group that no request names.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sketch.client.clock import Clock
from sketch.client.resources import QueryResource, Readable

__all__ = ["OwnWrites"]

_MAX_OBJECTS = 10_000
"""Objects that are remembered separately; beyond it, every object counts as written."""


class OwnWrites:
    def __init__(self, clock: Clock, limit: int = _MAX_OBJECTS) -> None:
        self._clock = clock
        self._limit = limit
        self._ended_at: dict[tuple[str, str], float] = {}
        self._class_ended_at: dict[str, float] = {}
        self._all_ended_at = -math.inf

    @contextmanager
    def writing(self, class_name: str, ids: Sequence[str]) -> Iterator[None]:
        """Remember objects as written at the end of the block, even if it fails.

        A concurrent read may precede the write.
        """
        try:
            yield
        finally:
            self._note(class_name, ids)

    def doubt(self, class_name: str, id_: str) -> None:
        """Treat an object as written by someone: earlier copies are not used."""
        self._note(class_name, [id_])

    def _note(self, class_name: str, ids: Sequence[str]) -> None:
        now = self._clock()
        self._class_ended_at[class_name] = now
        self._ended_at.update({(class_name, id_): now for id_ in ids})
        if len(self._ended_at) > self._limit:
            self._ended_at.clear()
            self._all_ended_at = now

    def floor(self, resource: Readable) -> float:
        """Return the time up to which writes must be in a response; minus infinity: none must."""
        if isinstance(resource, QueryResource):  # any write to its class may change it
            return self._class_ended_at.get(resource.class_name, -math.inf)
        ended = self._ended_at.get((resource.class_name, resource.id), -math.inf)
        return max(self._all_ended_at, ended)

    def forget_before(self, time: float) -> None:
        """Forget writes that ended before a time: reads before them are not young."""
        self._ended_at = {key: ended for key, ended in self._ended_at.items() if ended >= time}
        self._class_ended_at = {n: at for n, at in self._class_ended_at.items() if at >= time}
        if self._all_ended_at < time:
            self._all_ended_at = -math.inf
