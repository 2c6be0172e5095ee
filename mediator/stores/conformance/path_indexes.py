"""Indexes of paths within documents and maps: searches with them, after all kinds of writes.

A store can leave everything to the mediator; the conditions that it pushes must be exact.
"""

from __future__ import annotations

from typing import Final

from mediator.model.filters import ID, And, Compare, Comparison, Exists, In, Like, Not
from mediator.model.operators import Operator, OperatorCall
from mediator.model.query import OrderBy
from mediator.schema.indexed_paths import INDEXED_ITEMS
from mediator.schema.limits import ID_BYTES
from mediator.schema.tree import Field
from mediator.schema.types import FieldType, Value, Values
from mediator.stores.conformance.check import Theme
from mediator.stores.conformance.query_cases import (
    DOCUMENT_PATHS,
    DOCUMENT_VALUES,
    DOCUMENTS,
    PATTERNS,
    WHOLE_FLOATS,
    comparisons,
    constants,
    create_searched_class,
    equalities,
    read_searched_class,
    sample,
)
from mediator.stores.conformance.samples import LONG_TEXTS, collection, counter, plain
from mediator.stores.conformance.scratch import Scratch
from mediator.stores.port import Write

__all__ = ["THEME"]

THEME = Theme("path_indexes")

_AT: Final = ("value",)
_TEXTS: Final = (*("", "a", "b", "1", "é"), *LONG_TEXTS)
_NUMBERS: Final = (
    *(value for value in DOCUMENT_VALUES if type(value) in (int, float)),
    *WHOLE_FLOATS,
)


def _document(*paths: str, name: str = "value") -> Field:
    return plain(FieldType.DOCUMENT, name, indexed_paths=paths)


def _map(items: FieldType, *paths: str) -> Field:
    return collection(FieldType.MAP, items, indexed_paths=paths)


@THEME.proves("contract")
async def paths_into_documents_are_found(scratch: Scratch) -> None:
    """An index of a path finds texts and numbers; it does not traverse arrays."""
    key_paths = [keys for _, *keys in DOCUMENT_PATHS]
    paths = dict.fromkeys(".".join(keys) for keys in key_paths if not keys[-1].isdecimal())
    long_rows: list[Values] = [{"value": {"a": text}} for text in LONG_TEXTS]
    rows = await create_searched_class(scratch, [_document(*paths, "0")], [*DOCUMENTS, *long_rows])
    for keys in key_paths:
        await rows.check_all(equalities((*_AT, *keys), (1, "a", True)))
    path = (*_AT, "a")
    await rows.check_all(equalities(path, DOCUMENT_VALUES))
    await rows.check_all(comparisons(path, _NUMBERS[1::2]))
    await rows.check_all(comparisons(path, _TEXTS))
    mixed = (("a", 1), (True, "a"), (None, "a", "b"), (0, None), _TEXTS, _NUMBERS)
    await rows.check_all(In(path, values) for values in mixed)
    await rows.check_all(Like(path, pattern) for pattern in PATTERNS)
    long_id = "i" * ID_BYTES
    await rows.subject.apply_all([rows.subject.creation(long_id, long_rows[0])])
    await rows.subject.apply_all([rows.subject.deletion(long_id)])
    conjunction = And((Compare(Comparison.EQ, path, "a"), Not(Exists((*path, "b")))))
    await rows.check(conjunction, (OrderBy(ID),), limit=2)


@THEME.proves_each(sorted(INDEXED_ITEMS), "items_of_a_map_of_{}_are_found", "contract")
async def items_of_maps(items: FieldType, scratch: Scratch) -> None:
    """An index of a key of a map finds items of type {}."""
    values, keys = sample(items), ("k", "$x", "2024", "é'\"\\%s")
    maps: list[Values] = [{"value": dict.fromkeys(keys, value)} for value in values]
    rows = await create_searched_class(scratch, [_map(items, *keys)], [*maps, {"value": {}}, {}])
    for key in keys:
        await rows.check_all(comparisons((*_AT, key), constants(items)))


@THEME.proves("contract")
async def paths_into_maps_of_documents_are_found(scratch: Scratch) -> None:
    """An index path can lead into the documents of a map."""
    documents = [document["value"] for document in DOCUMENTS if document.get("value") is not None]
    maps: list[Values] = [{"value": {"k": document}} for document in documents]
    rows = await create_searched_class(
        scratch, [_map(FieldType.DOCUMENT, "k.a")], [*maps, {"value": {}}, {}]
    )
    await rows.check_all(comparisons((*_AT, "k", "a"), _TEXTS))
    await rows.check_all(equalities((*_AT, "k", "a"), DOCUMENT_VALUES))


@THEME.proves("contract")
async def indexed_paths_follow_writes(scratch: Scratch) -> None:
    """Path indexes find the current values after every kind of write, including operators."""
    items = FieldType.INTEGER
    subject = await scratch.subject(_document("a.b", name="d"), _map(items, "k"), counter())
    values: Values = {"d": {"a": {"b": "x"}}, "value": {"k": 1, "other": 2}}
    await subject.apply_all([subject.creation(id_, values) for id_ in "12345678"])

    def operate(id_: str, operator: Operator, argument: Value) -> Write:
        return subject.change(id_, operators=(OperatorCall("value", operator, argument),))

    for write in (
        subject.change("1", {"d": {"a": {"b": "y"}}, "value": {"k": 2}}),
        subject.change("2", {"d": {"a": [{"b": "x"}]}, "value": {}}),
        subject.change("3", {"d": None, "value": None}),
        subject.change("4", unset=("d", "value")),
        subject.deletion("5"),
        subject.creation("5", {"d": {"a": {"b": 1}}}),
        subject.replacement("6", {"value": {"k": 2}}),
        subject.change("7", {"n": 1}),
        operate("7", Operator.PUT, {"k": 2}),
        operate("7", Operator.PUT, {"other": 1}),
        operate("7", Operator.REMOVE, "k"),
        operate("8", Operator.REMOVE, "other"),
        operate("4", Operator.PUT, {"k": 1}),
    ):
        await subject.apply_all([write])
        rows = await read_searched_class(subject)
        await rows.check_all(equalities(("d", "a", "b"), ("x", "y", 1)))
        await rows.check_all(equalities((*_AT, "k"), (1, 2)))


@THEME.proves("contract")
async def indexed_paths_are_added_to_records(scratch: Scratch) -> None:
    """Added path indexes find existing records; removed ones are dropped."""
    subject = await scratch.subject(_document())
    rows: list[Values] = [{"value": {"a": i % 3, "b": "xy"[i % 2]}} for i in range(12)]
    await subject.apply_all([subject.creation(str(i), row) for i, row in enumerate(rows)])
    previous = subject.fragment
    for version, paths in enumerate((("a",), ("a", "b"), (), ("b",)), 2):
        changed = scratch.fragment(previous.class_name, [_document(*paths)], schema_version=version)
        subject = await scratch.prepare(changed, previous)
        previous = changed
        await subject.update(str(version), {"value": {"a": 7, "b": "z"}})
        searched = await read_searched_class(subject)
        await searched.check_all(equalities((*_AT, "a"), (1, 7)))
        await searched.check_all(equalities((*_AT, "b"), ("x", "z")))
