"""Translates filters to conditions of MongoDB, where these hold for exactly the same objects.

Input from a client becomes an escaped step of a path, or the operand of an operator, never the name
of an operator.

MongoDB paths traverse arrays. Fields have known types; within documents, a condition excludes
arrays at each step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from mediator.model.filters import (
    ID,
    And,
    Between,
    Compare,
    Comparison,
    Contains,
    Exists,
    Filter,
    In,
    Like,
    Not,
    Or,
    Path,
)
from mediator.schema.types import ARRAYS, TEXTS, FieldType, Value
from mediator.stores.mongo.codec import path_key
from mediator.stores.mongo.layout import Document, Layout
from mediator.stores.mongo.search.constants import Constants, Inexact, containing, matching

__all__ = ["Conditions"]

_NULL: Final[Document] = {"$eq": None, "$exists": True}
_PRESENT: Final[Document] = {"$exists": True}
_NO_ARRAY: Final[Document] = {"$not": {"$type": "array"}}

_NO_RECORD: Final[Document] = {"_id": {"$in": []}}
_ALL_RECORDS: Final[Document] = {"_id": {"$exists": True}}

_OPERATORS: Final = {
    Comparison.LT: "$lt",
    Comparison.LE: "$lte",
    Comparison.GT: "$gt",
    Comparison.GE: "$gte",
}


@dataclass(frozen=True, slots=True)
class _FieldPath:
    """The target of a path.

    Attributes:
        path: The server's path.
        constants: How constants are compared with its value.
        type: The type of its value; None: JSON, within a document.
        guards: Conditions that exclude arrays, one for each step; the last one is on the target.
    """

    path: str
    constants: Constants
    type: FieldType | None
    guards: tuple[Document, ...] = ()


@dataclass(frozen=True, slots=True)
class Conditions:
    """Translates filters on one class."""

    layout: Layout
    is_stand_in: bool

    def of(self, filter_: Filter) -> Document | None:
        """Return a condition equivalent to a filter, or None."""
        try:
            return self._translate(filter_)
        except Inexact:
            return None

    def _translate(self, filter_: Filter) -> Document:
        match filter_:
            case And(parts):
                return {"$and": list(map(self._translate, parts))} if parts else _ALL_RECORDS
            case Or(parts):
                return {"$or": list(map(self._translate, parts))} if parts else _NO_RECORD
            case Not(part):
                return {"$nor": [self._translate(part)]}
            case Compare(Comparison.NE, path, value):
                return {"$nor": [self._equal(path, (value,))]}
            case Compare(Comparison.EQ, path, value):
                return self._equal(path, (value,))
            case In(path, values):
                return self._equal(path, values)
            case Exists(path):
                field_path = self._locate(path)
                return _all([*field_path.guards[:-1], {field_path.path: _PRESENT}])
        return self._translate_value_test(filter_)

    def _translate_value_test(self, filter_: Compare | Between | Like | Contains) -> Document:
        """Translate a condition that holds only for values."""
        field_path = self._locate(filter_.path)
        guards, bound = list(field_path.guards), field_path.constants.bound
        match filter_:
            case Compare(comparison, _, value):
                test = {_OPERATORS[comparison]: bound(value)}
            case Between(_, low, high):
                test = {"$gte": bound(low), "$lte": bound(high)}
            case Like(_, pattern):
                guards += _texts_only(field_path)
                test = matching(pattern, ordered=field_path.constants.ordered)
            case Contains(path, value):
                test = self._containing(path, field_path, value)
        return _all([*guards, {field_path.path: test}])

    def _equal(self, path: Path, values: Iterable[Value]) -> Document:
        field_path = self._locate(path)
        forms = [form for v in values if v is not None for form in field_path.constants.equals(v)]
        test: Document = {field_path.path: {"$eq": forms[0]} if len(forms) == 1 else {"$in": forms}}
        if None in values:
            test = {"$or": [test, {field_path.path: _NULL}]} if forms else {field_path.path: _NULL}
        return _all([*field_path.guards, test])

    def _containing(self, path: Path, field_path: _FieldPath, value: Value) -> Document:
        if field_path.type in TEXTS and isinstance(value, str):
            return containing(value, ordered=field_path.constants.ordered)
        field = self.layout.fragment.fields.get(path[0])
        if field is None or field_path.type not in ARRAYS or len(path) > 1 or value is None:
            raise Inexact
        items = self._constants(field.items, ordered=False)
        return {"$elemMatch": {"$in": items.equals(value)}}

    def _locate(self, path: Path) -> _FieldPath:
        if path == ID:
            return _FieldPath(
                "_id", self._constants(FieldType.STRING, ordered=True), FieldType.STRING
            )
        field = self.layout.fragment.fields[path[0]]
        at = self.layout.paths[path[0]]
        if len(path) == 1:
            constants = self._constants(field.type, ordered=field.type in TEXTS)
            return _FieldPath(at, constants, field.type)
        is_map = field.type is FieldType.MAP
        if FieldType.DOCUMENT in (field.type, is_map and field.items):
            return self._document_path(at, path[1:])
        key, *remaining_keys = path[1:]
        if remaining_keys or not is_map:
            raise Inexact
        constants = self._constants(field.items, ordered=False)
        return _FieldPath(f"{at}.{path_key(key)}", constants, field.items)

    def _document_path(self, at: str, keys: Path) -> _FieldPath:
        guards = []
        for key in keys:
            at = f"{at}.{path_key(key)}"
            guards.append({at: _NO_ARRAY})
        return _FieldPath(at, self._constants(None, ordered=False), None, tuple(guards))

    def _constants(self, type_: FieldType | None, *, ordered: bool) -> Constants:
        return Constants(type_, ordered=ordered, is_stand_in=self.is_stand_in)


def _all(conditions: list[Document]) -> Document:
    return conditions[0] if len(conditions) == 1 else {"$and": conditions}


def _texts_only(field_path: _FieldPath) -> list[Document]:
    """Return a condition that requires a text, where other types are possible.

    Without it, mongo-java-server matches anything that can be converted to a text.
    """
    if field_path.type is None:
        return [{field_path.path: {"$type": "string"}}]
    if field_path.type not in TEXTS:
        raise Inexact
    return []
