"""Setting schemas: validate, place, prepare the stores, keep, put in force.

Order of events, with what a crash in between leaves behind:

1. the new layout is decided, under a lock of this replica;     nothing
2. writes to classes that are about to change stores are held;  nothing
3. the stores are prepared (tables, indexes), idempotently;     unused tables
4. the catalogue is changed, if its version is the one seen;    the next start serves the new model
5. the new routing model is put in force, held writes go on;
6. fragments that nothing uses any more are dropped.            unused tables
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal, TypeVar

from mediator.catalogue.schemas import CatalogueSchemas, StoredDatabase
from mediator.control.layout import layout_of, model_of, route_of
from mediator.control.registry import Registry
from mediator.errors import (
    Conflict,
    DataWouldMove,
    MediatorError,
    NotFound,
    PreconditionFailed,
    Unavailable,
    Unplaceable,
)
from mediator.observation import Observer, PlacementDecided
from mediator.operations.calls import StoreCalls
from mediator.operations.executor import Executor
from mediator.placement.advice import notes_on, placements_of
from mediator.placement.candidates import Candidate
from mediator.placement.decide import NO_PINS, Decision, decide, pins_of
from mediator.placement.routing import ClassRoute, DatabaseRoute, RoutingModel
from mediator.planes import SchemaChange
from mediator.schema.parse import parse_schema
from mediator.schema.render import schema_document
from mediator.schema.tree import Mode, Schema
from mediator.stores.port import Fragment, Store, StoreError
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
        observe: Observer,
    ) -> None:
        self._calls = calls
        self._catalogue = catalogue
        self._registry = registry
        self._systems = systems
        self._executor = executor
        self._observe = observe
        self._changing = asyncio.Lock()

    async def refresh(self) -> None:
        """Put the catalogue's routing model in force if it is newer than ours."""
        if await self._catalogue.epoch() > self._executor.model.epoch:
            self._executor.adopt(model_of(await self._catalogue.snapshot()))

    async def all(self) -> list[dict[str, Any]]:
        """List the databases."""
        stored = (await self._catalogue.snapshot()).databases.values()
        return [
            {
                "name": database.name,
                "mode": database.document["mode"],
                "version": database.version,
                "classes": sorted(database.document["classes"]),
            }
            for database in stored
        ]

    async def get(self, name: str) -> StoredDatabase:
        """Return a stored database; raises `NotFound`."""
        found = (await self._catalogue.snapshot()).databases.get(name)
        if found is None:
            raise NotFound(f"There is no database {name}.")
        return found

    async def present(self, name: str) -> SchemaChange:
        """Return a stored schema with the placements in force."""
        await self.refresh()
        stored = await self.get(name)
        schema = parse_schema(name, stored.document)
        route = self._executor.model.databases.get(name)
        pins = pins_of(route, list(route.classes)) if route else NO_PINS
        decision = decide(schema, self._registry.candidates(), pins)
        return _change(stored, self._executor.model.epoch, decision, ())

    async def put(
        self, name: str, document: Any, *, dry_run: bool, version: int | None
    ) -> SchemaChange:
        """Set a schema; see `ControlPlane.set_schema`."""
        schema = parse_schema(name, document)
        async with self._changing:
            snapshot = await self._catalogue.snapshot()
            stored = snapshot.databases.get(name)
            seen = stored.version if stored else 0
            if version is not None and version != seen:
                raise PreconditionFailed(f"The schema of {name} has version {seen} now.")
            await self.refresh()
            present = self._executor.model.databases.get(name)
            holding = await self._holding(present)
            decision, moves = self._decide(schema, present, holding)
            new = _stored(schema, decision, stored)
            if dry_run:
                return _change(new, snapshot.epoch, decision, moves)
            if moves:
                raise _would_move(moves)
            epoch = await self._put_in_force(new, holding)
        self._observe(PlacementDecided(name, epoch, _systems_of(decision)))
        return _change(new, epoch, decision, ())

    async def remove(self, name: str, *, dry_run: bool) -> dict[str, Any]:
        """Drop a database with its data; returns the objects of each class."""
        async with self._changing:
            stored = await self.get(name)
            await self.refresh()
            route = self._executor.model.databases.get(name) or route_of(stored)
            counts = {c: await self._count(r) for c, r in route.classes.items()}
            if not dry_run:
                await self._drop(name, route)
        return {"database": name, "objects": counts, "dropped": not dry_run}

    async def _drop(self, name: str, route: DatabaseRoute) -> None:
        fragments = _fragments(route)
        await self._calls.retire(fragments)
        try:
            for fragment in fragments:
                await self._on(fragment, "write", _dropping(fragment))
            epoch = await self._catalogue.remove(name)
        except Unavailable:
            self._calls.reinstate(fragments)
            raise
        model = self._executor.model
        kept = {n: r for n, r in model.databases.items() if n != name}
        self._executor.adopt(RoutingModel(epoch, kept))

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
        drifted = _drifted(present, candidates, holding)
        moves = [
            {"node": m.node, "from": m.current, "to": m.proposed, "reason": m.reason}
            for m in decision.moves
            if m.required or (m.node, m.proposed) not in drifted
        ]
        return decision, moves + _reinterpreted(schema, present.schema, holding)

    async def _put_in_force(self, new: StoredDatabase, holding: set[str]) -> int:
        route = route_of(new)
        present = self._executor.model.databases.get(new.name)
        unused = _unused(present, route)
        for fragment in _fragments(route):
            previous = _same_place(present, fragment)
            await self._on(fragment, "write", _preparing(fragment, previous))
        await self._calls.retire(unused)
        try:
            await self._check_still_empty(present, unused, holding)
            epoch = await self._catalogue.put(new)
        except MediatorError:
            self._calls.reinstate(unused)
            raise
        databases = {**self._executor.model.databases, new.name: route}
        self._executor.adopt(RoutingModel(epoch, databases))
        for fragment in unused:
            await self._on(fragment, "write", _dropping(fragment))
        return epoch

    async def _check_still_empty(
        self, present: DatabaseRoute | None, unused: Sequence[Fragment], holding: set[str]
    ) -> None:
        """Refuse if an object was created since its class was found empty; writes are held."""
        for name in sorted({fragment.class_name for fragment in unused} - holding):
            assert present is not None
            if await self._count(present.classes[name]):
                raise Conflict(f"Objects of {name} were created meanwhile; try again.")

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
    return lambda store: store.prepare(fragment, previous)


def _stored(schema: Schema, decision: Decision, stored: StoredDatabase | None) -> StoredDatabase:
    document = schema_document(schema)
    versions = {c: _class_version(c, document, stored) for c in schema.classes}
    layout = {} if schema.mode is Mode.ADVISORY else layout_of(decision, versions)
    version = stored.version + 1 if stored else 1
    return StoredDatabase(schema.database, version, document, layout)


def _class_version(class_name: str, document: dict[str, Any], stored: StoredDatabase | None) -> int:
    """Raise a class's version when its own part of the schema changes: ETags name it."""
    if stored is None or class_name not in stored.layout:
        return 1
    before: int = stored.layout[class_name]["version"]
    same = stored.document["classes"].get(class_name) == document["classes"][class_name]
    return before if same else before + 1


def _change(
    stored: StoredDatabase, epoch: int, decision: Decision, moves: Sequence[dict[str, Any]]
) -> SchemaChange:
    return SchemaChange(
        database=stored.name,
        version=stored.version,
        epoch=epoch,
        document=stored.document,
        placements=placements_of(decision),
        moves=tuple(moves),
        notes=tuple(notes_on(decision)),
    )


def _would_move(moves: Sequence[dict[str, Any]]) -> DataWouldMove:
    nodes = ", ".join(move["node"] for move in moves)
    return DataWouldMove(
        f"The change would move or reinterpret data that is there: {nodes}.",
        extra={"plan": list(moves)},
    )


def _drifted(
    present: DatabaseRoute, candidates: Sequence[Candidate], holding: set[str]
) -> set[tuple[str, str]]:
    """Tell what the present schema would place elsewhere today."""
    try:
        today = decide(present.schema, candidates, pins_of(present, sorted(holding)))
    except Unplaceable:
        return set()
    return {(move.node, move.proposed) for move in today.moves}


def _reinterpreted(new: Schema, old: Schema, holding: set[str]) -> list[dict[str, Any]]:
    """Tell which stored values the new schema would read otherwise, or not at all."""
    plan = []
    for class_name in sorted(holding):
        before = old.classes[class_name]
        after = new.classes.get(class_name)
        for name, field in before.fields.items():
            now = after.fields.get(name) if after else None
            if now is None or (now.type, now.items) != (field.type, field.items):
                became = "nothing" if now is None else now.type.value
                reason = f"stored as {field.type.value}, declared as {became}"
                plan.append({"node": f"{class_name}.{name}", "reason": reason})
        if after is None and not before.fields:
            plan.append({"node": class_name, "reason": "the class is gone"})
    return plan


def _fragments(route: DatabaseRoute | None) -> list[Fragment]:
    return [f for r in route.classes.values() for f in r.fragments] if route else []


def _same_place(route: DatabaseRoute | None, fragment: Fragment) -> Fragment | None:
    """Find the fragment of the same class on the same system."""
    for other in _fragments(route):
        if (other.class_name, other.system) == (fragment.class_name, fragment.system):
            return other
    return None


def _unused(present: DatabaseRoute | None, new: DatabaseRoute) -> list[Fragment]:
    return [f for f in _fragments(present) if _same_place(new, f) is None]


def _systems_of(decision: Decision) -> dict[str, str]:
    return {node: placement.system for node, placement in decision.placements.items()}
