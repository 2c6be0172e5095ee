"""Where the values of a copy come from: the same objects, those of a reference, or equal ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from mediator.control.copy_report import Kind
from mediator.data_plane.port import DataPlane, present_objects
from mediator.model.filters import In
from mediator.model.operations import Outcome
from mediator.model.query import Query
from mediator.routing.freshness import STRONG
from mediator.schema.copies import FieldCopy
from mediator.schema.tree import MISSING, MissingType
from mediator.schema.types import Value

__all__ = ["Source", "sources_of"]

_LOOKED_UP: Final = 500
"""Objects that are looked up at once."""

_ENOUGH: Final = 2
"""Sources of one object by which they are known to be duplicates."""


Source: TypeAlias = Value | MissingType | Literal[Kind.ORPHANS, Kind.DUPLICATES]
"""What the source of an object has in its field, or why there is no such source; MISSING: the field
is missing, or nothing leads there."""


async def sources_of(
    plane: DataPlane, database: str, copy: FieldCopy, objects: Sequence[Outcome]
) -> list[Source]:
    """Return the source of each object.

    Raises:
        MediatorError: A system does not answer, or no index serves the look-up.
    """
    by = copy.copy.by
    if by is None:
        return [_value(each, copy.source.name) for each in objects]
    keys = [_value(each, by) for each in objects]
    wanted = [*dict.fromkeys(key for key in keys if key is not MISSING and key is not None)]
    lookup = _Lookup(plane, database, copy)
    found: dict[Any, Source] = {}
    for start in range(0, len(wanted), _LOOKED_UP):
        found |= await lookup.find(wanted[start : start + _LOOKED_UP])
    return [found.get(key, MISSING) for key in keys]


def _value(outcome: Outcome, name: str) -> Any:
    return (outcome.values or {}).get(name, MISSING)


@dataclass(frozen=True, slots=True)
class _Lookup:
    """The look-up of sources in another class, or in the same one."""

    _plane: DataPlane
    _database: str
    _copy: FieldCopy

    async def find(self, keys: Sequence[Any]) -> dict[Any, Source]:
        if self._copy.equal is None:
            return await self._by_id(keys)
        return await self._by_equality(self._copy.equal, keys)

    async def _by_id(self, ids: Sequence[str]) -> dict[Any, Source]:
        copied = self._copy.source.name
        name, fields = self._copy.source_class, (copied,)
        found = await present_objects(self._plane, self._database, name, ids, fields)
        return {id_: _value(found[id_], copied) if id_ in found else Kind.ORPHANS for id_ in ids}

    async def _by_equality(self, equal: str, keys: Sequence[Any]) -> dict[Any, Source]:
        """Find the objects with some values; two with one value are duplicates.

        Of twice as many objects as there are values, some value has two, unless these are all
        objects. So each query leaves fewer values, however many objects have one of them.
        """
        found: dict[Any, Source] = dict.fromkeys(keys, Kind.ORPHANS)
        left = [*keys]
        while left:
            objects = await self._query(equal, left)
            of_key: dict[Any, list[Outcome]] = {key: [] for key in left}
            for each in objects:
                of_key[_value(each, equal)].append(each)
            for key, sources in of_key.items():
                if sources:
                    first = _value(sources[0], self._copy.source.name)
                    found[key] = first if len(sources) == 1 else Kind.DUPLICATES
            if len(objects) < _ENOUGH * len(left):
                break
            left = [key for key, sources in of_key.items() if len(sources) < _ENOUGH]
        return found

    async def _query(self, equal: str, keys: Sequence[Any]) -> list[Outcome]:
        query = Query(
            self._database,
            self._copy.source_class,
            In((equal,), tuple(keys)),
            limit=_ENOUGH * len(keys),
            fields=tuple(sorted({equal, self._copy.source.name})),
        )
        items = (await self._plane.query(query, STRONG)).items
        return [item.outcome for item in items]
