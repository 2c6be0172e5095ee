"""Claims of unique constraints that are being built: made for the objects that are there.

All writes claim by then what they write (`mediator.control.unique_builds`), so an object may lack a
claim only if it was not written since. It gets the claim on the condition that it is as it was
read. That is no write: no version rises, and nothing is reported.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias
from uuid import uuid4

from mediator.base.concurrency import results_or_raise
from mediator.base.errors import Conflict
from mediator.base.offload import offload, throttled
from mediator.data_plane.port import DataPlane, present_objects
from mediator.model.operations import Outcome
from mediator.operations.calls import StoreCalls
from mediator.routing.model import ClassRoute
from mediator.schema.unique import claims_of
from mediator.stores.port import Fragment, Status, TakenClaim, Write, WriteKind, WriteResult

__all__ = ["ClaimSweep", "Unique"]

Unique: TypeAlias = Collection[tuple[str, ...]]
"""The fields of each constraint."""

_ATTEMPTS: Final = 32
_REFUSED: Final = (Status.CONFLICT, Status.TAKEN)


@dataclass(eq=False)
class ClaimSweep:
    """Makes claims, page by page; to repeat it is harmless."""

    _plane: DataPlane
    _calls: StoreCalls

    async def claim(
        self, route: ClassRoute, unique: Unique, page: Sequence[Outcome]
    ) -> Mapping[str, TakenClaim]:
        """Claim what objects have; return by id those of which another object has it.

        Raises:
            Unavailable: A system does not answer.
            Locked: A transaction is at work on an object, and does not end.
            Conflict: Others keep writing to an object.
        """
        results = await self._write(route, unique, page)
        for _ in range(_ATTEMPTS):
            left = {id_ for id_, result in results.items() if result.status in _REFUSED}
            if not left:
                return {}
            holders = {r.taken.holder for r in results.values() if r.taken is not None}
            confirmed = await self._correct(route, unique, holders)
            results = await self._write(route, unique, await self._read(route, left))
            taken = {id_: r.taken for id_, r in results.items() if r.taken is not None}
            duplicates = {id_: each for id_, each in taken.items() if each.holder in confirmed}
            if duplicates:
                return duplicates
        raise Conflict(f"Objects of {route.schema.name} keep being written; try again.")

    async def _correct(self, route: ClassRoute, unique: Unique, ids: Collection[str]) -> set[str]:
        """Make the claims of objects right; return the ids of those that claim what they have.

        An object may claim what it had when the class had the constraint before. If another one
        claims what it has now, it claims nothing: two may have exchanged their values.
        """
        found = await self._read(route, ids)
        results = await self._write(route, unique, found)
        refused = [each for each in found if results[each.id].status is Status.TAKEN]
        await self._write(route, unique, refused, empty=True)
        return {id_ for id_, result in results.items() if result.status is Status.APPLIED}

    async def _read(self, route: ClassRoute, ids: Collection[str]) -> list[Outcome]:
        """Read objects once the transactions that are at work on them have ended."""
        database, name = route.anchor.database, route.schema.name
        found = await present_objects(self._plane, database, name, sorted(ids), whole=True)
        return [*found.values()]

    async def _write(
        self, route: ClassRoute, unique: Unique, page: Sequence[Outcome], *, empty: bool = False
    ) -> dict[str, WriteResult]:
        """Make claims (`empty`: none); return the results by id, one that is refused if any is."""
        claimed = [replace(each, values={}) for each in page] if empty else page
        writes = await offload(True, _writes, route, unique, claimed) if page else []
        results: dict[str, WriteResult] = {}
        answers = results_or_raise(await self._calls.write_each(writes)) if writes else []
        for write, result in zip(writes, answers, strict=True):
            if write.id not in results or result.status in _REFUSED:
                results[write.id] = result
        return results


def _writes(route: ClassRoute, unique: Unique, page: Sequence[Outcome]) -> list[Write]:
    return [
        _claiming(fragment, own, outcome)
        for fragment in route.fragments
        if (own := [names for names in unique if names in fragment.unique])
        for outcome in throttled(page)
    ]


def _claiming(fragment: Fragment, unique: Unique, outcome: Outcome) -> Write:
    """Return the write of what an object claims, at the versions that it has."""
    fields = {name for names in unique for name in names}
    groups = [group for group, names in fragment.groups.items() if fields.intersection(names)]
    return Write(
        fragment,
        outcome.id,
        WriteKind.UPDATE,
        f"claim-{uuid4().hex}",
        groups=(),
        expect={group: outcome.versions[group] or 0 for group in groups},
        claims=claims_of(unique, fragment.fields, outcome.values or {}),
    )
