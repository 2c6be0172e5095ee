"""The layout of cached copies of a class: groups, visibility, schema (docs/coherence.md).

The sketch stores with each partition the layout of its keys. A replica with another layout in its
routing model adopts its own before it reads or writes anything of the class: it replaces the old
layout, if that is still stored, and invalidates the class if writes under the new layout could miss
copies made under the old one. The first replica to use the class does this, so one that dies after
a schema change leaves nothing undone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from app.coherence.query_registry import QueryRegistry
from mediator.routing.model import ClassRoute, RoutingModel
from sketch.protocol.port import Partition, ServerSketch, SketchUnavailable

__all__ = ["ClassLayouts", "layout_of", "merge_layouts", "schema_of"]

_MAX_ATTEMPTS: Final = 20


def schema_of(route: ClassRoute) -> str:
    """Return the schema version that registrations of queries must name."""
    return str(route.schema_version)


def layout_of(route: ClassRoute) -> dict[str, Any]:
    """Return the layout of a class: `groups` by field, and the groups of whole objects.

    `names` has the name of each field by its stored name; null: it was dropped. `generation`
    differs between all classes that ever have the name, in all databases that ever have its name.
    It also changes when the class returns to a system that it left, and when it leaves that system
    again, as the anchor group then has another name. Such a move invalidates the class.
    """
    anchor = route.anchor
    return {
        "generation": f"{anchor.database_id}/{anchor.stored_as}",
        "names": {**dict.fromkeys(route.dropped), **route.public_names},
        "groups": dict(route.group_of),
        "object_groups": sorted(route.groups),
        "visibility": route.schema.cache.visibility,
        "schema": schema_of(route),
    }


def merge_layouts(stored: dict[str, Any], new: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return the layout to store, and whether the class must be invalidated.

    A write misses a copy if it announces a key of the new layout under which the copy was not
    reported: a field has changed its group, or whole objects have a new group. A copy is wrong if
    one of its fields was renamed, or dropped with its values, or if it belongs to a former class of
    the name, of whose end the sketch may not have been notified.

    Groups of dropped fields are kept, as the fields can return in another group before the last
    copy expires; dropped groups are not kept, as whole objects are not reported under them.
    """
    old_groups, new_groups = stored["groups"], new["groups"]
    moved = any(old_groups.get(name, group) != group for name, group in new_groups.items())
    added = not set(new["object_groups"]) <= set(stored["object_groups"])
    names = new["names"]
    renamed = any(names.get(stored_as, name) != name for stored_as, name in stored["names"].items())
    has_new_generation = stored["generation"] != new["generation"]
    has_new_visibility = stored["visibility"] != new["visibility"]
    if has_new_generation or moved or added or renamed or has_new_visibility:
        return new, True
    return {**new, "groups": {**old_groups, **new_groups}}, False


@dataclass(eq=False)
class ClassLayouts:
    _sketch: ServerSketch
    _model: Callable[[], RoutingModel]
    _queries: QueryRegistry
    _adopted: dict[Partition, ClassRoute] = field(default_factory=dict, init=False)

    async def adopt(self, partition: Partition) -> ClassRoute | None:
        """Announce a class's layout to the sketch, once for each new route.

        Returns:
            The current route of the class, if there is one.

        Raises:
            SketchUnavailable: The sketch does not answer.
        """
        route = self._route(partition)
        if route is not None and self._adopted.get(partition) is not route:
            await self.announce(partition, layout_of(route))
            self._adopted[partition] = route
        return route

    async def adopt_all(self, partitions: Iterable[Partition]) -> None:
        """Announce the layouts of classes not yet announced; raise the errors of `adopt`."""
        missing = [partition for partition in partitions if self.adopted(partition) is None]
        await asyncio.gather(*(self.adopt(partition) for partition in missing))

    def adopted(self, partition: Partition) -> ClassRoute | None:
        """Return the current route of a class if the sketch has its layout already."""
        route = self._route(partition)
        return route if self._adopted.get(partition) is route else None

    def _route(self, partition: Partition) -> ClassRoute | None:
        database = self._model().databases.get(partition.database)
        return None if database is None else database.classes.get(partition.class_name)

    def forget(self, partition: Partition) -> None:
        """Adopt the layout again next time, as the sketch has another schema, or none."""
        self._adopted.pop(partition, None)

    async def announce(self, partition: Partition, new: dict[str, Any]) -> None:
        """Store a layout, then invalidate the queries that were registered under another schema.

        Between the two steps no replica can register a query; if the replica dies there, the next
        one finishes.
        """
        for _ in range(_MAX_ATTEMPTS):  # retried if another replica adopts a layout in between
            stored = await self._sketch.layout(partition)
            parsed = orjson.loads(stored) if stored else None
            layout, invalidate = (new, False) if parsed is None else merge_layouts(parsed, new)
            closed, accepted = _text(layout, accepted=False), _text(layout, accepted=True)
            if stored == accepted:
                return
            if await self._sketch.adopt(partition, stored, closed, invalidate=invalidate):
                await self._queries.invalidate_all(partition)
                if await self._sketch.adopt(partition, closed, accepted, schema=new["schema"]):
                    return
        raise SketchUnavailable("The layout of a class changes all the time.")


def _text(layout: dict[str, Any], *, accepted: bool) -> str:
    return orjson.dumps({**layout, "accepted": accepted}, option=orjson.OPT_SORT_KEYS).decode()
