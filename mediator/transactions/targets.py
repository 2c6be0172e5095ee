"""The objects that a write over several systems concerns, and how they stand under its intents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mediator.base.errors import MediatorError
from mediator.routing.model import ClassRoute
from mediator.stores.port import Fragment, RecordKey, RecordState

__all__ = ["LockedObject", "Target", "locked_objects", "record_keys"]


@dataclass(frozen=True, slots=True)
class Target:
    """An object that is written: intents go to all its fragments, whichever the write touches.

    So whoever writes several of them meets the others, and a reader sees whether they are of one
    joint write.
    """

    route: ClassRoute
    id: str

    @property
    def keys(self) -> list[RecordKey]:
        """The records of all its fragments, the anchor first."""
        return [(fragment, self.id) for fragment in self.route.fragments]


@dataclass(frozen=True, slots=True)
class LockedObject:
    """An object under intents: as it stands, it stays until they go.

    Attributes:
        target: The object.
        fragments: How the record of each fragment stands.
    """

    target: Target
    fragments: Mapping[Fragment, RecordState]

    @property
    def creation_version(self) -> int | None:
        """The object's creation version; None if it is not there."""
        return self.fragments[self.target.route.anchor].creation_version

    @property
    def is_known(self) -> bool:
        """Whether anything was ever written to it, as far as that is remembered."""
        return any(standing.versions for standing in self.fragments.values())

    def lacks(self, fragment: Fragment) -> bool:
        """Whether the object has nothing in a fragment."""
        return self.fragments[fragment].creation_version != self.creation_version

    @property
    def versions(self) -> dict[str, int | None]:
        """The version of every group; None where it is absent."""
        known: dict[str, int | None] = {}
        for fragment, standing in self.fragments.items():
            absent = standing.creation_version is None or self.lacks(fragment)
            for group in fragment.groups:
                known[group] = None if absent else standing.versions.get(group)
        return known

    def foreign(self, intent: str) -> dict[str, list[RecordKey]]:
        """Return the intents of others on it, by their intents."""
        met: dict[str, list[RecordKey]] = {}
        for fragment, standing in self.fragments.items():
            if standing.intent != intent:
                met.setdefault(standing.intent, []).append((fragment, self.target.id))
        return met


def record_keys(targets: Iterable[Target]) -> list[RecordKey]:
    """Return the records of objects."""
    return [key for target in targets for key in target.keys]


def locked_objects(
    targets: Sequence[Target], standings: Sequence[RecordState | MediatorError]
) -> list[LockedObject | MediatorError]:
    """Put the answers to `record_keys` together, by object."""
    answers = iter(standings)
    held: list[LockedObject | MediatorError] = []
    for target in targets:
        found: dict[Fragment, RecordState] = {}
        error: MediatorError | None = None
        for fragment in target.route.fragments:
            standing = next(answers)
            if isinstance(standing, MediatorError):
                error = error or standing
            else:
                found[fragment] = standing
        held.append(error or LockedObject(target, found))
    return held
