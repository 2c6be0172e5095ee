"""Plans a schema change: parses the schema, and determines its effects on existing data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mediator.base.clock import Clock
from mediator.base.errors import PreconditionFailed, SchemaInvalid
from mediator.base.offload import offload
from mediator.catalogue.stored_databases import StoredDatabase
from mediator.control.effects import decide_change, left_behind
from mediator.control.follower import Follower
from mediator.control.layout import route_of, view_system_of
from mediator.control.moves import moved_fields
from mediator.control.overrides import changed_overrides
from mediator.control.port import ChangeOptions
from mediator.control.registry import Registry
from mediator.control.schema_checks import (
    check_dropped,
    check_indexes,
    check_unique,
    check_view,
    without_copies,
)
from mediator.control.schema_plan import Before, SchemaPlan, stored_form
from mediator.data_plane.executor import Executor
from mediator.operations.fragment_calls import FragmentCalls
from mediator.placement.candidates import Candidate
from mediator.placement.decide import Decision, decide, named_mistakes, pins_of
from mediator.routing.model import DatabaseRoute
from mediator.schema.errors import invalid
from mediator.schema.overrides import in_force
from mediator.schema.parse import parse_schema
from mediator.schema.renames import Renames, check_renames, renamed_document
from mediator.schema.tree import Schema
from mediator.stores.systems import Systems

__all__ = ["SchemaPlanner", "check_version"]


@dataclass(eq=False)
class SchemaPlanner:
    _registry: Registry
    _systems: Systems
    _executor: Executor
    _follower: Follower
    _calls: FragmentCalls
    _clock: Clock

    async def decide(self, route: DatabaseRoute) -> Decision:
        """Decide where the present schema would be placed now, including classes with objects."""
        pins = pins_of(route, list(route.classes))
        candidates = self._registry.candidates()
        overrides = in_force(route.overrides, self._clock.now())
        return await offload(True, decide, route.schema, candidates, pins, overrides)

    async def parse(
        self, name: str, document: Any, candidates: Sequence[Candidate] | None = None
    ) -> Schema:
        schema = await offload(True, parse_schema, name, document)
        systems = candidates or self._registry.candidates()
        if mistakes := await offload(True, named_mistakes, schema, systems):
            raise invalid(mistakes, SchemaInvalid)
        return schema

    async def plan(
        self,
        schema: Schema,
        version: int | None,
        options: ChangeOptions,
        candidates: Sequence[Candidate] | None = None,
    ) -> SchemaPlan:
        await self._follower.catch_up()
        name = schema.database
        stored = self._follower.stored(name)
        check_version(name, stored, version)
        model = self._executor.model
        route = self._executor.model.databases.get(name)
        moved = moved_fields(options, route, schema)
        dropped = (f"{copy.source_class}.{copy.source.name}" for copy in moved)
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
        new = await offload(True, stored_form, schema, decision, before, overrides, now, unfit)
        check_view(schema, view_system_of(new), self._systems)
        route = await offload(True, route_of, new)
        check_indexes(route)
        moves += left_behind(present, route, holding, options.drop)
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
        if stored is None:
            return Before(None, None, present, holding, options.history)
        if not options.rename:
            return Before(stored, stored, present, holding)
        under_new_names = with_renamed_fields(stored, options.rename)
        route = await offload(True, route_of, under_new_names)
        return Before(stored, under_new_names, route, holding)

    async def _holding(self, present: DatabaseRoute | None) -> set[str]:
        classes = present.classes if present else {}
        return {name for name, route in classes.items() if await self._calls.has_objects(route)}


def check_version(name: str, stored: StoredDatabase | None, seen: int | None) -> None:
    """Raise `PreconditionFailed` if a schema has another version than the caller has seen."""
    version = stored.version if stored else 0
    if seen is not None and seen != version:
        raise PreconditionFailed(f"The schema of {name} has version {version} now.")


def with_renamed_fields(stored: StoredDatabase, renames: Renames) -> StoredDatabase:
    """Return a database as if its fields had always had their new names.

    All later steps (moves, tightened constraints, the group and system to which a field is pinned,
    its override) go by names, so they take a renamed field for its former self. Only the layout
    records that it is stored under another name.
    """
    layout = {
        name: _renamed_layout(layout, renames.get(name, {}))
        for name, layout in stored.layout.items()
    }
    overrides = {
        _renamed_node(node, renames): override for node, override in stored.overrides.items()
    }
    document = renamed_document(stored.document, renames)
    return replace(stored, document=document, layout=layout, overrides=overrides)


def _renamed_layout(layout: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    groups = {
        group: {**placed, "fields": [names.get(name, name) for name in placed["fields"]]}
        for group, placed in layout["groups"].items()
    }
    former = layout["names"]
    unchanged = {names.get(name, name): stored for name, stored in former.items()}
    new = {new: former.get(old, old) for old, new in names.items()}
    # Constraints that are being built are abandoned: they would have other names.
    building = None if names else layout.get("building")
    return {
        **layout,
        "groups": groups,
        "names": {**unchanged, **new},
        "freed": sorted({*layout["freed"], *names}),
        "building": building,
    }


def _renamed_node(node: str, renames: Renames) -> str:
    class_name, _, field = node.partition(".")
    name = renames.get(class_name, {}).get(field)
    return node if name is None else f"{class_name}.{name}"
