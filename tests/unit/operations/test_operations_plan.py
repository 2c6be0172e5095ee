"""Planning and joining, without any store; and the form in which steps are kept."""

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
SPREAD = ClassRoute(
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


def test_the_first_step_alone_has_conditions() -> None:
    put = Put(*HEAD, Condition(present=True), values=VALUES)
    steps = plan_write(SPREAD, put, {"main": 1, "hits": 2})
    [rest] = steps.rest
    assert (steps.first.expect, steps.first.require_present) == ({"main": 1}, True)
    assert (rest.expect, rest.require_present) == ({}, False)
    assert rest.values == {"hits": 1}


def test_a_put_that_must_not_replace_creates() -> None:
    put = Put(*HEAD, Condition(present=False), values=VALUES)
    kinds = [write.kind for write in plan_write(SPREAD, put, {}).all]
    assert kinds == [WriteKind.CREATE, WriteKind.REPLACE]


def test_an_update_touches_only_the_groups_of_its_fields() -> None:
    operators = (OperatorCall("hits", Operator.INC, 1),)
    update = Update(*HEAD, values={"title": "u"}, operators=operators)
    steps = plan_write(SPREAD, update, {})
    assert [(w.fragment.system, w.groups) for w in steps.all] == [
        ("a", ("main",)),
        ("b", ("hits",)),
    ]
    assert steps.all[1].returning == ("hits",)
    only = plan_write(SPREAD, replace(update, operators=()), {})
    assert [write.fragment.system for write in only.all] == ["a"]


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
def test_a_redo_record_gives_back_the_steps_that_were_put_in(
    operation: Create | Put | Update | Delete,
) -> None:
    steps = _steps_of(operation)
    kept = orjson.loads(
        orjson.dumps(dump_operation(PreparedOperation(LockTarget(SPREAD, "x"), steps)))
    )
    loaded = load_operation(SPREAD, kept, "m")
    assert isinstance(loaded, PreparedOperation)
    assert loaded.steps == steps


def test_a_step_that_changes_nothing_is_of_a_kind_that_older_versions_do_not_know() -> None:
    """They would apply it to a document of MongoDB as an empty one."""
    steps = _steps_of(Update(*HEAD, Condition(), "print"))
    assert [(write.kind, write.groups) for write in steps.all] == [(WriteKind.UPDATE, ())] * 2
    kept = dump_operation(PreparedOperation(LockTarget(SPREAD, "x"), steps))
    assert {step["kind"] for step in kept["steps"]}.isdisjoint(WriteKind.__members__)
    loaded = load_operation(SPREAD, kept, "m")
    assert isinstance(loaded, PreparedOperation)
    assert loaded.steps == steps


def _steps_of(operation: Create | Put | Update | Delete) -> Steps:
    """Return steps as they are committed: under an intent, and without conditions."""
    planned = plan_write(SPREAD, operation, {}).all
    first, *rest = (
        replace(write, intent="m", remember="", require_present=False, creation_version=3)
        for write in planned
    )
    return Steps(first, tuple(rest))


@pytest.mark.parametrize(
    ("creation_versions", "known", "creation_version"),
    [((5, 5), (True, True), 5), ((5, None), (True, False), 5), ((None, 5), (False, True), None)],
    ids=["whole", "lacks a fragment", "left over"],
)
async def test_steps_contain_the_records_under_the_intents(
    creation_versions: tuple[int | None, ...], known: tuple[bool, ...], creation_version: int | None
) -> None:
    standings = [RecordState(version, {}, "m") for version in creation_versions]
    held = LockedObject(
        LockTarget(SPREAD, "x"), dict(zip(SPREAD.fragments, standings, strict=True))
    )
    calls = StoreCalls(Systems(), NullGuard(), SystemClock())  # nothing is read for a put
    [work] = await prepare([PendingOperation(Put(*HEAD, values=VALUES), held)], "m", calls)
    assert isinstance(work, PreparedOperation)
    assert work.steps is not None
    assert tuple(step.require_present for step in work.steps.all) == known
    assert tuple(step.creation_version for step in work.steps.all) == (None, creation_version)


def test_a_redo_record_of_removed_fields_applies_nothing() -> None:
    kept = dump_operation(PreparedOperation(LockTarget(SPREAD, "x"), _steps_of(Delete(*HEAD))))
    loaded = load_operation(WHOLE, kept, "m")
    assert isinstance(loaded, PreparedOperation)
    assert loaded.steps is None
    assert isinstance(load_operation(None, kept, "m"), Outcome)


def fragment_record(
    creation_version: int, group: str, values: Values, intent: str = "", joint: str = ""
) -> Record:
    return Record("x", creation_version, {group: creation_version}, values, intent, joint)


def test_fragments_of_another_creation_are_not_shown() -> None:
    get = Get("news", "articles", "x")
    title = fragment_record(5, "main", {"title": "t"})
    for other in (fragment_record(3, "hits", {"hits": 9}), None):
        seen = merge_records(SPREAD, get, [title, other])
        assert seen is not None
        assert (seen.values, seen.partial) == ({"title": "t"}, ("hits",))
        assert seen.versions == {"hits": None, "main": 5}
    both = merge_records(SPREAD, get, [title, fragment_record(5, "hits", {"hits": 9})])
    assert both is not None
    assert (both.values, both.partial) == ({"title": "t", "hits": 9}, ())
    assert merge_records(SPREAD, get, [None, fragment_record(5, "hits", {"hits": 9})]) is None


@pytest.mark.parametrize(
    ("intents", "joints", "partial", "pending"),
    [
        (("", ""), ("a", "a"), (), False),
        (("b", ""), ("a", "a"), (), True),
        (("", "b"), ("b", "a"), ("hits",), True),
        (("b", ""), ("a", "b"), ("main",), True),
        (("", ""), ("a", "b"), ("hits", "main"), False),
    ],
    ids=["settled", "not yet applied", "hits behind", "main behind", "read between"],
)
def test_fragments_of_different_joint_writes_are_partial(
    intents: tuple[str, str], joints: tuple[str, str], partial: tuple[str, ...], pending: bool
) -> None:
    title = fragment_record(5, "main", {"title": "t"}, intents[0], joints[0])
    hits = fragment_record(5, "hits", {"hits": 9}, intents[1], joints[1])
    seen = merge_records(SPREAD, Get("news", "articles", "x"), [title, hits])
    assert seen is not None
    assert (seen.partial, seen.pending) == (partial, pending)
