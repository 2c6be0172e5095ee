"""Planning steps, merging fragments and encoding redo records, without a store."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import orjson
import pytest

from mediator.base.clock import SystemClock
from mediator.model.guard import NullGuard
from mediator.model.operations import Condition, Create, Delete, Get, Outcome, Put, Update
from mediator.model.operators import Operator, OperatorCall
from mediator.operations.calls import StoreCalls
from mediator.operations.merge import merge_records
from mediator.routing.fragments import Steps, plan_read, plan_write
from mediator.routing.model import ClassRoute
from mediator.schema.tree import ClassSchema, Field
from mediator.schema.types import FieldType, Values
from mediator.stores.port import Fragment, Record, RecordState, WriteKind
from mediator.stores.systems import Systems
from mediator.transactions.preparing import PendingOperation, PreparedOperation, prepare
from mediator.transactions.redo import dump_operation, load_operation
from mediator.transactions.targets import LockedObject, LockTarget

FIELDS = {
    "title": Field("title", FieldType.STRING),
    "price": Field("price", FieldType.DECIMAL),
    "at": Field("at", FieldType.TIMESTAMP),
    "raw": Field("raw", FieldType.BINARY),
    "hits": Field("hits", FieldType.INTEGER, group="hits"),
}
AT = datetime(2026, 5, 4, 3, 2, 1, 7, tzinfo=UTC)
VALUES: Values = {"title": "t", "price": Decimal("1.50"), "at": AT, "raw": b"\x00\xff", "hits": 1}
HEAD = ("news", "articles", "x", "op")


def fragment(system: str, groups: dict[str, tuple[str, ...]]) -> Fragment:
    names = [name for members in groups.values() for name in members]
    return Fragment(system, "news", "articles", {n: FIELDS[n] for n in names}, groups)


MAIN: dict[str, tuple[str, ...]] = {"main": ("title", "price", "at", "raw")}
SPLIT = ClassRoute(
    ClassSchema("articles", FIELDS),
    1,
    (fragment("a", MAIN), fragment("b", {"hits": ("hits",)})),
)
WHOLE = ClassRoute(
    ClassSchema("articles", FIELDS), 1, (fragment("a", {**MAIN, "hits": ("hits",)}),)
)


def test_a_class_on_one_system_needs_one_call() -> None:
    assert len(plan_read(WHOLE, Get("news", "articles", "x"))) == 1
    steps = plan_write(WHOLE, Put(*HEAD, values=VALUES), {"main": 1, "hits": 2})
    assert not steps.rest
    assert steps.first.expect == {"main": 1, "hits": 2}
    assert steps.first.remember is None


def test_only_the_first_step_has_conditions() -> None:
    put = Put(*HEAD, Condition(present=True), values=VALUES)
    steps = plan_write(SPLIT, put, {"main": 1, "hits": 2})
    [second] = steps.rest
    assert (steps.first.expect, steps.first.require_present) == ({"main": 1}, True)
    assert (second.expect, second.require_present) == ({}, False)
    assert second.values == {"hits": 1}


def test_a_put_that_must_not_replace_creates() -> None:
    put = Put(*HEAD, Condition(present=False), values=VALUES)
    kinds = [write.kind for write in plan_write(SPLIT, put, {}).all]
    assert kinds == [WriteKind.CREATE, WriteKind.REPLACE]


def test_an_update_touches_only_the_groups_of_its_fields() -> None:
    operators = (OperatorCall("hits", Operator.INC, 1),)
    update = Update(*HEAD, values={"title": "u"}, operators=operators)
    steps = plan_write(SPLIT, update, {})
    assert [(w.fragment.system, w.groups) for w in steps.all] == [
        ("a", ("main",)),
        ("b", ("hits",)),
    ]
    assert steps.all[1].returning == ("hits",)
    first_only = plan_write(SPLIT, replace(update, operators=()), {})
    assert [write.fragment.system for write in first_only.all] == ["a"]


@pytest.mark.parametrize(
    "operation",
    [
        Create(*HEAD, values=VALUES),
        Put(*HEAD, Condition(present=True), "print", values=VALUES),
        Delete(*HEAD),
        Update(
            *HEAD,
            values={"title": None, "price": Decimal("9e-3")},
            unset=("raw",),
            operators=(OperatorCall("hits", Operator.INC, -(2**63)),),
        ),
    ],
    ids=["create", "put", "delete", "update"],
)
def test_a_redo_record_restores_its_steps(
    operation: Create | Put | Update | Delete,
) -> None:
    steps = _steps_of(operation)
    record = orjson.loads(
        orjson.dumps(dump_operation(PreparedOperation(LockTarget(SPLIT, "x"), steps)))
    )
    loaded = load_operation(SPLIT, record, "m")
    assert isinstance(loaded, PreparedOperation)
    assert loaded.steps == steps


def test_a_step_without_changes_has_a_kind_unknown_to_older_versions() -> None:
    """They would apply it to a document of MongoDB as an empty one."""
    steps = _steps_of(Update(*HEAD, Condition(), "print"))
    assert [(write.kind, write.groups) for write in steps.all] == [(WriteKind.UPDATE, ())] * 2
    record = dump_operation(PreparedOperation(LockTarget(SPLIT, "x"), steps))
    assert {step["kind"] for step in record["steps"]}.isdisjoint(WriteKind.__members__)
    loaded = load_operation(SPLIT, record, "m")
    assert isinstance(loaded, PreparedOperation)
    assert loaded.steps == steps


def _steps_of(operation: Create | Put | Update | Delete) -> Steps:
    """Return steps as they are committed: with an intent, without conditions."""
    planned = plan_write(SPLIT, operation, {}).all
    first, *rest = (
        replace(write, intent="m", remember="", require_present=False, creation_version=3)
        for write in planned
    )
    return Steps(first, tuple(rest))


@pytest.mark.parametrize(
    ("creation_versions", "presence", "creation_version"),
    [((5, 5), (True, True), 5), ((5, None), (True, False), 5), ((None, 5), (False, True), None)],
    ids=["whole", "lacks a fragment", "left over"],
)
async def test_steps_contain_the_records_under_the_intents(
    creation_versions: tuple[int | None, ...],
    presence: tuple[bool, ...],
    creation_version: int | None,
) -> None:
    states = [RecordState(version, {}, "m") for version in creation_versions]
    locked = LockedObject(LockTarget(SPLIT, "x"), dict(zip(SPLIT.fragments, states, strict=True)))
    calls = StoreCalls(Systems(), NullGuard(), SystemClock())  # nothing is read for a put
    [operation] = await prepare([PendingOperation(Put(*HEAD, values=VALUES), locked)], "m", calls)
    assert isinstance(operation, PreparedOperation)
    assert operation.steps is not None
    assert tuple(step.require_present for step in operation.steps.all) == presence
    assert tuple(step.creation_version for step in operation.steps.all) == (None, creation_version)


def test_a_redo_record_of_removed_fields_applies_nothing() -> None:
    record = dump_operation(PreparedOperation(LockTarget(SPLIT, "x"), _steps_of(Delete(*HEAD))))
    loaded = load_operation(WHOLE, record, "m")
    assert isinstance(loaded, PreparedOperation)
    assert loaded.steps is None
    assert isinstance(load_operation(None, record, "m"), Outcome)


def fragment_record(
    creation_version: int, group: str, values: Values, intent: str = "", joint: str = ""
) -> Record:
    return Record("x", creation_version, {group: creation_version}, values, intent, joint)


def test_fragments_of_another_creation_are_left_out() -> None:
    get = Get("news", "articles", "x")
    title = fragment_record(5, "main", {"title": "t"})
    for other in (fragment_record(3, "hits", {"hits": 9}), None):
        merged = merge_records(SPLIT, get, [title, other])
        assert merged is not None
        assert (merged.values, merged.partial) == ({"title": "t"}, ("hits",))
        assert merged.versions == {"hits": None, "main": 5}
    both = merge_records(SPLIT, get, [title, fragment_record(5, "hits", {"hits": 9})])
    assert both is not None
    assert (both.values, both.partial) == ({"title": "t", "hits": 9}, ())
    assert merge_records(SPLIT, get, [None, fragment_record(5, "hits", {"hits": 9})]) is None


@pytest.mark.parametrize(
    ("intents", "joints", "partial", "pending"),
    [
        (("", ""), ("a", "a"), (), False),
        (("b", ""), ("a", "a"), (), True),
        (("", "b"), ("b", "a"), ("hits",), True),
        (("b", ""), ("a", "b"), ("main",), True),
        (("", ""), ("a", "b"), ("hits", "main"), False),
    ],
    ids=["applied", "not yet applied", "hits behind", "main behind", "read between"],
)
def test_fragments_of_different_joint_writes_are_partial(
    intents: tuple[str, str], joints: tuple[str, str], partial: tuple[str, ...], pending: bool
) -> None:
    title = fragment_record(5, "main", {"title": "t"}, intents[0], joints[0])
    hits = fragment_record(5, "hits", {"hits": 9}, intents[1], joints[1])
    merged = merge_records(SPLIT, Get("news", "articles", "x"), [title, hits])
    assert merged is not None
    assert (merged.partial, merged.pending) == (partial, pending)
