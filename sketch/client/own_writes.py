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
from sketch.client.resources import QueryResource, Readable, object_key
from sketch.protocol.wire import GroupMap

__all__ = ["OwnWrites"]

_KEYS = 10_000
"""Keys that are remembered separately; beyond, every object counts as written."""


class OwnWrites:
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
        """Remember objects as written at the end of the block, even if it fails.

        A concurrent read may precede the write. `groups` returns the groups that may have changed
        by then; none: all.
        """
        try:
            yield
        finally:
            names = tuple(groups()) or ("",)
            keys = [object_key(class_name, id_, name) for id_ in ids for name in names]
            self._note(class_name, keys)

    def doubt(self, class_name: str, id_: str) -> None:
        """Treat an object as written, by anyone: copies that were made before are not used."""
        self._note(class_name, [object_key(class_name, id_, "")])

    def _note(self, class_name: str, keys: Sequence[str]) -> None:
        now = self._clock()
        self._classes_ended[class_name] = now
        self._ended.update(dict.fromkeys(keys, now))
        if len(self._ended) > self._limit:
            self._ended.clear()
            self._all_ended = now

    def floor(self, resource: Readable, group_map: GroupMap) -> float:
        """Return the time until which writes must be in a response; minus infinity: none must."""
        if isinstance(resource, QueryResource):  # any write to its class may change it
            return self._classes_ended.get(resource.class_name, -math.inf)
        class_name, id_ = resource.class_name, resource.id
        keys = [object_key(class_name, id_, group) for group in ("", *resource.groups(group_map))]
        return max(self._all_ended, *(self._ended.get(key, -math.inf) for key in keys))

    def on_filter(self, before: float, is_another_epoch: bool) -> None:
        """Forget the writes that ended before a time: what was read before them is not young.

        In another epoch groups have other names: each write counts for every object.
        """
        if is_another_epoch:
            self._all_ended = max(self._all_ended, *self._classes_ended.values(), -math.inf)
        self._ended = {key: ended for key, ended in self._ended.items() if ended >= before}
        self._classes_ended = {n: at for n, at in self._classes_ended.items() if at >= before}
        if self._all_ended < before:
            self._all_ended = -math.inf
