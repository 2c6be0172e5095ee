"""Which versions of schemas requests are pinned to, how often, by whom, and when last.

It is what this process has seen since it started, in bounded memory: what was not seen for longest
is forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

from mediator.base.clock import Clock

__all__ = ["PinnedUse", "PinnedUses", "Sender"]

USES_KEPT: Final = 1_000
SENDERS_KEPT: Final = 20

Sender: TypeAlias = tuple[str, ...]
"""Tenant and subject of a request; empty where requests are not authenticated."""

_K = TypeVar("_K")
_V = TypeVar("_V")


@dataclass(slots=True)
class PinnedUse:
    """The use of one version.

    Attributes:
        last: When it was used last, in seconds since 1970.
        senders: When each of the last senders used it last.
    """

    version: int
    requests: int
    last: float
    senders: OrderedDict[Sender, float] = field(default_factory=OrderedDict)


class PinnedUses:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._uses: OrderedDict[tuple[str, int], PinnedUse] = OrderedDict()

    def note(self, database_id: str, version: int, sender: Sender) -> None:
        key, now = (database_id, version), self._clock.now()
        use = self._uses.setdefault(key, PinnedUse(version, 0, now))
        use.requests, use.last = use.requests + 1, now
        use.senders[sender] = now
        _bound(use.senders, sender, SENDERS_KEPT)
        _bound(self._uses, key, USES_KEPT)

    def of(self, database_id: str) -> list[PinnedUse]:
        """Return the uses of a database's versions, the lowest version first."""
        found = [use for (id_, _), use in self._uses.items() if id_ == database_id]
        return sorted(found, key=lambda use: use.version)


def _bound(kept: OrderedDict[_K, _V], key: _K, most: int) -> None:
    kept.move_to_end(key)
    if len(kept) > most:
        kept.popitem(last=False)
