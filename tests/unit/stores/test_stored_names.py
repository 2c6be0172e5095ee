"""Stored names: calls are translated both ways, and redo records survive renamed fields."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mediator.model.filters import And, Compare, Comparison, Exists, Not, Or
from mediator.model.operators import Operator, OperatorCall, OperatorFailure
from mediator.model.query import Aggregate, Computation, Function, OrderBy
from mediator.routing.fragments import Steps
from mediator.routing.model import ClassRoute
from mediator.schema.tree import ClassSchema, Field
from mediator.schema.types import FieldType
from mediator.stores.port import (
    Fragment,
    Lockable,
    Mirror,
    Queryable,
    Read,
    Record,
    SearchRequest,
    SemiJoin,
    Status,
    SystemConfig,
    Write,
    WriteKind,
    WriteResult,
)
from mediator.stores.renamed import with_stored_names
from mediator.stores.stored_names import names_of, stored_fragment
from mediator.transactions.preparing import PreparedOperation
from mediator.transactions.redo import dump_operation, load_operation
from mediator.transactions.targets import LockTarget
from tests.conformance.real_stores import STORES

NAMING_TYPES: Final = {"Fragment", "FragmentOf", "RecordKey", "Read", "Write", "SearchRequest"}
"""Types of arguments by which a call names fields."""

SWAPPED: Final = {"a": "b", "b": "a"}


def fragment(*names: str, **stored: str) -> Fragment:
    """Return a fragment with fields in one group, some of which are stored under other names."""
    fields = {name: Field(name, FieldType.INTEGER) for name in names}
    return Fragment("s", "d", "c", fields, {"main": tuple(names)}, stored_names=stored)


def route(target: Fragment) -> ClassRoute:
    return ClassRoute(ClassSchema("c", dict(target.fields)), 1, (target,))


def write(target: Fragment, **members: Any) -> Write:
    return Write(target, "x", WriteKind.UPDATE, "op", ("main",), **members)


def test_a_fragment_without_stored_names_is_returned_itself() -> None:
    plain = fragment("a", "b")
    assert stored_fragment(plain) is plain
    assert names_of(plain).fragment is plain


def test_a_fragment_is_stored_by_its_stored_names() -> None:
    stored = stored_fragment(fragment("a", "c", a="x"))
    assert list(stored.fields) == ["x", "c"]
    assert [field.name for field in stored.fields.values()] == ["x", "c"]
    assert (stored.groups, stored.stored_names) == ({"main": ("x", "c")}, {})


@given(
    st.dictionaries(st.sampled_from("abc"), st.integers()),
    st.sampled_from([{}, {"a": "x"}, SWAPPED, {"a": "b", "b": "c", "c": "a"}]),
)
def test_writes_and_records_are_translated_both_ways(
    values: dict[str, Any], names: dict[str, str]
) -> None:
    translation = names_of(fragment("a", "b", "c", **names))
    public = write(
        fragment("a", "b", "c", **names),
        values=values,
        unset=("a",),
        operators=(OperatorCall("b", Operator.INC, 1),),
        returning=("a", "c"),
    )
    stored = translation.write(public)
    assert stored.values == {names.get(name, name): value for name, value in values.items()}
    translated_back = translation.public_write(stored)
    assert (translated_back.values, translated_back.unset, translated_back.operators) == (
        public.values,
        public.unset,
        public.operators,
    )
    assert translated_back.returning == public.returning
    assert translation.record(Record("x", 1, {"main": 1}, stored.values)).values == values


def test_stored_names_without_a_field_are_left_out() -> None:
    names = names_of(fragment("a", a="x"))
    stored = write(
        names.fragment,
        values={"x": 1, "gone": 2},
        unset=("gone",),
        operators=(OperatorCall("gone", Operator.INC, 1),),
        returning=("gone",),
    )
    public = names.public_write(stored)
    assert (public.values, public.unset, public.operators, public.returning) == (
        {"a": 1},
        (),
        (),
        None,
    )


def test_a_failure_names_the_field() -> None:
    failed = WriteResult(Status.REFUSED, failure=OperatorFailure("x", "overflow"))
    assert names_of(fragment("a", a="x")).result(failed).failure == OperatorFailure("a", "overflow")


def test_searches_and_aggregates_are_by_stored_names() -> None:
    swapping, renaming = fragment("a", "b", **SWAPPED), fragment("a", a="z")
    equal, exists = Compare(Comparison.EQ, ("a", "k"), 1), Exists(("b",))
    join = SemiJoin("a", renaming, Exists(("a",)), (SemiJoin("a", swapping, None),))
    filter_ = And((equal, Or((Not(exists), Exists(("id",))))))
    search = names_of(swapping).search(
        SearchRequest(
            swapping, filter_, (OrderBy(("a",), True),), 1, fields=("b",), semi_joins=(join,)
        )
    )
    swapped = And(
        (
            Compare(Comparison.EQ, ("b", "k"), 1),
            Or((Not(Exists(("a",))), Exists(("id",)))),
        )
    )
    assert (search.filter, search.order, search.fields) == (
        swapped,
        (OrderBy(("b",), True),),
        ("a",),
    )
    assert names_of(swapping).public_filter(search.filter) == filter_
    (inner_join,) = search.semi_joins
    assert (inner_join.reference, inner_join.filter) == ("b", Exists(("z",)))
    assert inner_join.fragment is stored_fragment(renaming)
    assert inner_join.inner == (SemiJoin("z", stored_fragment(swapping), None),)
    count, total = Computation(Function.COUNT), Computation(Function.SUM, ("a",))
    aggregate = Aggregate((("b",),), {"n": count, "total": total}, Exists(("n",)))
    assert names_of(swapping).aggregate(aggregate) == Aggregate(
        (("a",),), {"n": count, "total": Computation(Function.SUM, ("b",))}
    )


class _QueryableStore:
    """A store that is only queryable."""

    config = None

    def __init__(self) -> None:
        self.calls: list[Sequence[Read]] = []

    async def read(self, calls: Sequence[Read]) -> list[Record | None]:
        self.calls.append(calls)
        return [Record(call.id, 1, {"main": 1}, {"x": 1}) for call in calls]

    def pushdown(self, *_: Any) -> None: ...

    async def find(self, _: Any) -> None: ...


async def test_a_decorated_store_offers_what_the_store_does() -> None:
    store = _QueryableStore()
    decorated: Any = with_stored_names(store)  # type: ignore[arg-type]  # a partial store
    assert issubclass(type(decorated), Queryable)
    assert not issubclass(type(decorated), Lockable | Mirror)
    plain = [Read(fragment("x"), "o")]
    assert [record.values for record in await decorated.read(plain)] == [{"x": 1}]
    assert store.calls.pop() is plain
    renamed = [*plain, Read(fragment("a", a="x"), "o", ("a",))]
    assert [record.values for record in await decorated.read(renamed)] == [{"x": 1}, {"a": 1}]
    assert [call.fields for call in store.calls.pop()] == [None, ("x",)]


@pytest.mark.parametrize("kind", STORES)
def test_all_calls_that_name_fragments_are_translated(kind: str) -> None:
    """Except calls for copies, which have no stored names, and documents of the server."""
    untranslated = {"absorb", "replace_copies", "forget", "documents"}
    store = STORES[kind](SystemConfig(kind, kind, ""))
    translated = vars(type(with_stored_names(store)))
    for name, call in inspect.getmembers(type(store), inspect.isfunction):
        words = set(re.findall(r"\w+", " ".join(inspect.get_annotations(call).values())))
        if not name.startswith("_") and name not in untranslated and words & NAMING_TYPES:
            assert inspect.isfunction(translated[name]), name


class _LockableStore:
    """A store with two calls that take fragments."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def prepare(self, *arguments: Any) -> None:
        self.calls.append(arguments)

    def lock(self, keys: Any, intent: str, redo: str = "") -> None:
        self.calls.append((keys, intent, redo))


def test_fragments_alone_and_of_records_are_passed_on_by_stored_names() -> None:
    store, plain, renamed = _LockableStore(), fragment("x"), fragment("a", a="x")
    decorated: Any = with_stored_names(store)  # type: ignore[arg-type]  # a partial store
    decorated.prepare(renamed, plain)
    decorated.prepare(renamed)
    decorated.lock([(renamed, "o"), (plain, "p")], "intent", redo="r")
    stored = stored_fragment(renamed)
    assert store.calls == [
        (stored, plain),
        (stored,),
        ([(stored, "o"), (plain, "p")], "intent", "r"),
    ]


def test_redo_records_survive_renamed_and_dropped_fields() -> None:
    """It is logged before fields are renamed and dropped, and applied afterwards."""
    before, after = fragment("price", "tags"), fragment("cost", cost="price")
    step = write(before, values={"price": 1}, unset=("tags",), returning=("price",), intent="i")
    logged = dump_operation(PreparedOperation(LockTarget(route(before), "x"), Steps.of([step])))
    loaded = load_operation(route(after), logged, "i")
    assert isinstance(loaded, PreparedOperation)
    assert loaded.steps is not None
    first = loaded.steps.first
    assert (first.values, first.unset, first.returning) == ({"cost": 1}, (), ("cost",))
    # The reverse, by a replica with the former schema.
    relogged = dump_operation(PreparedOperation(LockTarget(route(after), "x"), Steps.of([first])))
    reloaded = load_operation(route(before), relogged, "i")
    assert isinstance(reloaded, PreparedOperation)
    assert reloaded.steps is not None
    assert reloaded.steps.first.values == {"price": 1}
