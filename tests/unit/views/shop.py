"""A shop whose views tests share: its schema, its changes, and full evaluation as the oracle.

The oracle knows nothing of networks: it scans all objects of all classes, each time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from mediator.model.change import Change, kind_of
from mediator.model.evaluate import Lookup, holds, key_of, lookup_of
from mediator.model.filters import Filter
from mediator.query.aggregation import Groups, lookup_of_row
from mediator.query.filter_parser import FilterParser
from mediator.query.json_node import Node
from mediator.query.parser import parse_aggregate
from mediator.query.paths import NameScope, ResolvedPath, row_document
from mediator.routing.model import ClassRoute
from mediator.schema.parse import parse_schema
from mediator.schema.tree import MISSING, ClassSchema
from mediator.schema.types import Values
from mediator.stores.port import Fragment

CLASSES: dict[str, Any] = {
    "customers": {
        "fields": {
            "name": {"type": "string"},
            "city": {"type": "string"},
            "rank": {"type": "integer"},
        }
    },
    "orders": {
        "fields": {
            "customer": {"type": "reference", "to": "customers"},
            "amount": {"type": "integer"},
            "price": {"type": "float", "group": "prices"},
            "total": {"type": "decimal", "group": "prices"},
            "tags": {"type": "set", "items": "string"},
            "note": {"type": "document"},
        }
    },
    "returns": {
        "fields": {
            "order": {"type": "reference", "to": "orders"},
            "count": {"type": "integer"},
        }
    },
}
SCHEMA = parse_schema("shop", {"classes": CLASSES})

GROUPS: dict[str, dict[str, tuple[str, ...]]] = {
    "customers": {"main": ("city", "name", "rank")},
    "orders": {"main": ("amount", "customer", "note", "tags"), "prices": ("price", "total")},
    "returns": {"main": ("count", "order")},
}

Objects = Mapping[str, Mapping[str, Values]]
"""The values of objects, by class and id."""


def routes() -> dict[str, ClassRoute]:
    return {
        name: ClassRoute(class_, 1, (Fragment("redis", "shop", name, class_.fields, GROUPS[name]),))
        for name, class_ in SCHEMA.classes.items()
    }


def changes_of(
    class_name: str, id_: str, before: Values | None, after: Values | None, version: int
) -> list[Change]:
    """Return the changes of one write as the feed has them: one for each group that it writes."""
    codec = routes()[class_name].codec
    images = [None if values is None else codec.encode(values) for values in (before, after)]
    changes: list[Change] = []
    for group, names in GROUPS[class_name].items():
        old, new = [None if i is None else _of_group(i, names) for i in images]
        kind = "delete" if new is None else kind_of("replace", absent=old is None)
        changes.append(
            Change(
                f"op{version}:{group}",
                *("shop", class_name, id_, group, version, kind, old, new, 0, "shop"),
            )
        )
    return changes


def update_of(class_name: str, id_: str, values: Values, touched: Values, version: int) -> Change:
    """Return the change of an update that touches fields of one group."""
    codec = routes()[class_name].codec
    [group] = {g for g, names in GROUPS[class_name].items() if set(names) & touched.keys()}
    before = codec.encode({name: values[name] for name in touched if name in values})
    after = codec.encode(touched)
    common = ("shop", class_name, id_, group, version, "update", before, after, 0, "shop")
    return Change(f"op{version}:{group}", *common)


def _of_group(image: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: image[name] for name in names if name in image}


def full_evaluation(document: Mapping[str, Any], objects: Objects) -> Counter[bytes]:
    """Return the result of a view: the count of each row, by the row as JSON."""
    class_ = SCHEMA.classes[document["class"]]
    joined: dict[str, ClassSchema] = {}
    rows: list[dict[str, Lookup]] = [{"": lookup} for lookup in _lookups(objects, class_.name)]
    for join in _list(document.get("join", [])):
        rows = list(_join_rows(rows, join, objects, NameScope(class_, dict(joined))))
        if not join.get("anti"):
            joined[join["as"]] = _class_of(join, NameScope(class_, dict(joined)))
    scope = NameScope(class_, joined)
    filter_ = _filter(document, scope)
    lookups = [_lookup_of(row) for row in rows]
    lookups = [lookup for lookup in lookups if filter_ is None or holds(filter_, lookup)]
    if "aggregate" in document:
        return Counter(map(_text, _aggregate(document, scope, lookups)))
    names = document.get("fields", ["id", *class_.fields])
    columns = {name: scope.find(name) for name in names}
    return Counter(
        _text(row_document(columns, [lookup(c.path) for c in columns.values()]))
        for lookup in lookups
    )


def canonical(rows: Mapping[bytes, int]) -> Counter[bytes]:
    """Return a result with the members of its rows in order."""
    return Counter({_text(orjson.loads(text)): count for text, count in rows.items()})


def _text(row: Mapping[str, Any]) -> bytes:
    return orjson.dumps(row, option=orjson.OPT_SORT_KEYS)


def _list(joins: Any) -> list[dict[str, Any]]:
    return joins if isinstance(joins, list) else [joins]


def _lookups(objects: Objects, class_name: str) -> list[Lookup]:
    return [lookup_of(id_, values) for id_, values in objects[class_name].items()]


def _lookup_of(row: Mapping[str, Lookup]) -> Lookup:
    return lambda path: row[path[0]](path[1:]) if path[0] in row else row[""](path)


def _class_of(join: Mapping[str, Any], scope: NameScope) -> ClassSchema:
    if "class" in join:
        return SCHEMA.classes[join["class"]]
    return SCHEMA.classes[str(scope.find(join["reference"]).reference)]


def _join_rows(
    rows: Sequence[dict[str, Lookup]], join: Mapping[str, Any], objects: Objects, scope: NameScope
) -> Iterator[dict[str, Lookup]]:
    class_ = _class_of(join, scope)
    inner, filter_ = NameScope(class_), _filter(join, NameScope(class_))
    on = join["on"] if "on" in join else {"id": join["reference"]}
    keys = [(inner.find(name), scope.find(path)) for name, path in on.items()]
    for row in rows:
        partners = [
            candidate
            for candidate in _lookups(objects, class_.name)
            if (filter_ is None or holds(filter_, candidate))
            and all(_agree(candidate, one, _lookup_of(row), other) for one, other in keys)
        ]
        if not join.get("anti"):
            yield from ({**row, join["as"]: partner} for partner in partners)
        elif not partners:
            yield row


def _agree(inner: Lookup, one: ResolvedPath, outer: Lookup, other: ResolvedPath) -> bool:
    left, right = inner(one.path), outer(other.path)
    if left is None or right is None or left is MISSING or right is MISSING:
        return False
    key = key_of(left)  # type: ignore[arg-type]
    return key is not None and key == key_of(right)  # type: ignore[arg-type]


def _filter(document: Mapping[str, Any], scope: NameScope) -> Filter | None:
    node = Node(dict(document), "", [])
    return FilterParser(scope).read(node["filter"])


def _aggregate(
    document: Mapping[str, Any], scope: NameScope, lookups: Sequence[Lookup]
) -> Iterator[dict[str, Any]]:
    aggregate, results = parse_aggregate(Node(dict(document), "", [])["aggregate"], scope)
    assert aggregate is not None
    assert results is not None
    groups = Groups(aggregate, 1_000)
    for lookup in lookups:
        groups.add(lookup)
    columns = {**results.groups, **(results.computed or {})}
    for row in groups.rows():
        if aggregate.having is None or holds(aggregate.having, lookup_of_row(aggregate, row)):
            yield row_document(columns, (*row.group, *row.computed.values()))
