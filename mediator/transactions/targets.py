"""The objects of a joint write, and their state under its intents."""

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
    """An object that is written: intents go to all its fragments, whichever the write touches.

    So joint writes of the same object always meet, and a reader sees whether its fragments are of
    one joint write.
    """

    route: ClassRoute
    id: str

    @property
    def keys(self) -> list[RecordKey]:
        """The records of all its fragments, the anchor first."""
        return [(fragment, self.id) for fragment in self.route.fragments]


@dataclass(frozen=True, slots=True)
class LockedObject:
    """An object under intents: nobody changes it until they are removed.

    `fragments` has the state of the record of each fragment.
    """

    target: LockTarget
    fragments: Mapping[Fragment, RecordState]

    @property
    def creation_version(self) -> int | None:
        """The object's creation version; None if it does not exist."""
        return self.fragments[self.target.route.anchor].creation_version

    @property
    def is_known(self) -> bool:
        """Whether anything was ever written to it, as far as that is remembered."""
        return any(state.versions for state in self.fragments.values())

    def lacks(self, fragment: Fragment) -> bool:
        return self.fragments[fragment].creation_version != self.creation_version

    @property
    def versions(self) -> dict[str, int | None]:
        """The version of every group; None where it is absent."""
        known: dict[str, int | None] = {}
        for fragment, state in self.fragments.items():
            absent = state.creation_version is None or self.lacks(fragment)
            for group in fragment.groups:
                known[group] = None if absent else state.versions.get(group)
        return known

    def has_all(self, intent: str) -> bool:
        """Whether all its records have an intent."""
        return all(state.intent == intent for state in self.fragments.values())

    def foreign(self, intent: str) -> dict[str, list[RecordKey]]:
        """Return the intents of others on it, each with the records that have it."""
        met: dict[str, list[RecordKey]] = {}
        for fragment, state in self.fragments.items():
            if state.intent not in (intent, ""):
                met.setdefault(state.intent, []).append((fragment, self.target.id))
        return met


def record_keys(targets: Iterable[LockTarget]) -> list[RecordKey]:
    return [key for target in targets for key in target.keys]


def locked_objects(
    targets: Sequence[LockTarget], states: Sequence[RecordState | MediatorError]
) -> list[LockedObject | MediatorError]:
    """Group the states of `record_keys` by object."""
    answers = iter(states)
    objects: list[LockedObject | MediatorError] = []
    for target in targets:
        own = [next(answers) for _ in target.route.fragments]
        try:
            fragments = dict(zip(target.route.fragments, results_or_raise(own), strict=True))
            objects.append(LockedObject(target, fragments))
        except MediatorError as error:
            objects.append(error)
    return objects
