"""Change logs: exact before and after images of every write that took effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from mediator.model.change import change_id
from mediator.model.operators import APPLICABLE, Operator, OperatorCall
from mediator.schema.limits import INTEGER_MAX
from mediator.schema.tree import Field
from mediator.schema.types import SCALARS, FieldType
from mediator.stores.conformance.change_reader import ChangeReader, expect_changes, json_of, summary
from mediator.stores.conformance.check import Theme
from mediator.stores.conformance.expect import (
    applied,
    expect_status,
    require,
    same,
)
from mediator.stores.conformance.samples import (
    EDGES,
    Case,
    cases,
    collection,
    counter,
    edges_of,
    plain,
    text,
)
from mediator.stores.conformance.scratch import Scratch
from mediator.stores.port import Status, WriteResult

__all__ = ["THEME"]

THEME = Theme("changes")

_HOUR_S: Final = 3600.0
_STRIDE: Final = 7
"""Every seventh case of an operator is checked: the theme `operators` checks all of them."""


async def _two_groups(scratch: Scratch) -> ChangeReader:
    fields = (counter(), text(), text("t"), counter("m", group="side"))
    return await ChangeReader.to(scratch, *fields)


@THEME.proves("contract")
async def every_kind_of_write_is_logged(scratch: Scratch) -> None:
    """Each write has one change for each written group: before, after, version, kind, in order.

    A null is logged as null, a missing field not at all; a replacement of an absent object is
    logged as its creation.
    """
    reader = await _two_groups(scratch)
    subject = reader.subject
    calls = (OperatorCall("n", Operator.INC, 2), OperatorCall("m", Operator.MAX, 3))
    results = [
        applied(result)
        for result in (
            await subject.create("x", {"n": 1, "s": None, "m": 5}),
            await subject.update("x", {"n": 2, "s": "b"}),
            await subject.update("x", {"m": None}, unset=("s", "t")),
            await subject.replace("x", {"n": 5, "m": 5}),
            await subject.update("x", {"s": None}, operators=calls),
            await subject.delete("x"),
            await subject.replace("x", {"n": None}),
            await subject.replace("x", {"n": 1}),
        )
    ]
    main, side = ([result.versions[group] for result in results] for group in ("main", "side"))
    await expect_changes(
        reader,
        "x",
        ("main", "create", main[0], None, {"n": 1, "s": None}),
        ("side", "create", side[0], None, {"m": 5}),
        ("main", "update", main[1], {"n": 1, "s": None}, {"n": 2, "s": "b"}),
        ("main", "update", main[2], {"s": "b"}, {}),
        ("side", "update", side[2], {"m": 5}, {"m": None}),
        ("main", "replace", main[3], {"n": 2}, {"n": 5}),
        ("side", "replace", side[3], {"m": None}, {"m": 5}),
        ("main", "update", main[4], {"n": 5}, {"n": 7, "s": None}),
        ("side", "update", side[4], {"m": 5}, {"m": 5}),
        ("main", "delete", main[5], {"n": 7, "s": None}, None),
        ("side", "delete", side[5], {"m": 5}, None),
        ("main", "create", main[6], None, {"n": None}),
        ("side", "create", side[6], None, {}),
        ("main", "replace", main[7], {"n": None}, {"n": 1}),
        ("side", "replace", side[7], {}, {}),
    )


@THEME.proves("contract")
async def updates_without_groups_are_not_logged(scratch: Scratch) -> None:
    """An UPDATE without groups logs nothing, remembered or not."""
    reader = await ChangeReader.to(scratch, counter())
    version = applied(await reader.subject.create("x", {"n": 1})).versions["main"]
    applied(await reader.subject.update("x", remember="f", returning=()), "UPDATE of no group")
    await expect_changes(reader, "x", ("main", "create", version, None, {"n": 1}))


@THEME.proves("contract")
async def a_change_names_its_write(scratch: Scratch) -> None:
    """A change has the id of its operation and group, object, class, database and a time."""
    reader = await ChangeReader.to(scratch, counter(), groups=("empty", "main"))
    write = reader.subject.creation("é'/x", {"n": 1})
    result = applied(await reader.subject.write(write))
    changes = await reader.changes_of(write.id)
    ids = [change_id(write.operation, group) for group in ("empty", "main")]
    same(sorted(change.id for change in changes), sorted(ids), "ids of changes")
    for change in changes:
        fragment = reader.subject.fragment
        same((change.database, change.class_name), (fragment.database, fragment.class_name), "of")
        difference = abs(change.time_us - result.versions[change.group])
        require(difference < _HOUR_S * 1_000_000, f"the time of a change is {change.time_us} us")


def _edges() -> Mapping[Field, tuple[Any, ...]]:
    fields = {plain(type_, type_.value): EDGES[type_] for type_ in FieldType if type_ in EDGES}
    for type_ in (FieldType.LIST, FieldType.SET, FieldType.MAP):
        for items in sorted(SCALARS):
            fields[collection(type_, items, f"{type_}_of_{items}")] = edges_of(type_, items)
    documents = collection(FieldType.LIST, FieldType.DOCUMENT, "documents")
    return fields | {documents: ([], list(EDGES[FieldType.DOCUMENT]))}


@THEME.proves("contract")
async def edge_values_are_logged_exactly(scratch: Scratch) -> None:
    """Images have the JSON forms of values, of every type and item."""
    edges = _edges()
    reader = await ChangeReader.to(scratch, *edges)
    subject, fragment = reader.subject, reader.subject.fragment
    rounds = max(map(len, edges.values()))
    states = [
        {f.name: values[i % len(values)] for f, values in edges.items()} for i in range(rounds)
    ]
    for i, state in enumerate(states):
        write = subject.update if i % 2 else subject.replace
        applied(await write("x", state))
    changes = await reader.changes_of("x")
    same(len(changes), rounds, "changes")
    images = [None, *(json_of(fragment, state) for state in states)]
    for change, before, after in zip(changes, images, images[1:], strict=False):
        for name in (f.name for f in edges):
            same((change.before or {}).get(name), (before or {}).get(name), f"{name} before")
            same((change.after or {}).get(name), (after or {}).get(name), f"{name} after")


def _cases_on(type_: FieldType, scratch: Scratch) -> list[Case]:
    return [
        case
        for operator, types in APPLICABLE.items()
        if type_ in types and scratch.store.supports(operator, type_)
        if operator not in (Operator.SET, Operator.UNSET)
        for case in list(cases(operator, type_))[::_STRIDE]
    ]


_TYPES = sorted({type_ for types in APPLICABLE.values() for type_ in types})


@THEME.proves_each(_TYPES, "operators_on_{}_are_logged", "contract")
async def operators_are_logged(type_: FieldType, scratch: Scratch) -> None:
    """Changes by operators on {} have complete before and after images."""
    cases_ = _cases_on(type_, scratch)
    reader = await ChangeReader.to(
        scratch, *{case.field.name: case.field for case in cases_}.values()
    )
    subject = reader.subject
    rows = [subject.creation(str(i), case.row) for i, case in enumerate(cases_)]
    changes = [
        subject.change(str(i), operators=(case.call,), returning=(case.field.name,))
        for i, case in enumerate(cases_)
    ]
    await subject.write_all(rows)
    results = await subject.write_all(changes)
    pairs = zip(changes, results, strict=True)
    applied_writes = [write for write, result in pairs if result.status is Status.APPLIED]
    await reader.until({change_id(write.operation, "main") for write in applied_writes})
    for i, (case, result) in enumerate(zip(cases_, results, strict=True)):
        _check_case(reader, str(i), case, result)


def _check_case(reader: ChangeReader, id_: str, case: Case, result: WriteResult) -> None:
    label, fragment = (
        f"images of {case.call.operator} on {case.field.name}",
        reader.subject.fragment,
    )
    changes = [summary(change) for change in reader.changes(id_)[1:]]
    if result.status is Status.REFUSED:
        same(changes, [], label)
        return
    before, after = (json_of(fragment, values) for values in (case.row, result.values))
    version = applied(result, label).versions["main"]
    same(changes, [("main", "update", version, before, after)], label)


@THEME.proves("contract")
async def writes_without_effect_are_not_logged(scratch: Scratch) -> None:
    """Refused, conflicting, missing, replayed and reused writes log nothing."""
    reader = await _two_groups(scratch)
    subject = reader.subject
    write = subject.creation("x", {"n": INTEGER_MAX}, remember="f")
    first = applied(await subject.write(write)).versions
    statuses = {
        Status.REPLAYED: write,
        Status.REUSED: replace(write, remember="g"),
        Status.EXISTS: subject.creation("x", {"n": 2}),
        Status.CONFLICT: subject.change("x", {"n": 2}, expect={"main": first["main"] - 1}),
        Status.REFUSED: subject.change("x", operators=(OperatorCall("n", Operator.INC, 1),)),
    }
    for status, ineffective in statuses.items():
        expect_status(await subject.write(ineffective), status, "a write in vain")
    for ineffective in (
        subject.change("y", {"n": 1}),
        subject.deletion("y"),
        subject.replacement("y", require_present=True),
    ):
        expect_status(await subject.write(ineffective), Status.MISSING, "a write to nothing")
    await expect_changes(
        reader,
        "x",
        ("main", "create", first["main"], None, {"n": INTEGER_MAX}),
        ("side", "create", first["side"], None, {}),
    )
    await expect_changes(reader, "y")
