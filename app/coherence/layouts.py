"""What copies rest on beside the values of objects: groups, visibility, schema (docs/coherence.md).

The sketch keeps with each partition the layout that its keys are of. A replica whose routing model
says something else sees to it before it reads or writes anything of the class: *adopt* puts the new
one in the place of the old one, if that is still there, and begins the partition anew if copies
that were made under the old one could be missed under the new one. Whoever comes first does it, so
a replica that dies between the change of a schema and this leaves nothing undone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import orjson

from app.coherence.query_registry import RegisteredQueries
from mediator.routing.model import ClassRoute, RoutingModel
from sketch.protocol.port import Partition, ServerSketch, SketchUnavailable

__all__ = ["Adoption", "Layouts", "adoption", "layout_of", "schema_of"]

_TRIES: Final = 20


class Adoption(NamedTuple):
    """What becomes of a layout.

    Attributes:
        layout: What the sketch keeps from now on.
        anew: Whether copies could be missed, so that the partition begins anew.
    """

    layout: dict[str, Any]
    anew: bool


def schema_of(route: ClassRoute) -> str:
    """Return what registrations of queries have to name."""
    return str(route.schema_version)


def layout_of(route: ClassRoute) -> dict[str, Any]:
    """Return the layout of a class: `groups` by field, all `partitions`, `visibility`, `schema`."""
    return {
        "groups": dict(route.group_of),
        "parts": sorted(route.groups),
        "visibility": route.schema.cache.visibility,
        "schema": schema_of(route),
    }


def adoption(known: dict[str, Any], wanted: dict[str, Any]) -> Adoption:
    """Decide what a change of layouts asks for.

    A copy is missed if a write marks a key under the new layout that the copy was not reported by
    under the old one: a field has changed its group, or there is a group that whole objects did not
    have. Groups of fields that are no more are remembered, for they may come back elsewhere before
    the last copy ends; groups that are no more are not, for whole objects are not reported by them.
    """
    before, after = known["groups"], wanted["groups"]
    moved = any(before.get(name, group) != group for name, group in after.items())
    added = not set(wanted["parts"]) <= set(known["parts"])
    if moved or added or known["visibility"] != wanted["visibility"]:
        return Adoption(wanted, anew=True)
    return Adoption({**wanted, "groups": {**before, **after}}, anew=False)


class Layouts:
    """Has the sketch know the layouts of classes.

    Args:
        sketch: The server's sketch.
        model: Returns the routing model in force.
        results: The registered queries.
    """

    def __init__(
        self, sketch: ServerSketch, model: Callable[[], RoutingModel], results: RegisteredQueries
    ) -> None:
        self._sketch = sketch
        self._model = model
        self._results = results
        self._adopted: dict[Partition, ClassRoute] = {}

    async def adopt(self, partition: Partition) -> ClassRoute | None:
        """See to it that the sketch has a class's layout, once for each that comes into force.

        Returns:
            The route of the class that is in force, if there is one.

        Raises:
            SketchUnavailable: The sketch does not answer.
        """
        route = self._route(partition)
        if route is not None and self._adopted.get(partition) is not route:
            await self._adopt(partition, layout_of(route))
            self._adopted[partition] = route
        return route

    def adopted(self, partition: Partition) -> ClassRoute | None:
        """Return the route of a class that is in force, if the sketch has its layout already."""
        route = self._route(partition)
        return route if self._adopted.get(partition) is route else None

    def _route(self, partition: Partition) -> ClassRoute | None:
        database = self._model().databases.get(partition.database)
        return None if database is None else database.classes.get(partition.class_name)

    def forget(self, partition: Partition) -> None:
        """Look again next time: the sketch says that it knows another schema, or none."""
        self._adopted.pop(partition, None)

    async def _adopt(self, partition: Partition, wanted: dict[str, Any]) -> None:
        """Put a layout in force, then take back what was registered under another schema.

        Between the two no query is registered, whoever asks: a replica that dies there leaves it to
        the next one.
        """
        for _ in range(_TRIES):
            told = await self._sketch.layout(partition)
            known = orjson.loads(told) if told else None
            new = Adoption(wanted, anew=False) if known is None else adoption(known, wanted)
            closed, settled = _text(new.layout, settled=False), _text(new.layout, settled=True)
            if told == settled:
                return
            if await self._sketch.adopt(partition, told, closed, invalidate=new.anew):
                await self._results.take_back(partition)
                if await self._sketch.adopt(partition, closed, settled, schema=wanted["schema"]):
                    return
        raise SketchUnavailable("The layout of a class changes all the time.")


def _text(layout: dict[str, Any], *, settled: bool) -> str:
    return orjson.dumps({**layout, "settled": settled}, option=orjson.OPT_SORT_KEYS).decode()
