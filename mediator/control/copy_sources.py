"""Sources of a copy's values: the same objects, referenced ones, or equal ones."""

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

_KEYS_PER_LOOKUP: Final = 500
"""Keys per look-up."""

_DUPLICATES: Final = 2
"""Number of sources of one object that proves duplicates."""


Source: TypeAlias = Value | MissingType | Literal[Kind.ORPHANS, Kind.DUPLICATES]
"""The value of a source's field, or why there is no such source; MISSING: the field is missing,
or no value leads to a source."""


async def sources_of(
    plane: DataPlane, database: str, copy: FieldCopy, objects: Sequence[Outcome]
) -> list[Source]:
    """Return the source of each object.

    Raises:
        MediatorError: A system does not answer, or no index serves the look-up.
    """
    by = copy.copy.by
    if by is None:
        return [_value(target, copy.source.name) for target in objects]
    keys = [_value(target, by) for target in objects]
    distinct = [*dict.fromkeys(key for key in keys if key is not MISSING and key is not None)]
    lookup = _Lookup(plane, database, copy)
    sources: dict[Any, Source] = {}
    for start in range(0, len(distinct), _KEYS_PER_LOOKUP):
        sources |= await lookup.find(distinct[start : start + _KEYS_PER_LOOKUP])
    return [sources.get(key, MISSING) for key in keys]


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
        source_field = self._copy.source.name
        name, fields = self._copy.source_class, (source_field,)
        objects = await present_objects(self._plane, self._database, name, ids, fields)
        return {
            id_: _value(objects[id_], source_field) if id_ in objects else Kind.ORPHANS
            for id_ in ids
        }

    async def _by_equality(self, equal: str, keys: Sequence[Any]) -> dict[Any, Source]:
        """Find the objects with some values; two with one value are duplicates.

        Among twice as many objects as values, some value has two, unless these are all objects. So
        each query leaves fewer values, however many objects share one of them.
        """
        results: dict[Any, Source] = dict.fromkeys(keys, Kind.ORPHANS)
        remaining = [*keys]
        while remaining:
            objects = await self._query(equal, remaining)
            of_key: dict[Any, list[Outcome]] = {key: [] for key in remaining}
            for source in objects:
                of_key[_value(source, equal)].append(source)
            for key, sources in of_key.items():
                if sources:
                    first = _value(sources[0], self._copy.source.name)
                    results[key] = first if len(sources) == 1 else Kind.DUPLICATES
            if len(objects) < _DUPLICATES * len(remaining):
                break
            remaining = [key for key, sources in of_key.items() if len(sources) < _DUPLICATES]
        return results

    async def _query(self, equal: str, keys: Sequence[Any]) -> list[Outcome]:
        query = Query(
            self._database,
            self._copy.source_class,
            In((equal,), tuple(keys)),
            limit=_DUPLICATES * len(keys),
            fields=tuple(sorted({equal, self._copy.source.name})),
        )
        items = (await self._plane.query(query, STRONG)).items
        return [item.outcome for item in items]
