"""Torn reads: fragments of one object that may not belong together, and how they are confirmed.

Fragments belong together if they have one creation version and the same last joint write
(`Record.joint`). Otherwise a joint write is under way, or took effect while they were read, or the
object lacks a fragment: a group that is added to a class on another system has no records of
earlier objects.

To confirm them, the versions and intents of the records are read. A joint write that has reached
some records has its intent on the others. So if no record has an intent, and all versions are as
read, the fragments existed together at one moment (docs/transactions.md, "Foreign intents").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from mediator.base.errors import Unavailable
from mediator.model.operations import Get, Outcome
from mediator.operations.backoff import Backoff
from mediator.operations.calls import StoreCalls
from mediator.operations.intents import ForeignIntents, IntentStore
from mediator.operations.merge import merge_fragments
from mediator.routing.fragments import ResourceFragments, resource_of
from mediator.routing.model import ClassRoute
from mediator.stores.port import Fragment, Read, RecordKey, RecordState, is_lockable

__all__ = ["TornReads", "read_objects"]


async def read_objects(
    calls: StoreCalls, route: ClassRoute, resource: Get, ids: Sequence[str]
) -> list[Outcome | None]:
    """Read many objects of a class with one round trip for each system."""
    touched = resource_of(route, resource.fields)
    records = iter(
        await calls.read([Read(f, id_, names) for id_ in ids for f, names in touched.fragments])
    )
    return [
        merge_fragments(route, touched, id_, [next(records) for _ in touched.fragments])
        for id_ in ids
    ]


RESOLVED_WITHIN_S: Final = 3.0
"""How long a strong read, or a search for an absent object, waits for joint writes."""


class TornReads:
    def __init__(self, calls: StoreCalls) -> None:
        self._calls = calls
        self._intents = IntentStore(calls.systems)

    async def resolve(
        self,
        route: ClassRoute,
        resource: Get,
        outcomes: Sequence[Outcome | None],
        *,
        whole: bool = False,
    ) -> list[Outcome | None]:
        """Return outcomes of one resource; torn ones are confirmed or reread.

        `resource` names any object of the class. With `whole`, joint writes under way are
        resolved until no outcome is partial or pending.

        Raises:
            Unavailable: A system does not answer, or with `whole` some write could not be resolved.
        """
        current = list(outcomes)
        backoff: Backoff | None = None
        while torn := _torn(current, whole=whole):
            foreign_intents = await self._confirm(route, resource, current, torn)
            if not whole:
                break
            backoff = backoff or Backoff(RESOLVED_WITHIN_S)
            if backoff.is_exhausted and _torn(current, whole=True):
                raise _unresolved(route, next(iter(torn.values())).id)
            if foreign_intents:
                await backoff.wait_for(foreign_intents, self._calls.intents)
        return current

    async def resolve_absent(self, route: ClassRoute, ids: Sequence[str]) -> None:
        """Resolve pending writes that may create objects of a class that were not found.

        An object that a committed transaction has written may refer to one that it has yet to
        create. Once this returns, such an object can be read.

        Raises:
            Unavailable: A system does not answer, or some write could not be resolved.
        """
        if not is_lockable(self._calls.systems.get(route.anchor.system).store):
            return  # no write over several systems has a record there
        keys: Sequence[RecordKey] = [(route.anchor, id_) for id_ in ids]
        backoff = Backoff(RESOLVED_WITHIN_S)
        while foreign_intents := await self._read_foreign_intents(keys):
            keys = [key for records in foreign_intents.values() for key in records]
            if backoff.is_exhausted:
                raise _unresolved(route, keys[0][1])
            await backoff.wait_for(foreign_intents, self._calls.intents)

    async def _read_foreign_intents(self, keys: Sequence[RecordKey]) -> ForeignIntents:
        states = await self._intents.record_states(keys)
        return _intents(dict(zip(keys, states, strict=True)))

    async def _confirm(
        self,
        route: ClassRoute,
        resource: Get,
        current: list[Outcome | None],
        torn: Mapping[int, Outcome],
    ) -> ForeignIntents:
        """Confirm or reread outcomes; returns the intents met."""
        touched = resource_of(route, resource.fields)
        keys = [(f, outcome.id) for outcome in torn.values() for f, _ in touched.fragments]
        states = dict(zip(keys, await self._intents.record_states(keys), strict=True))
        changed: dict[int, Outcome] = {}
        for i, outcome in torn.items():
            fragments = {f: states[f, outcome.id] for f, _ in touched.fragments}
            if _is_unchanged(touched, outcome, fragments):
                current[i] = replace(outcome, partial=(), pending=False)
            else:
                changed[i] = outcome
        ids = [outcome.id for outcome in changed.values()]
        reread = await read_objects(self._calls, route, resource, ids) if ids else ()
        for i, outcome_read in zip(changed, reread, strict=True):
            current[i] = outcome_read
        return _intents(states)


def _unresolved(route: ClassRoute, id_: str) -> Unavailable:
    name = f"{route.schema.name}/{id_}"
    detail = f"A write of {name} over several systems is still under way; try again."
    return Unavailable(detail, system=route.anchor.system)


def _torn(outcomes: Sequence[Outcome | None], *, whole: bool) -> dict[int, Outcome]:
    return {
        i: outcome
        for i, outcome in enumerate(outcomes)
        if outcome is not None and (outcome.partial or (whole and outcome.pending))
    }


def _is_unchanged(
    resource: ResourceFragments, outcome: Outcome, states: Mapping[Fragment, RecordState]
) -> bool:
    """Whether all records are at the versions read, and none has an intent."""
    if any(state.intent for state in states.values()):
        return False
    creation_versions = [state.creation_version for state in states.values()]
    lead = (
        creation_versions[0]
        if resource.anchored
        else max(filter(None, creation_versions), default=None)
    )
    current = {
        group: state.versions.get(group) if state.creation_version == lead else None
        for fragment, state in states.items()
        for group in fragment.groups
    }
    return lead is not None and all(current[g] == v for g, v in outcome.versions.items())


def _intents(states: Mapping[RecordKey, RecordState]) -> dict[str, list[RecordKey]]:
    foreign_intents: dict[str, list[RecordKey]] = {}
    for key, state in states.items():
        if state.intent:
            foreign_intents.setdefault(state.intent, []).append(key)
    return foreign_intents
