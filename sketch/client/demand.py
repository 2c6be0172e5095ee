"""What was read lately though only its youth speaks for it, and will be read again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sketch.client.resources import Readable, Resource

__all__ = ["Demand", "DemandEntry"]

_MOST = 1_000
"""Objects that are remembered; those beyond are revalidated by who reads them."""

_ROUNDS = 10
"""Rounds for which an object is remembered that is not read again."""

_STABLE = 25
"""Rounds after which an object that has not changed is not expected to change soon."""


@dataclass(slots=True)
class DemandEntry:
    """A whole object that is in demand.

    Attributes:
        address: Its address.
        resource: What it is.
        read: The round in which it was read last.
        reads: How often it was read since it was renewed last.
        changed: The round in which it was seen to have changed, or was first in demand.
    """

    address: str
    resource: Resource
    read: int
    changed: int
    reads: int = 1


class Demand:
    """What is in demand, the object that was read last at the end."""

    def __init__(self) -> None:
        self._round = 0
        self._entries: dict[str, DemandEntry] = {}

    def note(self, address: str, resource: Readable) -> None:
        """Remember that a resource was read; of other kinds than whole objects nothing is."""
        entry = self._entries.get(address)
        if entry is not None:
            entry.reads += 1
            if entry.read != self._round:
                entry.read = self._round
                self._entries[address] = self._entries.pop(address)
        elif isinstance(resource, Resource) and not resource.fields:
            self._entries[address] = DemandEntry(address, resource, self._round, self._round)

    def changed(self, entry: DemandEntry) -> None:
        """Remember that an object has changed."""
        entry.changed = self._round

    def is_stable(self, entry: DemandEntry) -> bool:
        """Whether an object is not expected to change soon."""
        return self._round - entry.changed >= _STABLE

    def lately(self) -> Sequence[DemandEntry]:
        """Begin a round, and return what was read in the last ones."""
        self._round += 1
        while self._entries:
            oldest = next(iter(self._entries.values()))
            if len(self._entries) <= _MOST and oldest.read >= self._round - _ROUNDS:
                break
            del self._entries[oldest.address]
        return list(self._entries.values())
