"""Values, including hostile ones, are returned unchanged; null, missing and empty differ."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace

from mediator.model.operators import Operator, OperatorCall
from mediator.schema.annotations import Capability
from mediator.schema.tree import Field
from mediator.schema.types import SCALARS, FieldType, Value, Values
from mediator.stores.conformance.check import Theme
from mediator.stores.conformance.expect import applied, present, require, same
from mediator.stores.conformance.samples import (
    EDGES,
    HOSTILE_TEXTS,
    collection,
    counter,
    edges_of,
    plain,
    text,
)
from mediator.stores.conformance.scratch import SCRATCH_DATABASE, Scratch, ScratchClass
from mediator.stores.port import StoreRefused

__all__ = ["HOSTILE", "MISSING", "VALUES"]

VALUES = Theme("values")
MISSING = Theme("missing")
HOSTILE = Theme("hostile")

_EMPTY: dict[FieldType, Value] = {
    FieldType.STRING: "",
    FieldType.BINARY: b"",
    FieldType.DOCUMENT: {},
    FieldType.LIST: [],
    FieldType.SET: [],
    FieldType.MAP: {},
}

_LONG_IDS = ("i" * 512, "é" * 256, "\U0001f600" * 128, "i" * 511 + "j")

_NAMES = (
    *("select", "order", "user", "table", "null", "default", "group", "values"),
    *("xmin", "ctid", "tableoid", "oid", "deleted", "nulls"),
    *("creation_version", "version", "versions"),
    *("v", "g", "f", "k", "t", "object", "object_id", "operation", "data", "type", "fields"),
    *("n" * 63, "n" * 62 + "m"),
)


async def _check_round_trip(subject: ScratchClass, rows: Sequence[Values]) -> None:
    """Write rows by CREATE, UPDATE and REPLACE in turn, each time to different records."""
    ids = [f"row-{i}" for i in range(len(rows))]
    for shift, build in enumerate((subject.creation, subject.change, subject.replacement)):
        rotated = [rows[(i + shift) % len(rows)] for i in range(len(rows))]
        writes = [build(id_, row, returning=()) for id_, row in zip(ids, rotated, strict=True)]
        results = await subject.apply_all(writes)
        records = await subject.read_all(ids)
        for write, result, record in zip(writes, results, records, strict=True):
            same(result.values, write.values, f"values returned by {write.kind.name}")
            same(present(record, write.id).values, write.values, f"read after {write.kind.name}")


@VALUES.proves_each(EDGES, "{}_at_its_edges", "contract")
async def at_its_edges(type_: FieldType, scratch: Scratch) -> None:
    """Values at the edges of {} are returned unchanged."""
    subject = await scratch.subject(plain(type_))
    await _check_round_trip(subject, [{"value": value} for value in EDGES[type_]])


@VALUES.proves_each(
    (FieldType.LIST, FieldType.SET, FieldType.MAP), "{}_of_every_scalar", "contract"
)
async def of_every_scalar(type_: FieldType, scratch: Scratch) -> None:
    """A {} keeps items at the edges of every scalar type, and can be empty."""
    edges = {f"of_{items}": edges_of(type_, items) for items in sorted(SCALARS)}
    fields = [collection(type_, items, name=f"of_{items}") for items in sorted(SCALARS)]
    subject = await scratch.subject(*fields)
    max_count = max(map(len, edges.values()))
    rows = [
        {name: values[i % len(values)] for name, values in edges.items()} for i in range(max_count)
    ]
    await _check_round_trip(subject, rows)


@VALUES.proves("contract")
async def list_of_documents(scratch: Scratch) -> None:
    """A list keeps documents as its items."""
    subject = await scratch.subject(collection(FieldType.LIST, FieldType.DOCUMENT))
    await _check_round_trip(subject, [{"value": list(EDGES[FieldType.DOCUMENT])}, {"value": [{}]}])


@VALUES.proves("contract")
async def unicode_is_not_normalised(scratch: Scratch) -> None:
    """Composed and decomposed text, case and width stay distinct, also in ids."""
    subject = await scratch.subject(text())
    lookalikes = ["\u00e9", "e\u0301", "E\u0301", "\u212b", "\u00c5", "\uff21", "A", "a", "a "]
    await subject.write_all([subject.creation(text_, {"s": text_}) for text_ in lookalikes])
    for text_ in lookalikes:
        same(await subject.values(text_), {"s": text_}, f"record {text_!r}")


@VALUES.proves(Capability.POINT_LOOKUPS)
async def records_are_found_by_id(scratch: Scratch) -> None:
    """A record is found by its id, alone or among many, and an absent one is None."""
    subject = await scratch.subject(text())
    await subject.write_all([subject.creation(f"id-{i}", {"s": str(i)}) for i in range(20)])
    same(await subject.values("id-7"), {"s": "7"}, "a record by its id")
    records = await subject.read_all(["id-3", "absent", "id-19", "id-3"])
    found_ids = [record and record.id for record in records]
    same(found_ids, ["id-3", None, "id-19", "id-3"], "records by their ids")


def _one_of_each() -> list[Field]:
    return [plain(type_, name=f"a_{type_}") for type_ in FieldType]


@MISSING.proves("contract")
async def null_is_not_missing(scratch: Scratch) -> None:
    """For every type a null is read as null, and a missing field is absent; empty is a value."""
    fields = _one_of_each()
    subject = await scratch.subject(*fields)
    names = [field.name for field in fields]
    empty = {f"a_{type_}": value for type_, value in _EMPTY.items()}
    rows: dict[str, Values] = {"nulls": dict.fromkeys(names), "missing": {}, "empty": empty}
    for id_, row in rows.items():
        await subject.create(id_, row)
        same(await subject.values(id_), row, f"the record {id_}")
        for name in names:
            expected = {name: row[name]} if name in row else {}
            same(await subject.values(id_, name), expected, f"sparse read of {name} of {id_}")


@MISSING.proves("contract")
async def null_value_and_missing_follow_each_other(scratch: Scratch) -> None:
    """An update turns a value to null, null to missing, missing to a value, of every type."""
    subject = await scratch.subject(*_one_of_each())
    full: dict[str, Value] = {f"a_{type_}": value for type_, value in _EMPTY.items()}
    nulls: dict[str, Value] = dict.fromkeys(full)
    await subject.create("x", full)
    for label, change, expected in (
        ("values to null", subject.change("x", nulls), nulls),
        ("null to missing", subject.change("x", unset=tuple(full)), {}),
        ("missing to missing", subject.change("x", unset=tuple(full)), {}),
        ("missing to values", subject.change("x", full), full),
        ("values to missing", subject.change("x", unset=tuple(full)), {}),
    ):
        applied(await subject.write(change), label)
        same(await subject.values("x"), expected, label)


@MISSING.proves("contract")
async def sparse_reads_return_the_named_fields(scratch: Scratch) -> None:
    """A read of some fields, or of none, returns the present ones, and all versions."""
    subject = await scratch.subject(counter("a"), counter("b"), text("c", group="side"), text("d"))
    await subject.create("x", {"a": 1, "b": None, "c": "see"})
    record = present(await subject.read("x"), "the record")
    for names in ((), ("a",), ("b", "d"), ("c",), ("a", "b", "c", "d")):
        expected = {name: record.values[name] for name in names if name in record.values}
        sparse = replace(record, values=expected)
        same(await subject.read_all(["x"], names), [sparse], f"sparse read of {names}")
        records = await subject.read_all(["x", "y"], names)
        same(records, [sparse, None], f"sparse read of {names} of two records")


@MISSING.proves("contract")
async def returning_separates_null_from_missing(scratch: Scratch) -> None:
    """Returned values of a write include nulls, and leave out missing fields."""
    subject = await scratch.subject(counter("a"), counter("b"), counter("c"))
    named_fields = await subject.create("x", {"a": 1, "b": None}, returning=("b", "c"))
    same(applied(named_fields).values, {"b": None}, "returning some")
    all_fields = await subject.update("x", {"c": 3}, returning=())
    same(applied(all_fields).values, {"a": 1, "b": None, "c": 3}, "returning all")
    no_fields = await subject.update("x", {"c": 4})
    same(applied(no_fields).values, {}, "returning nothing")


@HOSTILE.proves("contract")
async def ids_are_data(scratch: Scratch) -> None:
    """Records with hostile and 512-byte ids are written, read, changed and deleted separately."""
    ids = [*HOSTILE_TEXTS, *_LONG_IDS]
    subject = await scratch.subject(counter(index=True), text())
    await subject.write_all([subject.creation(id_, {"s": id_}) for id_ in ids])
    await subject.apply_all([subject.change(id_, {"n": 1}) for id_ in ids], "under a hostile id")
    for id_, record in zip(ids, await subject.read_all(ids), strict=True):
        stored = present(record, f"record {id_!r}")
        same((stored.id, stored.values), (id_, {"s": id_, "n": 1}), f"record {id_!r}")
    await subject.apply_all([subject.deletion(id_) for id_ in ids[::2]], "under a hostile id")
    scanned = await scratch.store.scan(subject.fragment, None, len(ids))
    remaining = sorted(ids[1::2], key=str.encode)
    same([record.id for record in scanned], remaining, "ids left after deleting every other")


@HOSTILE.proves("contract")
async def operation_ids_are_data(scratch: Scratch) -> None:
    """Operation ids and fingerprints of any text are remembered separately."""
    subject = await scratch.subject(counter())
    await subject.create("x")
    for n, operation in enumerate(HOSTILE_TEXTS):
        write = subject.change(
            "x", {"n": n}, operation=operation, remember=operation, returning=("n",)
        )
        applied(await subject.write(write), f"UPDATE by operation {operation!r}")
    for n, operation in enumerate(HOSTILE_TEXTS):
        remembered = await scratch.store.recall(subject.fragment, "x", operation)
        require(remembered is not None, f"operation {operation!r} is not recalled")
        assert remembered is not None
        actual = (remembered.fingerprint, dict(remembered.result.values))
        same(actual, (operation, {"n": n}), f"operation {operation!r}")


@HOSTILE.proves("contract")
async def arguments_are_data(scratch: Scratch) -> None:
    """Operators take hostile texts as elements and keys."""
    subject = await scratch.subject(
        collection(FieldType.LIST, FieldType.STRING, "l"),
        collection(FieldType.MAP, FieldType.STRING, "m"),
    )
    await subject.create("x", {"l": [], "m": {}})
    pushes = scratch.store.supports(Operator.PUSH, FieldType.LIST)
    puts = scratch.store.supports(Operator.PUT, FieldType.MAP)
    for hostile in HOSTILE_TEXTS:
        push = OperatorCall("l", Operator.PUSH, hostile)
        put = OperatorCall("m", Operator.PUT, {hostile: hostile})
        calls = (*((push,) if pushes else ()), *((put,) if puts else ()))
        applied(await subject.update("x", operators=calls, groups=("main",)), f"{hostile!r}")
    values = await subject.values("x")
    same(values["l"], list(HOSTILE_TEXTS) if pushes else [], "the list")
    same(values["m"], {hostile: hostile for hostile in HOSTILE_TEXTS} if puts else {}, "the map")


@HOSTILE.proves("contract")
async def field_names_are_data(scratch: Scratch) -> None:
    """Fields can have the names of keywords, system columns and keys, and of 63 characters."""
    subject = await scratch.subject(*(counter(name) for name in _NAMES))
    full = {name: i for i, name in enumerate(_NAMES)}
    applied(await subject.create("x", dict(full)), "CREATE")
    same(await subject.values("x"), full, "all fields")
    for name in _NAMES:
        same(await subject.values("x", name), {name: full[name]}, f"field {name}")


@HOSTILE.proves("contract")
async def long_names_stay_apart(scratch: Scratch) -> None:
    """Databases and classes whose names differ in the last of 63 characters are different."""
    stem = f"{SCRATCH_DATABASE}_{uuid.uuid4().hex}".ljust(62, "x")
    subjects = []
    for database in (stem + "1", stem + "2"):
        for class_name in ("c" * 62 + "1", "c" * 62 + "2"):
            fragment = scratch.fragment(class_name, [counter(index=True)], database=database)
            subjects.append(await scratch.prepare(fragment))
    for n, subject in enumerate(subjects):
        applied(await subject.create("x", {"n": n}), "CREATE in a class of a long name")
    for n, subject in enumerate(subjects):
        same(await subject.values("x"), {"n": n}, f"the record of class {n}")


@HOSTILE.proves("contract")
async def long_indexed_texts_are_kept_or_refused(scratch: Scratch) -> None:
    """A long text in an indexed field is stored completely or refused; other writes succeed."""
    subject = await scratch.subject(text(index=True))
    long = "".join(uuid.uuid4().hex for _ in range(1_000))
    try:
        applied(await subject.create("long", {"s": long}), "CREATE")
    except StoreRefused:
        same(await subject.read("long"), None, "a record that was refused")
    else:
        same(await subject.values("long"), {"s": long}, "a long text")
    applied(await subject.create("short", {"s": "short"}), "CREATE of another")
