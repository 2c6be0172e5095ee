"""Objects whose fragments may not belong together: a second look tells whether they do.

Fragments belong together if they are of one creation version, and one write over several systems
was the last to happen on all of them (`Record.joint`). Else such a write is under way, or happened
while they were read, or the object lacks a fragment: a group that is added to a class on a further
system has nothing of the objects that were there before.

The second look asks the records for their versions and intents. A write that has reached some of
them has its intent on the others. So if there is none, and all versions are those that were read,
then they were so at one moment, and belong together.
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
from mediator.operations.objects import read_objects
from mediator.routing.fragments import Resource, resource_of
from mediator.routing.model import ClassRoute
from mediator.stores.port import Fragment, RecordKey, RecordState

__all__ = ["TornReads"]

RESOLVED_WITHIN_S: Final = 3.0
"""How long a strong read waits for writes over several systems."""


class TornReads:
    """Looks again at what was read.

    Args:
        calls: Sends store calls.
    """

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
        """Look again at those outcomes of one resource that are partial.

        Args:
            route: Where the class lives.
            resource: What was read, of any object.
            outcomes: What came of it.
            whole: Resolve writes that are under way, until no outcome is partial or pending.

        Raises:
            Unavailable: A system does not answer, or with `whole` some write could not be resolved.
        """
        now = list(outcomes)
        backoff: Backoff | None = None
        while left := _doubtful(now, whole=whole):
            met = await self._look(route, resource, now, left)
            if not whole:
                break
            backoff = backoff or Backoff(RESOLVED_WITHIN_S)
            if backoff.is_exhausted:
                raise _unresolved(route, left)
            if met:
                await backoff.wait_for(met, self._calls.intents)
        return now

    async def _look(
        self,
        route: ClassRoute,
        resource: Get,
        now: list[Outcome | None],
        left: Mapping[int, Outcome],
    ) -> ForeignIntents:
        """Confirm outcomes, or read them again; returns the intents that were met."""
        shown = resource_of(route, resource.fields)
        keys = [(f, outcome.id) for outcome in left.values() for f, _ in shown.fragments]
        found = dict(zip(keys, await self._intents.standing(keys), strict=True))
        torn: dict[int, Outcome] = {}
        for i, outcome in left.items():
            here = {f: found[f, outcome.id] for f, _ in shown.fragments}
            if _stands(shown, outcome, here):
                now[i] = replace(outcome, partial=(), pending=False)
            else:
                torn[i] = outcome
        ids = [outcome.id for outcome in torn.values()]
        again = await read_objects(self._calls, route, resource, ids) if ids else ()
        for i, read in zip(torn, again, strict=True):
            now[i] = read
        return _intents(found)


def _doubtful(outcomes: Sequence[Outcome | None], *, whole: bool) -> dict[int, Outcome]:
    return {
        i: outcome
        for i, outcome in enumerate(outcomes)
        if outcome is not None and (outcome.partial or (whole and outcome.pending))
    }


def _stands(shown: Resource, outcome: Outcome, here: Mapping[Fragment, RecordState]) -> bool:
    """Whether all records are as they were read, and no intent is on any of them."""
    if any(standing.intent for standing in here.values()):
        return False
    creation_versions = [standing.creation_version for standing in here.values()]
    lead = (
        creation_versions[0]
        if shown.anchored
        else max((b for b in creation_versions if b), default=None)
    )
    current = {
        group: standing.versions.get(group) if standing.creation_version == lead else None
        for fragment, standing in here.items()
        for group in fragment.groups
    }
    return lead is not None and all(current[g] == v for g, v in outcome.versions.items())


def _intents(found: Mapping[RecordKey, RecordState]) -> dict[str, list[RecordKey]]:
    met: dict[str, list[RecordKey]] = {}
    for key, standing in found.items():
        if standing.intent:
            met.setdefault(standing.intent, []).append(key)
    return met


def _unresolved(route: ClassRoute, left: Mapping[int, Outcome]) -> Unavailable:
    name = f"{route.schema.name}/{next(iter(left.values())).id}"
    detail = f"A write of {name} over several systems is still under way; try again."
    return Unavailable(detail, system=route.anchor.system)
