"""The objects of a joint write and their states under its intents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mediator.base.concurrency import results_or_raise
from mediator.base.errors import MediatorError
from mediator.routing.model import ClassRoute
from mediator.stores.port import Fragment, RecordKey, RecordState

__all__ = ["LockTarget", "LockedObject", "locked_objects", "record_keys"]


@dataclass(frozen=True, slots=True)
class LockTarget:
    """An object to write: all its fragments get intents, whichever the write touches.

    So joint writes of the same object always meet, and a reader sees whether its fragments are of
    the same joint write.
    """

    route: ClassRoute
    id: str

    @property
    def keys(self) -> list[RecordKey]:
        """The records of all its fragments, the anchor first."""
        return [(fragment, self.id) for fragment in self.route.fragments]


@dataclass(frozen=True, slots=True)
class LockedObject:
    """An object under intents: no other write changes it until they are removed.

    `fragments` maps each fragment to the state of its record.
    """

    target: LockTarget
    fragments: Mapping[Fragment, RecordState]

    @property
    def creation_version(self) -> int | None:
        """The object's creation version; None if it does not exist."""
        return self.fragments[self.target.route.anchor].creation_version

    @property
    def is_known(self) -> bool:
        """Whether any write to it is remembered."""
        return any(state.versions for state in self.fragments.values())

    def lacks(self, fragment: Fragment) -> bool:
        return self.fragments[fragment].creation_version != self.creation_version

    @property
    def versions(self) -> dict[str, int | None]:
        """The version of every group; None if absent."""
        group_versions: dict[str, int | None] = {}
        for fragment, state in self.fragments.items():
            absent = state.creation_version is None or self.lacks(fragment)
            for group in fragment.groups:
                group_versions[group] = None if absent else state.versions.get(group)
        return group_versions

    def has_all(self, intent: str) -> bool:
        """Whether all its records have an intent."""
        return all(state.intent == intent for state in self.fragments.values())

    def foreign(self, intent: str) -> dict[str, list[RecordKey]]:
        """Return the foreign intents on it, each with its records."""
        foreign_intents: dict[str, list[RecordKey]] = {}
        for fragment, state in self.fragments.items():
            if state.intent not in (intent, ""):
                foreign_intents.setdefault(state.intent, []).append((fragment, self.target.id))
        return foreign_intents


def record_keys(targets: Iterable[LockTarget]) -> list[RecordKey]:
    return [key for target in targets for key in target.keys]


def locked_objects(
    targets: Sequence[LockTarget], states: Sequence[RecordState | MediatorError]
) -> list[LockedObject | MediatorError]:
    """Group the states of `record_keys` by object."""
    answers = iter(states)
    objects: list[LockedObject | MediatorError] = []
    for target in targets:
        record_states = [next(answers) for _ in target.route.fragments]
        try:
            fragments = dict(
                zip(target.route.fragments, results_or_raise(record_states), strict=True)
            )
            objects.append(LockedObject(target, fragments))
        except MediatorError as error:
            objects.append(error)
    return objects
