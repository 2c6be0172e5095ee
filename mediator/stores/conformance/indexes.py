"""Multi-valued and compound indexes: searches with them and their order, after all kinds of writes.

A store can leave everything to the mediator; the conditions that it pushes must be exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from typing import Any, Final

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
    Not,
    Path,
)
from mediator.model.operators import Operator, OperatorCall
from mediator.model.query import OrderBy
from mediator.schema.limits import ID_BYTES, INDEX_FIELDS, INDEXED_ELEMENTS
from mediator.schema.tree import Field
from mediator.schema.types import ARRAYS, SCALARS, FieldType, Value, Values
from mediator.stores.conformance.check import Theme
from mediator.stores.conformance.expect import NotOffered, same
from mediator.stores.conformance.query_cases import (
    SearchedClass,
    comparisons,
    constants,
    create_searched_class,
    equalities,
    read_searched_class,
    rows_of,
    sample,
)
from mediator.stores.conformance.samples import (
    LONG_TEXTS,
    collection,
    counter,
    edges_of,
    plain,
    short_edges,
    text,
)
from mediator.stores.conformance.scratch import Scratch, ScratchClass
from mediator.stores.port import IndexBuilding, Write

__all__ = ["THEME"]

THEME = Theme("indexes")

_LONG: Final[dict[FieldType, Sequence[Any]]] = {
    FieldType.STRING: LONG_TEXTS,
    FieldType.BINARY: [long_text.encode() for long_text in LONG_TEXTS],
}
"""Elements longer than an index entry."""


def _tags(type_: FieldType, items: FieldType = FieldType.STRING, **rules: Any) -> Field:
    rules = {"index": True, "max_length": INDEXED_ELEMENTS, **rules}
    return collection(type_, items, "tags", **rules)


def _containing(*values: Value) -> Iterator[Filter]:
    path = ("tags",)
    for value in values:
        yield Contains(path, value)
    yield Not(Contains(path, values[0]))
    for first, second in pairwise(values):
        yield And((Contains(path, first), Contains(path, second)))


@THEME.proves_each(sorted(ARRAYS), "elements_of_a_{}_are_found", "contract")
async def elements(type_: FieldType, scratch: Scratch) -> None:
    """An index of the elements of a {} finds records by an element, of every type and length."""
    for items in sorted(SCALARS):
        long_values = _LONG.get(items, ())
        values = [*edges_of(type_, items), list(long_values), *([value] for value in long_values)]
        rows = await create_searched_class(scratch, [_tags(type_, items)], rows_of(values, "tags"))
        await rows.check_all(_containing(*short_edges(items), *long_values))
        await rows.check_all(equalities(("tags",), ()))


@THEME.proves("contract")
async def elements_are_found_page_by_page(scratch: Scratch) -> None:
    """A search for an element gives each record once, in the order of ids and of other fields."""
    values: list[Values] = [{"tags": ["a", "b", "a"][: i % 4], "n": i % 3} for i in range(24)]
    fields = [_tags(FieldType.LIST), counter(index=True)]
    rows = await create_searched_class(scratch, fields, values)
    orders = [(OrderBy(path, down),) for path in (ID, ("n",)) for down in (False, True)]
    for filter_, order in product((Contains(("tags",), "a"), Contains(("tags",), "b")), orders):
        for size in (1, 5, 30):
            await rows.check(filter_, order, limit=size)
        await rows.check_positions(order, filter_)
    conjunction = And((Contains(("tags",), "b"), Compare(Comparison.EQ, ("n",), 1)))
    await rows.check(conjunction)


@THEME.proves_each(sorted(ARRAYS), "elements_of_a_{}_follow_writes", "contract")
async def elements_follow_writes(type_: FieldType, scratch: Scratch) -> None:
    """Records are found by elements of a {} after every kind of write, including operators."""
    subject = await scratch.subject(_tags(type_), counter())
    await subject.apply_all([subject.creation(id_, {"tags": ["a", "b"]}) for id_ in "123456"])
    for write in _writes(subject, type_):
        await subject.apply_all([write])
        rows = await read_searched_class(subject)
        await rows.check_all(_containing("a", "b", "c", "'", "absent"))


def _writes(subject: ScratchClass, type_: FieldType) -> Iterator[Write]:
    def operate(id_: str, operator: Operator, argument: Value = True) -> Write:
        return subject.change(id_, operators=(OperatorCall("tags", operator, argument),))

    yield subject.change("1", {"tags": ["b", "c", "'"]})
    yield subject.change("2", {"tags": None})
    yield subject.change("3", unset=("tags",))
    yield subject.deletion("4")
    yield subject.creation("4", {"tags": ["c"]})
    yield subject.replacement("5", {"n": 1})
    yield subject.replacement("5", {"tags": ["a", "c"]})
    yield subject.change("6", {"n": 7})
    yield operate("6", Operator.REMOVE, "a")
    yield subject.change("6", {"tags": []})
    if type_ is FieldType.SET:
        for id_ in "123":
            yield operate(id_, Operator.ADD_TO_SET, "c")
        return
    for id_ in "123":
        yield operate(id_, Operator.PUSH, "c")
        yield operate(id_, Operator.PUSH_FRONT, "a")
    yield subject.change("1", {"tags": ["a", "a", "b", "a"]})
    # Each removes one of several equal elements.
    yield operate("1", Operator.POP)
    yield operate("1", Operator.SHIFT)
    yield operate("1", Operator.SHIFT)


@THEME.proves("contract")
async def indexes_are_added_to_records(scratch: Scratch) -> None:
    """Added indexes find existing records, also after a further change."""
    plain_tags = _tags(FieldType.LIST, index=False)
    subject = await scratch.subject(plain_tags, counter(), text())
    values: list[Values] = [
        {"tags": ["a"] * (i % 2), "n": i % 3, "s": "xy"[i % 2]} for i in range(12)
    ]
    await subject.apply_all([subject.creation(str(i), row) for i, row in enumerate(values)])
    previous, fields_without_index = subject.fragment, [plain_tags, counter(), text()]
    shapes: tuple[tuple[Sequence[Field], tuple[tuple[str, ...], ...]], ...] = (
        ([_tags(FieldType.LIST), counter(), text()], (("s", "n"),)),
        (fields_without_index, ()),
        ([_tags(FieldType.LIST), counter(), text()], (("s", "n"), ("n", "s"))),
    )
    for version, (fields, indexes) in enumerate(shapes, 2):
        changed = scratch.fragment(
            previous.class_name, fields, schema_version=version, indexes=indexes
        )
        subject = await scratch.prepare(changed, previous)
        previous = changed
        await _check_added(subject)
        await subject.update(str(version), {"tags": ["b"], "n": 5, "s": "x"})
        await _check_added(subject)


@THEME.proves("contract")
async def indexes_are_built_beforehand(scratch: Scratch) -> None:
    """Building for a change removes no present index, and serves once the change is prepared."""
    store = scratch.store
    if not isinstance(store, IndexBuilding):
        raise NotOffered("the store builds no indexes beforehand")
    subject = await scratch.subject(counter(index=True), text())
    rows: list[Values] = [{"n": i % 3, "s": "xy"[i % 2]} for i in range(12)]
    await subject.apply_all([subject.creation(str(i), row) for i, row in enumerate(rows)])
    previous, fields = subject.fragment, [counter(), text(index=True)]
    changed = scratch.fragment(previous.class_name, fields, schema_version=2)
    await store.build(changed, previous)
    same(await store.built(changed), None, "the share of what is built to its end")
    searched = await read_searched_class(subject)
    await searched.check_all(comparisons(("n",), (0, 1)))
    subject = await scratch.prepare(changed, previous)
    await subject.update("1", {"s": "z"})
    searched = await read_searched_class(subject)
    await searched.check_all(comparisons(("s",), ("x", "z")))


async def _check_added(subject: ScratchClass) -> None:
    rows = await read_searched_class(subject)
    await rows.check_all(_containing("a", "b"))
    equal = Compare(Comparison.EQ, ("s",), "x")
    for filter_ in (equal, And((equal, Compare(Comparison.GE, ("n",), 1)))):
        await rows.check(filter_, (OrderBy(("n",)),), limit=3)


_A, _B, _C = ("a",), ("b",), ("c",)
_PAIR_INDEX: Final = (("a", "b"),)


def _pair(type_: FieldType) -> list[Field]:
    return [plain(type_, "a"), plain(type_, "b")]


def _conditions(path: Path, values: Sequence[Value]) -> list[Filter]:
    low, high = values[0], values[-1]
    return [
        *(Compare(comparison, path, high) for comparison in Comparison),
        Between(path, low, high),
        In(path, (low, None)),
        Compare(Comparison.EQ, path, None),
        Exists(path),
        Not(Exists(path)),
    ]


@THEME.proves_each(sorted(SCALARS), "two_fields_of_{}_are_found", "contract")
async def pairs(type_: FieldType, scratch: Scratch) -> None:
    """An index of two fields of type {} finds by equality of one, and ranges of the other."""
    values = sample(type_)
    pair_values = [*values[:: max(1, len(values) // 4)], values[-1]]
    rows = await create_searched_class(
        scratch,
        _pair(type_),
        [*_rows_of_two(pair_values), *rows_of(values, "a", "b")],
        indexes=_PAIR_INDEX,
    )
    operands = constants(type_)[-2:]
    for first, second in product(_conditions(_A, operands), _conditions(_B, operands)):
        await rows.check(And((first, second)))
    for first in (Compare(Comparison.EQ, _A, operands[0]), Compare(Comparison.EQ, _A, None)):
        for down in (False, True):
            order = (OrderBy(_B, down),)
            await rows.check(first, order, limit=3)
            if type_ is not FieldType.BINARY:
                await rows.check_positions(order, first)


def _rows_of_two(values: Sequence[Value]) -> list[Values]:
    """Return records with every pair of some values, null and missing."""
    first_columns: list[Values] = [{}, *({"a": value} for value in (None, *values))]
    second_columns: list[Values] = [{}, *({"b": value} for value in (None, *values))]
    return [first | second for first, second in product(first_columns, second_columns)]


async def _three(scratch: Scratch) -> SearchedClass:
    """Create records with combinations of values, null and missing in three fields."""
    fields = [counter("a"), text("b"), counter("c", index=True)]
    first_columns: list[Values] = [{}, {"a": None}, {"a": 1}, {"a": -2}]
    second_columns: list[Values] = [{}, {"b": None}, {"b": "x"}, {"b": "x\x01"}, {"b": "é"}]
    rows = [
        first | second | {"c": i}
        for first, second in product(first_columns, second_columns)
        for i in range(2)
    ]
    return await create_searched_class(scratch, fields, rows, indexes=(("a", "b", "c"), ("b", "a")))


_EQUAL: Final = (
    Compare(Comparison.EQ, _A, 1),
    Compare(Comparison.EQ, _A, None),
    Not(Exists(_A)),
    And((Compare(Comparison.EQ, _A, 1), Compare(Comparison.EQ, _B, "x"))),
    And((Compare(Comparison.EQ, _B, "x"), Compare(Comparison.GE, _A, -2))),
    And((In(_A, (1, -2)), Compare(Comparison.EQ, _B, "x\x01"))),
    Compare(Comparison.GT, _B, "x"),
)


@THEME.proves("contract")
async def compound_indexes_keep_any_order(scratch: Scratch) -> None:
    """Searches with compound indexes return any requested order, page by page."""
    rows = await _three(scratch)
    paths = ((_A,), (_B,), (_C,), (_B, _C), (_A, _B), (_A, _B, _C), (_B, _A), (_C, _A), (ID,))
    orders = [
        tuple(OrderBy(path, down) for path in order_paths)
        for order_paths, down in product(paths, (False, True))
    ]
    orders += [(OrderBy(_A), OrderBy(_B, True)), (OrderBy(_B, True), OrderBy(ID))]
    for filter_, order in product((None, *_EQUAL), orders):
        await rows.check(filter_, order, limit=4)
        await rows.check_positions(order, filter_)


@THEME.proves("contract")
async def texts_of_any_length_are_indexed_together(scratch: Scratch) -> None:
    """A compound index takes long texts in all of its fields, under a long id."""
    names = [f"f{i}" for i in range(INDEX_FIELDS)]
    subject = await scratch.subject(*map(text, names), indexes=(tuple(names),))
    ids = ["i" * ID_BYTES, "j" * ID_BYTES]
    rows: list[Values] = [
        {n: long_text[i:] for i, n in enumerate(names)} for long_text in LONG_TEXTS[1:]
    ]
    await subject.apply_all([subject.creation(*pair) for pair in zip(ids, rows, strict=True)])
    searched = await read_searched_class(subject)
    for row in rows:
        await searched.check(And(tuple(Compare(Comparison.EQ, (n,), row[n]) for n in names)))


@THEME.proves("contract")
async def compound_indexes_follow_writes(scratch: Scratch) -> None:
    """Compound indexes find the current records after every kind of write."""
    subject = await scratch.subject(counter("a"), text("b"), counter("c"), indexes=_PAIR_INDEX)
    values: Values = {"a": 1, "b": "x", "c": 0}
    await subject.apply_all([subject.creation(id_, values) for id_ in "12345678"])
    add = OperatorCall("a", Operator.INC, 1)
    for write in (
        subject.change("1", {"a": 2}),
        subject.change("2", operators=(add,)),
        subject.change("3", {"b": "y"}, operators=(add,)),
        subject.change("4", {"a": None}),
        subject.change("4", {"c": 9}),
        subject.change("5", unset=("b",)),
        subject.deletion("6"),
        subject.creation("6", {"b": "x"}),
        subject.replacement("7", {"a": 2, "b": "y"}),
        subject.replacement("8"),
    ):
        await subject.apply_all([write])
        rows = await read_searched_class(subject)
        for a, b in product((1, 2, None), ("x", "y", None)):
            equal = Compare(Comparison.EQ, _A, a)
            await rows.check(And((equal, Compare(Comparison.EQ, _B, b))))
            await rows.check(equal, (OrderBy(_B),))
