"""Schemas: what a change of one does, as a dry run or in force (`mediator.control.cutover`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from mediator.base.clock import Clock
from mediator.base.errors import (
    Invalid,
    Location,
    MediatorError,
    NotFound,
    PreconditionFailed,
    SchemaInvalid,
    Unavailable,
)
from mediator.base.observation import Observer, PlacementDecided
from mediator.base.offload import offload
from mediator.catalogue.schema_revisions import Author, SchemaRevision
from mediator.catalogue.schemas import CatalogueSchemas, LayoutChanged
from mediator.catalogue.stored_databases import StoredDatabase
from mediator.control.backfill import Backfill
from mediator.control.constraint_check import ConstraintCheck, reported
from mediator.control.cutover import Cutover
from mediator.control.effects import decide_change, left_behind, would_move
from mediator.control.follower import Follower
from mediator.control.fragment_calls import FragmentCalls
from mediator.control.index_builds import IndexBuilds
from mediator.control.layout import (
    notes_on_builds,
    overrides_of,
    route_of,
    view_system_of,
    with_what_is_kept,
)
from mediator.control.membership import Membership
from mediator.control.moves import MoveCheck, moved_fields
from mediator.control.overrides import changed_overrides, documents
from mediator.control.port import (
    CAREFUL,
    AfterChange,
    BeforeChange,
    ChangeOptions,
    SchemaChange,
)
from mediator.control.preparation import Preparation
from mediator.control.registry import Registry
from mediator.control.renames import renamed
from mediator.control.schema_checks import (
    check_dropped,
    check_indexes,
    check_unique,
    check_view,
    notes_on_view,
    without_copies,
)
from mediator.control.schema_plan import Before, SchemaPlan, stored_form
from mediator.control.unique_builds import UniqueBuilds
from mediator.data_plane.executor import Executor
from mediator.materialisation.service import ViewService
from mediator.placement.advice import notes_on, placements_of
from mediator.placement.candidates import Candidate
from mediator.placement.decide import Decision, decide, named_mistakes, pins_of
from mediator.routing.model import DatabaseRoute, RoutingModel
from mediator.schema.errors import invalid
from mediator.schema.overrides import in_force
from mediator.schema.parse import parse_schema
from mediator.schema.renames import check_renames
from mediator.schema.tightening import Constraints
from mediator.schema.tree import Schema
from mediator.stores.systems import Systems

__all__ = ["Schemas"]

_ATTEMPTS: Final = 3
"""How often a change is planned, where tasks of replicas change the layout meanwhile."""


@dataclass(eq=False)
class Schemas:
    _catalogue: CatalogueSchemas
    _registry: Registry
    _systems: Systems
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

    @asynccontextmanager
    async def unchanged(self) -> AsyncIterator[RoutingModel]:
        """Keep this replica from changing schemas while the block runs; yields the newest model."""
        async with self._changing:
            await self._follower.catch_up()
            yield self._executor.model

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
        pins = pins_of(route, list(route.classes))
        candidates = self._registry.candidates()
        overrides = in_force(route.overrides, self._clock.now())
        decision = await offload(True, decide, route.schema, candidates, pins, overrides)
        return await self._change(stored, model.epoch, decision, schema=route.schema)

    async def stored(self, name: str) -> StoredDatabase:
        """Return a stored schema, whether it can be placed or not; raises `NotFound`."""
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
        """Return revisions of a schema, the newest first; raises `NotFound`."""
        await self.refresh()
        return await self._catalogue.revisions(self._expect(name).id, before, limit)

    async def revision(self, name: str, version: int) -> tuple[SchemaRevision, dict[str, Any]]:
        """Return a revision of a schema, and the schema; raises `NotFound`."""
        await self.refresh()
        found = await self._catalogue.revision(self._expect(name).id, version)
        if found is None:
            raise NotFound(f"There is no revision {version} of {name}, or not any more.")
        return found

    async def index_builds(self, name: str) -> list[dict[str, Any]]:
        """Describe the indexes that this replica builds; raises `NotFound`."""
        return await self._indexes.of((await self.stored(name)).name)

    async def retire(self, name: str, before: int, *, dry_run: bool) -> StoredDatabase:
        """Let no client pin a version before this one; a lower number takes that back.

        Raises:
            NotFound: There is no such database.
            Invalid: Its schema has not that many versions.
        """
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
            route = self._executor.model.databases[name]
            self._follower.has_put(moment, retired, with_what_is_kept(route, retired))
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
        """Return what setting a schema would do, by default with the systems as they are."""
        schema = await self._parse(name, document, candidates)
        async with self._changing:
            plan = await self._plan(schema, version, options, candidates)
        change = await self._change(plan.new, plan.epoch, plan.decision, plan.moves, schema=schema)
        tighter, _ = await offload(True, plan.constraints, options)
        report = await self._check.run(name, tighter.values(), plan.owned, plan.former_names)
        moved = await self._moves.run(name, plan.moved, plan.owned)
        notes = (*await self._dropped_by(plan), *await self._lost_by(plan))
        return _noted(reported(reported(change, report), moved), notes)

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
        schema = await self._parse(name, document)
        for _ in range(_ATTEMPTS - 1):
            with suppress(LayoutChanged):  # by the erasure of dropped fields, say
                return await self._put(schema, version, before, after, options, author)
        return await self._put(schema, version, before, after, options, author)

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
                plan = await self._plan(schema, version, options)
                if plan.moves:
                    raise would_move(plan.moves)
                tighter, filled = await offload(True, plan.constraints, options)
                left = await preparation.left(plan, tighter)
                if left is None:
                    dropped = await self._dropped_by(plan)
                    if before is not None:
                        await before(schema.classes)
                    epoch = await self._cutover.put_in_force(plan, author)
                    break
            await preparation.go_on(plan, left)
        self._observe(_decided(name, epoch, plan.decision))
        if plan.gives_names_anew:
            # Before caches are invalidated: none of them gets the former names afterwards.
            with suppress(Unavailable):  # then they have them for as long as a replica is behind
                await self._membership.agree(epoch)
        if after is not None:
            await after(schema.classes)
        change = await self._change(plan.new, epoch, plan.decision, schema=schema)
        change = _noted(change, dropped)
        # A unique constraint is in force for all objects, so nothing can have broken it.
        kept = preparation.checked.items()
        checked = {key: each for key, each in kept if not each.unique}
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
            report = await self._check.run(change.database, constraints.values(), plan.owned)
        except MediatorError as error:  # the change is in force all the same
            note = f"The objects were not checked again after the change: {error.detail}"
            return replace(change, notes=(*change.notes, note))
        return reported(change, report)

    async def remove(
        self, name: str, *, dry_run: bool, version: int | None = None
    ) -> dict[str, Any]:
        """Drop a database with its data; returns the number of objects of each class.

        Raises:
            NotFound: There is none.
            PreconditionFailed: Its schema has another `version` than the caller has seen.
        """
        async with self._changing:
            await self._follower.catch_up()
            stored = self._expect(name)
            _check_version(name, stored, version)
            route = self._executor.model.databases[name]
            counts = {c: await self._calls.count(r) for c, r in route.classes.items()}
            if not dry_run:
                await self._cutover.drop(stored, route)
        return {"database": name, "objects": counts, "dropped": not dry_run}

    async def _parse(
        self, name: str, document: Any, candidates: Sequence[Candidate] | None = None
    ) -> Schema:
        schema = await offload(True, parse_schema, name, document)
        known = candidates or self._registry.candidates()
        if mistakes := await offload(True, named_mistakes, schema, known):
            raise invalid(mistakes, SchemaInvalid)
        return schema

    async def _plan(
        self,
        schema: Schema,
        version: int | None,
        options: ChangeOptions,
        candidates: Sequence[Candidate] | None = None,
    ) -> SchemaPlan:
        await self._follower.catch_up()
        name = schema.database
        stored = self._follower.stored(name)
        _check_version(name, stored, version)
        model = self._executor.model
        route = self._executor.model.databases.get(name)
        moved = moved_fields(options, route, schema)
        dropped = (f"{each.source_class}.{each.source.name}" for each in moved)
        options = replace(options, drop=options.drop.union(dropped))
        before = await self._before(schema, stored, options)
        present, holding = before.route, set(before.holding)
        if candidates is None:
            candidates = self._registry.candidates()
        names = [candidate.name for candidate in candidates]
        now = self._clock.now()
        overrides = changed_overrides(before.renamed, schema, options.overrides, names, now)
        decision, moves = await offload(
            True, decide_change, schema, present, holding, candidates, overrides, options.drop
        )
        unfit = without_copies(self._systems)
        new = await offload(True, stored_form, schema, decision, before, overrides, unfit)
        check_view(schema, view_system_of(new), self._systems)
        route = await offload(True, route_of, new)
        check_indexes(route)
        moves += left_behind(present, route, holding, options.drop)
        moved = tuple(each for each in moved if each.class_name in holding)
        plan = SchemaPlan(schema, before, new, route, options, decision, moves, model.epoch, moved)
        if not moves:
            await offload(True, check_unique, plan)
        return plan

    async def _before(
        self, schema: Schema, stored: StoredDatabase | None, options: ChangeOptions
    ) -> Before:
        present = self._executor.model.databases.get(schema.database)
        check_dropped(options.drop, schema, present)
        check_renames(options.rename, present.schema if present else None, schema)
        holding = frozenset(await self._holding(present) - options.drop)
        if stored is None or not options.rename:
            return Before(stored, stored, present, holding)
        under_new_names = renamed(stored, options.rename)
        route = await offload(True, route_of, under_new_names)
        return Before(stored, under_new_names, route, holding)

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

    async def _dropped_by(self, plan: SchemaPlan) -> Sequence[str]:
        """Say how many objects go with the classes that a change drops."""
        notes = []
        for name in sorted(plan.dropped_classes):
            assert plan.present is not None
            count = await self._calls.count(plan.present.classes[name])
            notes.append(f"The class {name} is dropped; objects: {count:,}.")
        return notes

    async def _lost_by(self, plan: SchemaPlan) -> Sequence[str]:
        """Say how many objects lose a value with the fields that a change drops."""
        fields = plan.dropped_fields
        report = await self._check.run(plan.schema.database, fields.values(), plan.owned)
        found = ((each.constraint, each.count) for each in report.violations)
        lost = {(each.class_name, each.field): count for each, count in found}
        said = "The field {}.{} is dropped; objects that lose a value: {:,}."
        notes = [said.format(c, name, lost.get((c, name), 0)) for c, name, _ in fields]
        return [*notes, *report.notes()]

    async def _holding(self, present: DatabaseRoute | None) -> set[str]:
        classes = present.classes if present else {}
        return {name for name, route in classes.items() if await self._calls.has_objects(route)}

    async def count(self, name: str) -> int:
        """Count the objects of a database, 0 if it does not exist; raises `Unavailable`."""
        present = self._executor.model.databases.get(name)
        routes = present.classes.values() if present else ()
        return sum([await self._calls.count(route) for route in routes])


def _check_version(name: str, stored: StoredDatabase | None, seen: int | None) -> None:
    """Raise `PreconditionFailed` if a schema has another version than the caller has seen."""
    version = stored.version if stored else 0
    if seen is not None and seen != version:
        raise PreconditionFailed(f"The schema of {name} has version {version} now.")


def _noted(change: SchemaChange, notes: Sequence[str]) -> SchemaChange:
    return replace(change, notes=(*change.notes, *notes))


def _decided(database: str, epoch: int, decision: Decision) -> PlacementDecided:
    placements = decision.placements.items()
    systems = {node: placement.system for node, placement in placements}
    reasons: dict[str, str] = {node: placement.choice.kind for node, placement in placements}
    return PlacementDecided(database, epoch, systems, reasons)
