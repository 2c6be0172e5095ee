"""Planning and joining, without any store; and the form in which steps are kept."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import orjson
import pytest

from mediator.operations.merge import merge_records
from mediator.operations.model import Condition, Create, Delete, Get, Put, Update
from mediator.operations.operators import Operator, OperatorCall
from mediator.operations.plan import plan_read, plan_write, with_birth
from mediator.operations.redo import record_of, steps_of
from mediator.placement.routing import ClassRoute
from mediator.schema.tree import ClassSchema, Field
from mediator.schema.types import FieldType, Values
from mediator.stores.port import Fragment, Record, Status, WriteKind, WriteResult

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


def test_one_system_takes_one_call() -> None:
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
    assert [write.remember for write in steps.all] == ["", ""]
    assert rest.values == {"hits": 1}


def test_a_put_that_must_not_replace_creates() -> None:
    put = Put(*HEAD, Condition(present=False), values=VALUES)
    kinds = [write.kind for write in plan_write(SPREAD, put, {}).all]
    assert kinds == [WriteKind.CREATE, WriteKind.REPLACE]


def test_an_update_touches_what_it_names_operators_first() -> None:
    operators = (OperatorCall("hits", Operator.INC, 1),)
    update = Update(*HEAD, values={"title": "u"}, operators=operators)
    steps = plan_write(SPREAD, update, {})
    assert [(w.fragment.system, w.groups) for w in steps.all] == [
        ("b", ("hits",)),
        ("a", ("main",)),
    ]
    assert steps.first.returning == ("hits",)
    only = plan_write(SPREAD, replace(update, operators=()), {})
    assert [write.fragment.system for write in only.all] == ["a"]


def test_following_steps_are_bound_to_the_incarnation() -> None:
    decided = WriteResult(Status.APPLIED, birth=7)
    create, delete = Create(*HEAD, values=VALUES), Delete(*HEAD)
    for operation in (create, delete):
        [rest] = plan_write(SPREAD, operation, {}).rest
        assert with_birth(rest, decided).birth == 7


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
    steps = plan_write(SPREAD, operation, {"main": 2**53 + 1})
    record = record_of(SPREAD, "news", steps)
    kept = replace(record, steps=orjson.loads(orjson.dumps(record.steps)))
    assert steps_of(SPREAD, kept) == steps


def test_a_record_of_a_system_that_left_the_class_cannot_be_read() -> None:
    record = record_of(SPREAD, "news", plan_write(SPREAD, Delete(*HEAD), {}))
    with pytest.raises(KeyError):
        steps_of(WHOLE, record)


def part(birth: int, group: str, values: Values) -> Record:
    return Record("x", birth, {group: birth}, values)


def test_parts_of_another_birth_are_not_shown() -> None:
    get = Get("news", "articles", "x")
    title = part(5, "main", {"title": "t"})
    for other in (part(3, "hits", {"hits": 9}), None):
        seen = merge_records(SPREAD, get, [title, other])
        assert seen is not None
        assert (seen.values, seen.partial) == ({"title": "t"}, ("hits",))
        assert seen.versions == {"hits": None, "main": 5}
    both = merge_records(SPREAD, get, [title, part(5, "hits", {"hits": 9})])
    assert both is not None
    assert (both.values, both.partial) == ({"title": "t", "hits": 9}, ())
    assert merge_records(SPREAD, get, [None, part(5, "hits", {"hits": 9})]) is None
