"""Stored names: what the port carries is the same by either name, and redo records survive both."""

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

NAMING: Final = {"Fragment", "FragmentOf", "RecordKey", "Read", "Write", "SearchRequest"}
"""Types of arguments by which a call names fields."""

SWAPPED: Final = {"a": "b", "b": "a"}


def fragment(*names: str, **stored: str) -> Fragment:
    """Return a fragment with fields in one group, some of which are stored under other names."""
    fields = {name: Field(name, FieldType.INTEGER) for name in names}
    return Fragment("s", "d", "c", fields, {"main": tuple(names)}, stored_names=stored)


def route(of: Fragment) -> ClassRoute:
    return ClassRoute(ClassSchema("c", dict(of.fields)), 1, (of,))


def write(of: Fragment, **members: Any) -> Write:
    return Write(of, "x", WriteKind.UPDATE, "op", ("main",), **members)


def test_a_fragment_without_stored_names_is_the_very_same() -> None:
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
def test_writes_and_records_come_back(values: dict[str, Any], names: dict[str, str]) -> None:
    both = names_of(fragment("a", "b", "c", **names))
    sent = write(
        fragment("a", "b", "c", **names),
        values=values,
        unset=("a",),
        operators=(OperatorCall("b", Operator.INC, 1),),
        returning=("a", "c"),
    )
    stored = both.write(sent)
    assert stored.values == {names.get(name, name): value for name, value in values.items()}
    back = both.public_write(stored)
    assert (back.values, back.unset, back.operators) == (sent.values, sent.unset, sent.operators)
    assert back.returning == sent.returning
    assert both.record(Record("x", 1, {"main": 1}, stored.values)).values == values


def test_what_has_no_name_is_left_out() -> None:
    names = names_of(fragment("a", a="x"))
    stored = write(
        names.fragment,
        values={"x": 1, "gone": 2},
        unset=("gone",),
        operators=(OperatorCall("gone", Operator.INC, 1),),
        returning=("gone",),
    )
    kept = names.public_write(stored)
    assert (kept.values, kept.unset, kept.operators, kept.returning) == ({"a": 1}, (), (), None)


def test_a_failure_names_the_field() -> None:
    failed = WriteResult(Status.REFUSED, failure=OperatorFailure("x", "overflow"))
    assert names_of(fragment("a", a="x")).result(failed).failure == OperatorFailure("a", "overflow")


def test_searches_and_aggregates_are_by_stored_names() -> None:
    here, there = fragment("a", "b", **SWAPPED), fragment("a", a="z")
    one, other = Compare(Comparison.EQ, ("a", "k"), 1), Exists(("b",))
    join = SemiJoin("a", there, Exists(("a",)), (SemiJoin("a", here, None),))
    filter_ = And((one, Or((Not(other), Exists(("id",))))))
    found = names_of(here).search(
        SearchRequest(here, filter_, (OrderBy(("a",), True),), 1, fields=("b",), semi_joins=(join,))
    )
    swapped = And(
        (
            Compare(Comparison.EQ, ("b", "k"), 1),
            Or((Not(Exists(("a",))), Exists(("id",)))),
        )
    )
    assert (found.filter, found.order, found.fields) == (swapped, (OrderBy(("b",), True),), ("a",))
    assert names_of(here).public_filter(found.filter) == filter_
    (joined,) = found.semi_joins
    assert (joined.reference, joined.filter) == ("b", Exists(("z",)))
    assert joined.fragment is stored_fragment(there)
    assert joined.inner == (SemiJoin("z", stored_fragment(here), None),)
    count, total = Computation(Function.COUNT), Computation(Function.SUM, ("a",))
    aggregate = Aggregate((("b",),), {"n": count, "total": total}, Exists(("n",)))
    assert names_of(here).aggregate(aggregate) == Aggregate(
        (("a",),), {"n": count, "total": Computation(Function.SUM, ("b",))}
    )


class _Searching:
    """A store that is queryable, and nothing else."""

    config = None

    def __init__(self) -> None:
        self.calls: list[Sequence[Read]] = []

    async def read(self, calls: Sequence[Read]) -> list[Record | None]:
        self.calls.append(calls)
        return [Record(call.id, 1, {"main": 1}, {"x": 1}) for call in calls]

    def pushdown(self, *_: Any) -> None: ...

    async def find(self, _: Any) -> None: ...


async def test_a_decorated_store_offers_what_the_store_does() -> None:
    store = _Searching()
    decorated: Any = with_stored_names(store)  # type: ignore[arg-type]  # it is a part of one
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
    """But those of copies, which have no stored names, and documents, which the server makes."""
    untranslated = {"absorb", "replace_copies", "forget", "documents"}
    store = STORES[kind](SystemConfig(kind, kind, ""))
    translated = vars(type(with_stored_names(store)))
    for name, call in inspect.getmembers(type(store), inspect.isfunction):
        words = set(re.findall(r"\w+", " ".join(inspect.get_annotations(call).values())))
        if not name.startswith("_") and name not in untranslated and words & NAMING:
            assert inspect.isfunction(translated[name]), name


class _Locking:
    """A store that has two calls with fragments."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def prepare(self, *arguments: Any) -> None:
        self.calls.append(arguments)

    def lock(self, keys: Any, intent: str, redo: str = "") -> None:
        self.calls.append((keys, intent, redo))


def test_fragments_alone_and_of_records_are_passed_on_by_stored_names() -> None:
    store, plain, renamed = _Locking(), fragment("x"), fragment("a", a="x")
    decorated: Any = with_stored_names(store)  # type: ignore[arg-type]  # it is a part of one
    decorated.prepare(renamed, plain)
    decorated.prepare(renamed)
    decorated.lock([(renamed, "o"), (plain, "p")], "intent", redo="r")
    stored = stored_fragment(renamed)
    assert store.calls == [
        (stored, plain),
        (stored,),
        ([(stored, "o"), (plain, "p")], "intent", "r"),
    ]


def test_redo_records_are_right_whatever_fields_are_called() -> None:
    """One that was logged before fields were renamed and dropped, and is applied afterwards."""
    before, after = fragment("price", "tags"), fragment("cost", cost="price")
    step = write(before, values={"price": 1}, unset=("tags",), returning=("price",), intent="i")
    logged = dump_operation(PreparedOperation(LockTarget(route(before), "x"), Steps.of([step])))
    loaded = load_operation(route(after), logged, "i")
    assert isinstance(loaded, PreparedOperation)
    assert loaded.steps is not None
    first = loaded.steps.first
    assert (first.values, first.unset, first.returning) == ({"cost": 1}, (), ("cost",))
    # And the other way round: by a replica that is behind.
    again = dump_operation(PreparedOperation(LockTarget(route(after), "x"), Steps.of([first])))
    late = load_operation(route(before), again, "i")
    assert isinstance(late, PreparedOperation)
    assert late.steps is not None
    assert late.steps.first.values == {"price": 1}
