"""Setting schemas: validate, place, prepare the stores, keep, put in force.

Order of events, with what a crash in between leaves behind:

1. the new layout is decided, under a lock of this replica;     nothing
2. writes to empty classes that are about to change are held;   nothing
3. those classes are found to be empty still;                   nothing
4. the stores are prepared (tables, indexes), idempotently;     unused tables
5. the catalogue is changed, if its version is the one seen;    the next start serves the new model
6. the new routing model is put in force;
7. fragments that nothing uses any more are dropped.            unused tables

A write that is held is refused (503) and finds the new place when it is tried again. Writes are
held by this replica only. Another replica adopts the new routing model within about a second; what
it creates in that second in a class that was empty, and has moved, is lost. Classes that hold data
are not concerned: they do not move here.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal, TypeVar

from mediator.catalogue.schemas import CatalogueSchemas, StoredDatabase
from mediator.control.changes import (
    drifted,
    left_behind,
    reinterpreted,
    replaced,
    stored_form,
    unused,
    would_move,
)
from mediator.control.follower import Follower
from mediator.control.layout import (
    copies_of,
    fragments_of,
    primary_of,
    route_of,
    same_place,
)
from mediator.control.primaries import (
    PrimaryKeeper,
    check_primary,
    notes_on_primary,
    outdated,
    unheld,
    without_copies,
)
from mediator.control.registry import Registry
from mediator.errors import (
    Conflict,
    MediatorError,
    NotFound,
    Place,
    PreconditionFailed,
    SchemaInvalid,
    Unavailable,
)
from mediator.observation import Observer, PlacementDecided
from mediator.operations.calls import StoreCalls
from mediator.operations.executor import Executor
from mediator.placement.advice import notes_on, placements_of
from mediator.placement.decide import Decision, decide, pins_of, primary_mistake
from mediator.placement.routing import ClassRoute, DatabaseRoute, RoutingModel
from mediator.planes import SchemaChange
from mediator.schema.parse import parse_schema
from mediator.schema.tree import Schema
from mediator.stores.port import Fragment, Lockable, Store, StoreError
from mediator.systems import Systems, unavailable

__all__ = ["Schemas"]

_T = TypeVar("_T")


class Schemas:
    """Reads and sets the schemas of databases."""

    def __init__(
        self,
        catalogue: CatalogueSchemas,
        registry: Registry,
        systems: Systems,
        executor: Executor,
        calls: StoreCalls,
        keeper: PrimaryKeeper,
        observe: Observer,
    ) -> None:
        self._calls = calls
        self._keeper = keeper
        self._catalogue = catalogue
        self._registry = registry
        self._systems = systems
        self._executor = executor
        self._observe = observe
        self._changing = asyncio.Lock()
        self._follower = Follower(catalogue, executor)
        self._doubtful: set[Fragment] = set()

    async def refresh(self) -> None:
        """Put in force what others have changed; see `Follower.look`."""
        if self._doubtful and not self._changing.locked():
            async with self._changing:
                await self._settle()
        else:
            await self._follower.look()

    @asynccontextmanager
    async def unchanged(self) -> AsyncIterator[RoutingModel]:
        """Keep this replica from changing schemas while the block runs; yields the newest model."""
        async with self._changing:
            await self._settle()
            yield self._executor.model

    async def all(self) -> list[dict[str, Any]]:
        """List the databases."""
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
        decision = decide(route.schema, self._registry.candidates(), pins)
        return self._change(stored, model.epoch, decision, schema=route.schema)

    async def put(
        self, name: str, document: Any, *, dry_run: bool, version: int | None
    ) -> SchemaChange:
        """Set a schema; see `ControlPlane.set_schema`."""
        schema = await asyncio.to_thread(parse_schema, name, document)
        if mistake := primary_mistake(schema, self._registry.candidates()):
            raise SchemaInvalid(mistake, places=[Place("/primary/system", mistake)])
        async with self._changing:
            await self._settle()
            stored = self._follower.stored(name)
            seen = stored.version if stored else 0
            if version is not None and version != seen:
                raise PreconditionFailed(f"The schema of {name} has version {seen} now.")
            model = self._executor.model
            present = model.databases.get(name)
            holding = await self._holding(present)
            decision, moves = self._decide(schema, present, holding)
            new = stored_form(schema, decision, stored, without_copies(self._systems))
            check_primary(schema, primary_of(new), self._systems)
            route = route_of(new)
            moves += left_behind(present, route, holding)
            if dry_run:
                return self._change(new, model.epoch, decision, moves, schema=schema)
            if moves:
                raise would_move(moves)
            epoch = await self._put_in_force(new, route, holding)
        self._observe(_decided(name, epoch, decision))
        return self._change(new, epoch, decision, schema=schema)

    async def remove(self, name: str, *, dry_run: bool) -> dict[str, Any]:
        """Drop a database with its data; returns the objects of each class."""
        async with self._changing:
            await self._settle()
            self._expect(name)
            route = self._executor.model.databases[name]
            counts = {c: await self._count_or_prepare(r) for c, r in route.classes.items()}
            if not dry_run:
                await self._drop(name, route)
        return {"database": name, "objects": counts, "dropped": not dry_run}

    def _change(
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
            placements=placements_of(decision),
            moves=tuple(moves),
            notes=(*notes_on(decision), *notes_on_primary(schema, self._keeper)),
        )

    def _expect(self, name: str) -> StoredDatabase:
        stored = self._follower.stored(name)
        if stored is None:
            raise NotFound(f"There is no database {name}.")
        return stored

    async def _settle(self) -> None:
        """Adopt a model; what a failed change has held back and is still in force goes on."""
        await self._follower.catch_up()
        if self._doubtful:
            databases = self._executor.model.databases.values()
            in_force = {fragment for route in databases for fragment in fragments_of(route)}
            self._calls.reinstate(self._doubtful & in_force)
            self._doubtful.clear()

    @asynccontextmanager
    async def _held(self, fragments: Collection[Fragment]) -> AsyncIterator[None]:
        """Hold writes to fragments while the block runs, and for good if it succeeds.

        A block that fails may have changed the catalogue all the same (its answer was lost, the
        request was cancelled): then the next look at the catalogue tells whether they go on.
        """
        try:
            await self._calls.retire(fragments)
            yield
        except BaseException as error:
            self._doubtful.update(fragments)
            if isinstance(error, MediatorError):
                with suppress(Unavailable):
                    await self._settle()
            raise

    async def _drop(self, name: str, route: DatabaseRoute) -> None:
        fragments = fragments_of(route)
        async with self._held(fragments):
            await self._keeper.retract(copies_of(route))
            for fragment in (*fragments, *copies_of(route)):
                await self._on(fragment, "write", _dropping(fragment))
            moment = await self._catalogue.remove(name)
        self._follower.has_removed(moment, name)

    async def _holding(self, present: DatabaseRoute | None) -> set[str]:
        """Name the classes that hold objects."""
        if present is None:
            return set()
        return {c for c, route in present.classes.items() if await self._count(route)}

    async def _count(self, route: ClassRoute) -> int:
        return await self._on(route.anchor, "read", lambda store: store.count(route.anchor))

    def _decide(
        self, schema: Schema, present: DatabaseRoute | None, holding: set[str]
    ) -> tuple[Decision, list[dict[str, Any]]]:
        """Decide placements; classes that hold data stay, and what the change would move is told.

        Scores that have drifted since the last schema are no reason to refuse this one: they make
        a proposal. Only what the change itself would move counts.
        """
        candidates = self._registry.candidates()
        if present is None or not holding:
            return decide(schema, candidates), []
        decision = decide(schema, candidates, pins_of(present, sorted(holding)))
        moved_anyway = drifted(present, candidates, holding)
        moves = [
            {"node": m.node, "from": m.current, "to": m.proposed, "reason": m.reason}
            for m in decision.moves
            if m.required or (m.node, m.proposed) not in moved_anyway
        ]
        return decision, moves + reinterpreted(schema, present.schema, holding)

    async def _put_in_force(
        self, new: StoredDatabase, route: DatabaseRoute, holding: set[str]
    ) -> int:
        present = self._executor.model.databases.get(new.name)
        changing = replaced(present, route, holding)
        async with self._held(changing):
            await self._check_still_empty(present, changing)
            for fragment in fragments_of(route):
                previous = same_place(present, fragment)
                await self._on(fragment, "write", _preparing(fragment, previous))
            # What is known of a copy by this name is not about the one that is made now.
            await self._keeper.retract(unheld(present, route))
            for copy in copies_of(route):
                await self._on(copy, "write", _preparing(copy, None))
            moment = await self._catalogue.put(new)
        self._follower.has_put(moment, new, route)
        for fragment in (*unused(present, route), *outdated(present, route)):
            with suppress(Unavailable):  # the change is in force; an empty table may stay behind
                await self._on(fragment, "write", _dropping(fragment))
        return moment.epoch

    async def _check_still_empty(
        self, present: DatabaseRoute | None, changing: Sequence[Fragment]
    ) -> None:
        """Refuse if an object was created since its class was found empty; writes are held."""
        for name in sorted({fragment.class_name for fragment in changing}):
            assert present is not None
            if await self._count(present.classes[name]):
                raise Conflict(f"Objects of {name} were created meanwhile; try again.")

    async def _count_or_prepare(self, route: ClassRoute) -> int:
        """Count objects; a removal that was cut short may have left no table to count in."""
        try:
            return await self._count(route)
        except Unavailable:
            await self._on(route.anchor, "write", _preparing(route.anchor, None))
            return await self._count(route)

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
        await store.prepare(fragment, previous)

    return prepare


def _decided(database: str, epoch: int, decision: Decision) -> PlacementDecided:
    placements = decision.placements.items()
    systems = {node: placement.system for node, placement in placements}
    reasons: dict[str, str] = {node: placement.choice.kind for node, placement in placements}
    return PlacementDecided(database, epoch, systems, reasons)
