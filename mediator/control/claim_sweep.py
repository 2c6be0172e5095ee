"""Makes the claims of unique constraints that are being built, for existing objects.

By then all writes claim their values (`mediator.control.unique_builds`), so only objects that were
not written since can lack a claim. Each gets its claim on the condition that it is unchanged since
it was read. That is not a write: no version rises, and no event is reported.
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
    """Makes claims, page by page; repeating it is harmless."""

    _plane: DataPlane
    _calls: StoreCalls

    async def claim(
        self, route: ClassRoute, unique: Unique, page: Sequence[Outcome]
    ) -> Mapping[str, TakenClaim]:
        """Claim the values of objects; return the conflicts with other objects, by id.

        Raises:
            Unavailable: A system does not answer.
            Locked: A transaction has locked an object, and does not end.
            Conflict: Clients keep writing to an object.
        """
        results = await self._write(route, unique, page)
        for _ in range(_ATTEMPTS):
            refused_ids = {id_ for id_, result in results.items() if result.status in _REFUSED}
            if not refused_ids:
                return {}
            holders = {r.taken.holder for r in results.values() if r.taken is not None}
            rightful_holders = await self._correct(route, unique, holders)
            results = await self._write(route, unique, await self._read(route, refused_ids))
            taken = {id_: r.taken for id_, r in results.items() if r.taken is not None}
            duplicates = {
                id_: claim for id_, claim in taken.items() if claim.holder in rightful_holders
            }
            if duplicates:
                return duplicates
        raise Conflict(f"Objects of {route.schema.name} keep being written; try again.")

    async def _correct(self, route: ClassRoute, unique: Unique, ids: Collection[str]) -> set[str]:
        """Correct the claims of objects; return the ids of those that claim their present values.

        An object may claim former values, from an earlier constraint of the class. If another one
        claims its present values, it claims nothing: two may have exchanged their values.
        """
        objects = await self._read(route, ids)
        results = await self._write(route, unique, objects)
        refused = [outcome for outcome in objects if results[outcome.id].status is Status.TAKEN]
        await self._write(route, unique, refused, empty=True)
        return {id_ for id_, result in results.items() if result.status is Status.APPLIED}

    async def _read(self, route: ClassRoute, ids: Collection[str]) -> list[Outcome]:
        """Read objects once the transactions on them have ended."""
        database, name = route.anchor.database, route.schema.name
        objects = await present_objects(self._plane, database, name, sorted(ids), whole=True)
        return [*objects.values()]

    async def _write(
        self, route: ClassRoute, unique: Unique, page: Sequence[Outcome], *, empty: bool = False
    ) -> dict[str, WriteResult]:
        """Make claims (`empty`: none); return the results by id, with refusals preferred."""
        claimants = [replace(outcome, values={}) for outcome in page] if empty else page
        writes = await offload(True, _claim_writes, route, unique, claimants) if page else []
        results: dict[str, WriteResult] = {}
        replies = results_or_raise(await self._calls.write_each(writes)) if writes else []
        for write, result in zip(writes, replies, strict=True):
            if write.id not in results or result.status in _REFUSED:
                results[write.id] = result
        return results


def _claim_writes(route: ClassRoute, unique: Unique, page: Sequence[Outcome]) -> list[Write]:
    return [
        _claim_write(fragment, constraints, outcome)
        for fragment in route.fragments
        if (constraints := [names for names in unique if names in fragment.unique])
        for outcome in throttled(page)
    ]


def _claim_write(fragment: Fragment, unique: Unique, outcome: Outcome) -> Write:
    """Return the write of an object's claims, at its present versions."""
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
