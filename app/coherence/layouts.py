"""What copies rest on beside the values of objects: groups, visibility, schema (docs/coherence.md).

The sketch keeps with each partition the layout that its keys are of. A replica whose routing model
says something else adopts its own before it reads or writes anything of the class: it replaces the
old layout, if that is still there, and invalidates the class if copies that were made under the old
one could be missed under the new one. The first replica does it, so one that dies between the
change of a schema and this leaves nothing undone.
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

__all__ = ["ClassLayouts", "adoption", "layout_of", "schema_of"]

_ATTEMPTS: Final = 20


def schema_of(route: ClassRoute) -> str:
    """Return what registrations of queries have to name."""
    return str(route.schema_version)


def layout_of(route: ClassRoute) -> dict[str, Any]:
    """Return the layout of a class: `groups` by field, and the groups that whole objects have.

    `names` has the name of each field by its stored name; null: it was dropped. `generation` is
    another one for each class that ever has the name, in each database that ever has its name. It
    is also another one where the class comes back to a system that it has left, and where it leaves
    that again: its anchor group has another name there. Such a move invalidates the class.
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


def adoption(known: dict[str, Any], wanted: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return the layout to keep from now on, and whether the class must be invalidated.

    A copy is missed if a write announces a key of the new layout that the copy was not reported by
    under the old one: a field has changed its group, or there is a group that whole objects did not
    have. A copy is wrong if a field of it was renamed, or dropped with its values, or if it is of a
    former class of the name: nobody need have notified the sketch of its end.

    Groups of fields that are no more are remembered, for they may come back elsewhere before the
    last copy ends; groups that are no more are not, for whole objects are not reported by them.
    """
    before, after = known["groups"], wanted["groups"]
    moved = any(before.get(name, group) != group for name, group in after.items())
    added = not set(wanted["object_groups"]) <= set(known["object_groups"])
    names = wanted["names"]
    renamed = any(names.get(stored, name) != name for stored, name in known["names"].items())
    another = known["generation"] != wanted["generation"]
    shown = known["visibility"] != wanted["visibility"]
    if another or moved or added or renamed or shown:
        return wanted, True
    return {**wanted, "groups": {**before, **after}}, False


@dataclass(eq=False)
class ClassLayouts:
    _sketch: ServerSketch
    _model: Callable[[], RoutingModel]
    _queries: QueryRegistry
    _adopted: dict[Partition, ClassRoute] = field(default_factory=dict, init=False)

    async def adopt(self, partition: Partition) -> ClassRoute | None:
        """Announce a class's layout to the sketch, once for each that comes into force.

        Returns:
            The route of the class that is in force, if there is one.

        Raises:
            SketchUnavailable: The sketch does not answer.
        """
        route = self._route(partition)
        if route is not None and self._adopted.get(partition) is not route:
            await self.announce(partition, layout_of(route))
            self._adopted[partition] = route
        return route

    async def adopt_all(self, partitions: Iterable[Partition]) -> None:
        """Announce the layouts of classes, those that are not announced yet; raises as `adopt`."""
        unknown = [each for each in partitions if self.adopted(each) is None]
        await asyncio.gather(*(self.adopt(each) for each in unknown))

    def adopted(self, partition: Partition) -> ClassRoute | None:
        """Return the route of a class that is in force, if the sketch has its layout already."""
        route = self._route(partition)
        return route if self._adopted.get(partition) is route else None

    def _route(self, partition: Partition) -> ClassRoute | None:
        database = self._model().databases.get(partition.database)
        return None if database is None else database.classes.get(partition.class_name)

    def forget(self, partition: Partition) -> None:
        """Adopt the layout again next time: the sketch has another schema, or none."""
        self._adopted.pop(partition, None)

    async def announce(self, partition: Partition, wanted: dict[str, Any]) -> None:
        """Put a layout in force, then invalidate what was registered under another schema.

        Between the two no query is registered, by any replica: one that dies there leaves it to
        the next one.
        """
        for _ in range(_ATTEMPTS):  # again if another replica adopts a layout in between
            stored = await self._sketch.layout(partition)
            known = orjson.loads(stored) if stored else None
            layout, invalidate = (wanted, False) if known is None else adoption(known, wanted)
            closed, accepted = _text(layout, accepted=False), _text(layout, accepted=True)
            if stored == accepted:
                return
            if await self._sketch.adopt(partition, stored, closed, invalidate=invalidate):
                await self._queries.invalidate_all(partition)
                if await self._sketch.adopt(partition, closed, accepted, schema=wanted["schema"]):
                    return
        raise SketchUnavailable("The layout of a class changes all the time.")


def _text(layout: dict[str, Any], *, accepted: bool) -> str:
    return orjson.dumps({**layout, "accepted": accepted}, option=orjson.OPT_SORT_KEYS).decode()
