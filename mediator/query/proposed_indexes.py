"""Missing indexes that would help a query: of fields, of elements, and of paths."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import takewhile
from typing import Final

from mediator.model.evaluate import kind_of
from mediator.model.filters import ID, Between, Compare, Comparison, Contains, In, Path, conjuncts
from mediator.model.query import Query
from mediator.routing.model import ClassRoute
from mediator.schema.indexed_paths import is_indexable
from mediator.schema.limits import INDEX_FIELDS
from mediator.schema.tree import ClassSchema
from mediator.schema.types import ARRAYS, SCALARS, FieldType, Value

__all__ = ["proposed_indexes"]

_INDEXED_KINDS: Final = frozenset({kind_of(0), kind_of("")})


def proposed_indexes(query: Query, route: ClassRoute) -> tuple[tuple[str, ...], ...]:
    """Return the fields of each missing index that would help a query, the best first.

    An index of several fields serves equality on the first ones, and an order or one range on the
    next: so fields come in this sequence, as far as they are in one cache group on one system.
    """
    schema = route.schema
    equal, ranged, element_fields = _conditions(query, schema)
    order = _order(query, schema, equal)
    is_ordered = bool(order) and (bool(equal) or not ranged or order[0] in ranged)
    names = [*equal, *(order if is_ordered else ranged[:1])]
    compound = tuple(_co_located(names, route))[:INDEX_FIELDS]
    proposed = [] if _exists(schema, equal, compound) else [compound]
    proposed += [(name,) for name in element_fields if not schema.fields[name].index]
    proposed += [(".".join(path),) for path in _paths(query, schema)]
    return tuple(proposed)


def _conditions(query: Query, schema: ClassSchema) -> tuple[list[str], list[str], list[str]]:
    """Return the fields with a condition of equality, of a range, and on an element."""
    equal: dict[str, None] = {}
    ranged: dict[str, None] = {}
    element_fields: dict[str, None] = {}
    for part in conjuncts(query.filter):
        match part:
            case Compare(Comparison.EQ, (name,)):
                equal[name] = None
            case Compare(comparison, (name,)) if comparison is not Comparison.NE:
                ranged[name] = None
            case Between((name,)) | In((name,)):
                ranged[name] = None
            case Contains((name,)):
                element_fields[name] = None
    return (
        [name for name in equal if _is_scalar(schema, name)],
        [name for name in ranged if _is_scalar(schema, name) and name not in equal],
        [name for name in element_fields if _has_elements(schema, name)],
    )


def _paths(query: Query, schema: ClassSchema) -> Iterator[Path]:
    """Yield the paths within documents that are compared with strings or numbers.

    Paths within maps are left out: their keys are data, and proposals are kept and shown.
    """
    for part in conjuncts(query.filter):
        match part:
            case Compare(comparison, (name, *keys), value) if comparison is not Comparison.NE:
                constants: tuple[Value, ...] = (value,)
            case Between((name, *keys), low, high):
                constants = (low, high)
            case In((name, *keys), constants):
                pass
            case _:
                continue
        field = schema.fields.get(name)
        if field is None or field.type is not FieldType.DOCUMENT or not keys:
            continue
        indexed = tuple(keys) in field.indexed_keys or not is_indexable(field, keys)
        if not indexed and all(kind_of(constant) in _INDEXED_KINDS for constant in constants):
            yield (name, *keys)


def _is_scalar(schema: ClassSchema, name: str) -> bool:
    return name in schema.fields and schema.fields[name].type in SCALARS


def _has_elements(schema: ClassSchema, name: str) -> bool:
    field = schema.fields.get(name)
    return field is not None and field.type in ARRAYS and field.items is not FieldType.DOCUMENT


def _order(query: Query, schema: ClassSchema, equal: Collection[str]) -> list[str]:
    """Return the fields of an order that one index can have, without those fixed by equality."""
    levels = [*takewhile(lambda level: level.path != ID, query.order)]
    one_way = len({level.descending for level in levels}) == 1
    plain = all(len(level.path) == 1 and _is_scalar(schema, level.path[0]) for level in levels)
    # Groups are ordered by their computed results.
    if query.aggregate is not None or not (one_way and plain):
        return []
    return [level.path[0] for level in levels if level.path[0] not in equal]


def _co_located(names: Iterable[str], route: ClassRoute) -> Iterator[str]:
    """Yield the first field, and further ones of its cache group that its system holds."""
    first: str | None = None
    for name in names:
        first = first or name
        group = route.schema.fields[name].group == route.schema.fields[first].group
        if group and route.fragment_of[name] is route.fragment_of[first]:
            yield name


def _exists(schema: ClassSchema, equal: Collection[str], names: tuple[str, ...]) -> bool:
    """Whether an index begins with the fields, those of equality in any sequence."""
    single = [(name,) for name, field in schema.fields.items() if field.has_ordered_index]
    fixed = sum(name in equal for name in names)
    return not names or any(
        {*fields[:fixed]} == {*names[:fixed]} and fields[fixed : len(names)] == names[fixed:]
        for fields in (*single, *(index.fields for index in schema.indexes))
    )
