"""Own writes, remembered while anything older may be in use (docs/protocol.md, "The client").

A filter that was generated before a write does not name what the write made stale. Until there is a
later one the objects written are read from the origin, so that a client sees what it wrote. Its own
copies from before are young enough for longer than that, and must not be shown either.

An object counts as a whole. Which of its groups a write changes only the service knows: the time of
the last write, say, is in one that no request names.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sketch.client.clock import Clock
from sketch.client.resources import QueryResource, Readable

__all__ = ["OwnWrites"]

_OBJECTS = 10_000
"""Objects that are remembered separately; beyond, every object counts as written."""


class OwnWrites:
    def __init__(self, clock: Clock, limit: int = _OBJECTS) -> None:
        self._clock = clock
        self._limit = limit
        self._ended: dict[tuple[str, str], float] = {}
        self._classes_ended: dict[str, float] = {}
        self._all_ended = -math.inf

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
        """Treat an object as written, by anyone: copies that were made before are not used."""
        self._note(class_name, [id_])

    def _note(self, class_name: str, ids: Sequence[str]) -> None:
        now = self._clock()
        self._classes_ended[class_name] = now
        self._ended.update({(class_name, id_): now for id_ in ids})
        if len(self._ended) > self._limit:
            self._ended.clear()
            self._all_ended = now

    def floor(self, resource: Readable) -> float:
        """Return the time until which writes must be in a response; minus infinity: none must."""
        if isinstance(resource, QueryResource):  # any write to its class may change it
            return self._classes_ended.get(resource.class_name, -math.inf)
        ended = self._ended.get((resource.class_name, resource.id), -math.inf)
        return max(self._all_ended, ended)

    def forget_before(self, time: float) -> None:
        """Forget the writes that ended before a time: what was read before them is not young."""
        self._ended = {key: ended for key, ended in self._ended.items() if ended >= time}
        self._classes_ended = {n: at for n, at in self._classes_ended.items() if at >= time}
        if self._all_ended < time:
            self._all_ended = -math.inf
