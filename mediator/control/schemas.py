"""Setting schemas: validate, place, prepare the stores, keep, put in force.

Order of events, with what a crash in between leaves behind:

1. the new layout is decided, under a lock of this replica;     nothing
2. writes to empty classes that are about to change are held,   the hold, which ends by itself
   by all replicas;
3. those classes are found to be empty still;                   the hold
4. the stores are prepared (tables, indexes), idempotently;     unused tables, and the hold
5. the catalogue is changed, if its version is the one seen     the next start serves the new model
   and the hold still stands;
6. the new routing model is put in force;
7. fragments that nothing uses any more are dropped.            unused tables

A write that is held is refused (503); a retry finds the new location. Why nothing
that was acknowledged is lost, whichever replica stalls at whichever step: docs/replicas.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final, Literal, TypeVar

from mediator.base.clock import Clock
from mediator.base.errors import (
    Conflict,
    MediatorError,
    NotFound,
    PreconditionFailed,
    SchemaInvalid,
    Unavailable,
)
from mediator.base.observation import Observer, PlacementDecided
from mediator.base.offload import offload
from mediator.catalogue.schema_revisions import Author, SchemaRevision
from mediator.catalogue.schemas import CatalogueSchemas
from mediator.catalogue.stored_databases import Moment, StoredDatabase
from mediator.control.backfill import Backfill
from mediator.control.changes import (
    Before,
    SchemaPlan,
    check_dropped,
    check_unique,
    check_view,
    decide_change,
    left_behind,
    notes_on_view,
    replaced,
    stored_form,
    without,
    without_copies,
    would_move,
)
from mediator.control.clearing import Clearing
from mediator.control.constraint_check import ConstraintCheck, reported
from mediator.control.follower import Follower
from mediator.control.layout import (
    copies_of,
    fragments_of,
    overrides_of,
    route_of,
    same_place,
    view_system_of,
    with_owned_until,
)
from mediator.control.membership import Membership
from mediator.control.overrides import changed_overrides, documents
from mediator.control.port import (
    CAREFUL,
    AfterChange,
    BeforeChange,
    ChangeOptions,
    SchemaChange,
)
from mediator.control.registry import Registry
from mediator.control.renames import renamed
from mediator.data_plane.executor import Executor
from mediator.materialisation.service import ViewService
from mediator.placement.advice import notes_on, placements_of
from mediator.placement.candidates import Candidate
from mediator.placement.decide import Decision, decide, named_mistakes, pins_of
from mediator.routing.model import ClassRoute, DatabaseRoute, RoutingModel
from mediator.schema.differences import change_counts
from mediator.schema.errors import invalid
from mediator.schema.overrides import in_force
from mediator.schema.parse import parse_schema
from mediator.schema.renames import check_renames
from mediator.schema.tightening import Constraints
from mediator.schema.tree import Schema
from mediator.stores.port import Fragment, Lockable, Store, StoreError, is_claiming
from mediator.stores.systems import Systems, unavailable

__all__ = ["Schemas"]

_LOOKS: Final = 20
_LOOK_S: Final = 0.1

_T = TypeVar("_T")


@dataclass(eq=False)
class Schemas:
    _catalogue: CatalogueSchemas
    _registry: Registry
    _systems: Systems
    _executor: Executor
    _follower: Follower
    _membership: Membership
    _views: ViewService
    _clearing: Clearing
    _check: ConstraintCheck
    _backfill: Backfill
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
        notes = (*await self._dropped_by(plan), *await self._lost_by(plan))
        return _noted(reported(change, report), notes)

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
        checked: Constraints = {}
        while True:
            async with self._changing:
                plan = await self._plan(schema, version, options)
                if plan.moves:
                    raise would_move(plan.moves)
                tighter, filled = await offload(True, plan.constraints, options)
                if tighter.keys() <= checked.keys():
                    dropped = await self._dropped_by(plan)
                    if before is not None:
                        await before(schema.classes)
                    epoch = await self._put_in_force(plan, author)
                    break
            # Without the lock, as it may take long. If the schema is changed meanwhile, what is
            # tighter than the new one is checked, too.
            left = {key: each for key, each in tighter.items() if key not in checked}
            report = await self._check.run(name, left.values(), plan.owned, plan.former_names)
            report.require_clean()
            checked = {**checked, **left}
        self._observe(_decided(name, epoch, plan.decision))
        if plan.gives_names_anew:
            # Before caches are invalidated: none of them gets the former names afterwards.
            with suppress(Unavailable):  # then they have them for as long as a replica is behind
                await self._membership.agree(epoch)
        if after is not None:
            await after(schema.classes)
        change = await self._change(plan.new, epoch, plan.decision, schema=schema)
        change = _noted(change, dropped)
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

    async def remove(self, name: str, *, dry_run: bool) -> dict[str, Any]:
        """Drop a database with its data; returns the number of objects of each class."""
        async with self._changing:
            await self._follower.catch_up()
            stored = self._expect(name)
            route = self._executor.model.databases[name]
            counts = {c: await self._count(r) for c, r in route.classes.items()}
            if not dry_run:
                await self._drop(stored, route)
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
        seen = stored.version if stored else 0
        if version is not None and version != seen:
            raise PreconditionFailed(f"The schema of {name} has version {seen} now.")
        model = self._executor.model
        before = await self._before(schema, stored, options)
        present, holding = before.route, set(before.holding)
        check_unique(schema, present, holding)
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
        moves += left_behind(present, route, holding, options.drop)
        return SchemaPlan(schema, before, new, route, options, decision, moves, model.epoch)

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
            ),
        )

    def _expect(self, name: str) -> StoredDatabase:
        stored = self._follower.stored(name)
        if stored is None:
            raise NotFound(f"There is no database {name}.")
        return stored

    @asynccontextmanager
    async def _held(
        self, stored: StoredDatabase, classes: Collection[str]
    ) -> AsyncIterator[StoredDatabase]:
        """Hold writes to classes, on all replicas, while the block runs; yields the database."""
        route = self._executor.model.databases[stored.name]
        moment, held = await self._catalogue.hold(stored, classes)
        self._follower.has_put(moment, held, route)
        try:
            await self._membership.agree(moment.epoch)
            yield held
        except BaseException:
            # A block that succeeds has ended the hold by its change. If only the reply was lost,
            # there is nothing to release, and the change is read from the catalogue.
            with suppress(Unavailable):  # then it ends by itself
                assert held.hold is not None
                await self._catalogue.release(held.hold)
                await self._follower.catch_up()
            raise

    async def _drop(self, stored: StoredDatabase, route: DatabaseRoute) -> None:
        async with self._held(stored, route.classes.keys()) as held:
            moment = await self._catalogue.remove(held)
        self._follower.has_removed(moment, stored.name)
        with suppress(Unavailable):  # then it is done later
            await self._clearing.run()

    async def _dropped_by(self, plan: SchemaPlan) -> Sequence[str]:
        """Say how many objects go with the classes that a change drops."""
        notes = []
        for name in sorted(plan.dropped_classes):
            assert plan.present is not None
            count = await self._count(plan.present.classes[name])
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
        return {name for name, route in classes.items() if await self._has_objects(route)}

    async def _has_objects(self, route: ClassRoute) -> bool:
        """Whether there is an object: counting them takes as long as there are many."""
        anchor = route.anchor
        return bool(await self._on(anchor, "read", lambda store: store.scan(anchor, None, 1, ())))

    async def count(self, name: str) -> int:
        """Count the objects of a database, 0 if it does not exist; raises `Unavailable`."""
        present = self._executor.model.databases.get(name)
        routes = present.classes.values() if present else ()
        return sum([await self._count(route) for route in routes])

    async def _count(self, route: ClassRoute) -> int:
        return await self._on(route.anchor, "read", lambda store: store.count(route.anchor))

    async def _put_in_force(self, plan: SchemaPlan, author: Author | None) -> int:
        if plan.gives_names_anew:
            # So no replica is two changes behind, and takes a name for that of another field.
            await self._membership.agree(plan.epoch)
        emptied = {f.class_name for f in replaced(plan.present, plan.route, plan.holding)}
        changing = emptied | plan.leaving
        # No replica may delete, or refer to, what a foreign key protects by a model without it.
        held_classes = changing | plan.newly_connected
        if plan.stored is None or not held_classes:
            moment, put = await self._prepare_and_put(plan, plan.new, author)
        else:
            async with self._held(plan.stored, held_classes) as held:
                await self.check_still_empty(plan, changing)
                await self._check_unwritten(plan, held_classes)
                new = replace(plan.new, hold=held.hold)
                moment, put = await self._prepare_and_put(plan, new, author)
        self._follower.has_put(moment, put, with_owned_until(plan.route, put))
        before = (fragments_of(plan.present), copies_of(plan.present))
        after = (fragments_of(plan.route), copies_of(plan.route))
        for fragment in chain.from_iterable(map(without, before, after)):
            # The change is in force. What may stay behind is of a generation that is never used
            # again: an empty table, or one of a class that is dropped.
            with suppress(Unavailable):
                await self._on(fragment, "write", _dropping(fragment))
        return moment.epoch

    async def _prepare_and_put(
        self, plan: SchemaPlan, new: StoredDatabase, author: Author | None
    ) -> tuple[Moment, StoredDatabase]:
        # Before the catalogue is changed: replicas that read the new layout write there at once.
        for fragment in fragments_of(plan.route):
            previous = same_place(plan.present, fragment)
            await self._on(fragment, "write", _preparing(fragment, previous))
        # The state of a former copy of this name does not describe the new one.
        copies = copies_of(plan.route)
        await self._views.retract(without(copies, copies_of(plan.present)))
        for copy in copies:
            await self._on(copy, "write", _preparing(copy, None))
        before = plan.before.renamed.document if plan.before.renamed else {}
        changes = await offload(True, change_counts, before, new.document)
        if renames := plan.options.rename.values():
            changes = {**changes, "renamed": sum(map(len, renames))}
        return await self._catalogue.put(new, author, changes)

    async def check_still_empty(self, plan: SchemaPlan, changing: Collection[str]) -> None:
        """Refuse if an object was created since its class was found empty; writes are held.

        A class that only leaves a system need not be empty.
        """
        assert plan.present is not None
        for name in sorted({*changing} - plan.dropped_classes - plan.leaving):
            if await self._count(plan.present.classes[name]):
                raise Conflict(f"Objects of {name} were created meanwhile; try again.")

    async def _check_unwritten(self, plan: SchemaPlan, held: Collection[str]) -> None:
        """Refuse if writes to classes that are held are under way, and do not end."""
        # A joint write may be logged, and have reached no record that is counted. One that has
        # ended is still logged for a moment.
        for _ in range(_LOOKS):
            if not await self._catalogue.are_written(plan.new.name, held):
                return
            await asyncio.sleep(_LOOK_S)
        raise Conflict(f"Writes to {', '.join(sorted(held))} are under way; try again.")

    async def _on(
        self,
        fragment: Fragment,
        operation: Literal["read", "write"],
        call: Callable[[Store], Coroutine[Any, Any, _T]],
    ) -> _T:
        guarded = self._systems.get(fragment.system)
        try:
            return await guarded.guarded(lambda: call(guarded.store))
        except StoreError as error:
            raise unavailable(guarded, error, operation) from error


def _noted(change: SchemaChange, notes: Sequence[str]) -> SchemaChange:
    return replace(change, notes=(*change.notes, *notes))


def _dropping(fragment: Fragment) -> Callable[[Store], Coroutine[Any, Any, None]]:
    return lambda store: store.drop(fragment)


def _preparing(
    fragment: Fragment, previous: Fragment | None
) -> Callable[[Store], Coroutine[Any, Any, None]]:
    async def prepare(store: Store) -> None:
        if fragment.joint and not isinstance(store, Lockable):
            raise Conflict(
                f"The system {fragment.system} takes no part in writes over several systems, so it"
                f" can only hold {fragment.class_name} as a whole: bind all of the class to it, or"
                " to other systems."
            )
        if fragment.unique and not is_claiming(store):
            raise Conflict(
                f"The system {fragment.system} keeps no values unique, as {fragment.class_name} has"
                " them: bind the fields to another system."
            )
        await store.prepare(fragment, previous)

    return prepare


def _decided(database: str, epoch: int, decision: Decision) -> PlacementDecided:
    placements = decision.placements.items()
    systems = {node: placement.system for node, placement in placements}
    reasons: dict[str, str] = {node: placement.choice.kind for node, placement in placements}
    return PlacementDecided(database, epoch, systems, reasons)
