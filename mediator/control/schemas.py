"""Schema changes, as a dry run or in force (`mediator.control.cutover`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from mediator.base.clock import Clock
from mediator.base.errors import (
    Invalid,
    Location,
    MediatorError,
    NotFound,
    Unavailable,
)
from mediator.base.observation import Observer, PlacementDecided
from mediator.base.offload import offload
from mediator.catalogue.schema_revisions import Author, SchemaRevision
from mediator.catalogue.schemas import CatalogueSchemas, LayoutChanged
from mediator.catalogue.stored_databases import StoredDatabase
from mediator.control.backfill import Backfill
from mediator.control.constraint_check import ConstraintCheck, with_report
from mediator.control.cutover import Cutover
from mediator.control.effects import would_move
from mediator.control.follower import Follower
from mediator.control.index_builds import IndexBuilds
from mediator.control.layout import (
    notes_on_builds,
    overrides_of,
)
from mediator.control.membership import Membership
from mediator.control.moves import MoveCheck
from mediator.control.overrides import documents
from mediator.control.port import (
    CAREFUL,
    AfterChange,
    BeforeChange,
    ChangeOptions,
    SchemaChange,
)
from mediator.control.preparation import Preparation
from mediator.control.schema_checks import (
    notes_on_view,
)
from mediator.control.schema_plan import SchemaPlan
from mediator.control.schema_planner import SchemaPlanner, check_version
from mediator.control.unique_builds import UniqueBuilds
from mediator.data_plane.executor import Executor
from mediator.materialisation.service import ViewService
from mediator.operations.fragment_calls import FragmentCalls
from mediator.placement.advice import notes_on, placements_of
from mediator.placement.candidates import Candidate
from mediator.placement.decide import Decision
from mediator.schema.overrides import in_force
from mediator.schema.tightening import Constraints
from mediator.schema.tree import Schema

__all__ = ["Schemas"]

_ATTEMPTS: Final = 3
"""How often a change is planned while tasks of replicas change the layout."""

_T = TypeVar("_T")


@dataclass(eq=False)
class Schemas:
    _catalogue: CatalogueSchemas
    _planner: SchemaPlanner
    _executor: Executor
    _follower: Follower
    _membership: Membership
    _views: ViewService
    _calls: FragmentCalls
    _cutover: Cutover
    _check: ConstraintCheck
    _moves: MoveCheck
    _backfill: Backfill
    _indexes: IndexBuilds
    _builds: UniqueBuilds
    _observe: Observer
    _clock: Clock
    _changing: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def refresh(self) -> None:
        await self._follower.look()

    async def all(self) -> list[dict[str, Any]]:
        await self.refresh()
        return [
            {
                "name": database.name,
                "mode": database.document["mode"],
                "version": database.version,
                "classes": sorted(database.document["classes"]),
            }
            for database in self._follower.all()
        ]

    async def present(self, name: str) -> SchemaChange:
        """Return a stored schema with the placements in force; raises `NotFound`."""
        await self.refresh()
        stored = self._expect(name)
        model = self._executor.model
        route = model.databases[name]
        decision = await self._planner.decide(route)
        return await self._change(stored, model.epoch, decision, schema=route.schema)

    async def stored(self, name: str) -> StoredDatabase:
        """Return a stored schema, placeable or not; raises `NotFound`."""
        await self.refresh()
        return self._expect(name)

    async def overrides(self, name: str) -> dict[str, dict[str, Any]]:
        """Return the overrides in force, by node; raises `NotFound`."""
        return self._overrides(await self.stored(name))

    def _overrides(self, stored: StoredDatabase) -> dict[str, dict[str, Any]]:
        return documents(in_force(overrides_of(stored), self._clock.now()))

    async def revisions(
        self, name: str, before: int | None, limit: int
    ) -> Sequence[SchemaRevision]:
        """Return revisions of a schema, newest first; raises `NotFound`."""
        await self.refresh()
        return await self._catalogue.revisions(self._expect(name).id, before, limit)

    async def revision(self, name: str, version: int) -> tuple[SchemaRevision, dict[str, Any]]:
        """Return a revision of a schema, and the schema; raises `NotFound`."""
        await self.refresh()
        result = await self._catalogue.revision(self._expect(name).id, version)
        if result is None:
            raise NotFound(f"There is no revision {version} of {name}, or it is no longer stored.")
        return result

    async def index_builds(self, name: str) -> list[dict[str, Any]]:
        """Describe the indexes that this replica builds; raises `NotFound`."""
        return await self._indexes.of((await self.stored(name)).name)

    async def retire(self, name: str, before: int, *, dry_run: bool) -> StoredDatabase:
        """Stop clients from pinning versions below this one; a lower number reverses that.

        Raises:
            NotFound: There is no such database.
            Invalid: Its schema has not that many versions.
        """
        return await _retry(lambda: self._retire(name, before, dry_run=dry_run))

    async def _retire(self, name: str, before: int, *, dry_run: bool) -> StoredDatabase:
        async with self._changing:
            await self._follower.catch_up()
            stored = self._expect(name)
            if before > stored.version:
                detail = f"is greater than {stored.version}, the present version"
                locations = [Location("/retired_before", detail)]
                raise Invalid("There is no such version.", locations=locations)
            if dry_run or before == stored.retired_before:
                return replace(stored, retired_before=before)
            moment, retired = await self._catalogue.retire(stored, before)
            await self._follower.adopt_update(moment, retired)
            return retired

    async def try_out(
        self,
        name: str,
        document: Any,
        *,
        version: int | None = None,
        candidates: Sequence[Candidate] | None = None,
        options: ChangeOptions = CAREFUL,
    ) -> SchemaChange:
        """Return the effects of setting a schema, by default with the present systems."""
        schema = await self._planner.parse(name, document, candidates)
        async with self._changing:
            plan = await self._planner.plan(schema, version, options, candidates)
        change = await self._change(plan.new, plan.epoch, plan.decision, plan.moves, schema=schema)
        tighter, _ = await offload(True, plan.constraints, options)
        report = await self._check.run(
            name, tighter.values(), plan.owned_classes, plan.former_names
        )
        move_report = await self._moves.run(name, plan.moved, plan.owned_classes)
        notes = (*await self._describe_dropped(plan), *await self._describe_lost(plan))
        return _with_notes(with_report(with_report(change, report), move_report), notes)

    async def put(
        self,
        name: str,
        document: Any,
        *,
        version: int | None,
        before: BeforeChange | None,
        after: AfterChange | None = None,
        options: ChangeOptions = CAREFUL,
        author: Author | None = None,
    ) -> SchemaChange:
        schema = await self._planner.parse(name, document)
        return await _retry(lambda: self._put(schema, version, before, after, options, author))

    async def _put(
        self,
        schema: Schema,
        version: int | None,
        before: BeforeChange | None,
        after: AfterChange | None,
        options: ChangeOptions,
        author: Author | None,
    ) -> SchemaChange:
        name = schema.database
        preparation = Preparation(self._check, self._moves, self._indexes, self._builds)
        while True:
            async with self._changing:
                plan = await self._planner.plan(schema, version, options)
                if plan.moves:
                    raise would_move(plan.moves)
                tighter, filled = await offload(True, plan.constraints, options)
                remaining = await preparation.remaining(plan, tighter)
                if remaining is None:
                    dropped = await self._describe_dropped(plan)
                    if before is not None:
                        await before(schema.classes)
                    epoch = await self._cutover.put_in_force(plan, author)
                    break
            await preparation.work_off(plan, remaining)
        self._observe(_placement_event(name, epoch, plan.decision))
        if plan.reuses_names:
            # Before caches are invalidated: they cannot get the former names afterwards.
            with suppress(Unavailable):  # then they can get them while a replica is behind
                await self._membership.agree(epoch)
        if after is not None:
            await after(schema.classes)
        change = await self._change(plan.new, epoch, plan.decision, schema=schema)
        change = _with_notes(change, dropped)
        # A unique constraint is in force for all objects, so no object can break it.
        constraints = preparation.checked.items()
        checked = {key: constraint for key, constraint in constraints if not constraint.unique}
        if not (checked or filled):
            return change
        return await self._finish(change, checked, filled, plan)

    async def _finish(
        self,
        change: SchemaChange,
        checked: Constraints,
        filled: Constraints,
        plan: SchemaPlan,
    ) -> SchemaChange:
        """Backfill, and report objects that were written by the former schema meanwhile."""
        try:
            await self._membership.agree(change.epoch)
            await self._backfill.run(change.database, filled.values())
            constraints = dict(sorted({**checked, **filled}.items()))
            report = await self._check.run(
                change.database, constraints.values(), plan.owned_classes
            )
        except MediatorError as error:  # the change is in force all the same
            note = f"The objects were not checked again after the change: {error.detail}"
            return replace(change, notes=(*change.notes, note))
        return with_report(change, report)

    async def remove(
        self, name: str, *, dry_run: bool, version: int | None = None
    ) -> dict[str, Any]:
        """Drop a database with its data; returns the number of objects of each class.

        Raises:
            NotFound: There is no such database.
            PreconditionFailed: Its schema has another `version` than the caller has seen.
        """
        return await _retry(lambda: self._remove(name, dry_run=dry_run, version=version))

    async def _remove(self, name: str, *, dry_run: bool, version: int | None) -> dict[str, Any]:
        async with self._changing:
            await self._follower.catch_up()
            stored = self._expect(name)
            check_version(name, stored, version)
            route = self._executor.model.databases[name]
            counts = {c: await self._calls.count(r) for c, r in route.classes.items()}
            if not dry_run:
                await self._cutover.drop(stored, route)
        return {"database": name, "objects": counts, "dropped": not dry_run}

    async def _change(
        self,
        stored: StoredDatabase,
        epoch: int,
        decision: Decision,
        moves: Sequence[dict[str, Any]] = (),
        *,
        schema: Schema,
    ) -> SchemaChange:
        return SchemaChange(
            database=stored.name,
            version=stored.version,
            epoch=epoch,
            document=stored.document,
            placements=await offload(True, placements_of, decision),
            moves=tuple(moves),
            overrides=self._overrides(stored),
            notes=(
                *await offload(True, notes_on, schema, decision),
                *notes_on_view(schema, self._views),
                *notes_on_builds(stored),
            ),
        )

    def _expect(self, name: str) -> StoredDatabase:
        stored = self._follower.stored(name)
        if stored is None:
            raise NotFound(f"There is no database {name}.")
        return stored

    async def _describe_dropped(self, plan: SchemaPlan) -> Sequence[str]:
        """Describe how many objects a change drops with its classes."""
        notes = []
        for name in sorted(plan.dropped_classes):
            assert plan.present is not None
            count = await self._calls.count(plan.present.classes[name])
            notes.append(f"The class {name} is dropped; objects: {count:,}.")
        return notes

    async def _describe_lost(self, plan: SchemaPlan) -> Sequence[str]:
        """Describe how many objects lose a value with the fields that a change drops."""
        fields = plan.dropped_fields
        report = await self._check.run(plan.schema.database, fields.values(), plan.owned_classes)
        counts = ((violation.constraint, violation.count) for violation in report.violations)
        lost = {(field.class_name, field.field): count for field, count in counts}
        note = "The field {}.{} is dropped; objects that lose a value: {:,}."
        notes = [note.format(c, name, lost.get((c, name), 0)) for c, name, _ in fields]
        return [*notes, *report.notes()]

    async def count(self, name: str) -> int:
        """Count the objects of a database, 0 if it does not exist; raises `Unavailable`."""
        present = self._executor.model.databases.get(name)
        routes = present.classes.values() if present else ()
        return sum([await self._calls.count(route) for route in routes])


async def _retry(change: Callable[[], Awaitable[_T]]) -> _T:
    for _ in range(_ATTEMPTS - 1):
        with suppress(LayoutChanged):  # for example by the erasure of dropped fields
            return await change()
    return await change()


def _with_notes(change: SchemaChange, notes: Sequence[str]) -> SchemaChange:
    return replace(change, notes=(*change.notes, *notes))


def _placement_event(database: str, epoch: int, decision: Decision) -> PlacementDecided:
    placements = decision.placements.items()
    systems = {node: placement.system for node, placement in placements}
    reasons: dict[str, str] = {node: placement.choice.kind for node, placement in placements}
    return PlacementDecided(database, epoch, systems, reasons)
