"""Ids, texts and names that would be code somewhere are data here."""

from __future__ import annotations

import uuid

from mediator.model.operators import Operator, OperatorCall
from mediator.schema.types import FieldType
from mediator.stores.conformance.check import Theme
from mediator.stores.conformance.expect import applied, present, require, same
from mediator.stores.conformance.samples import HOSTILE_TEXTS, collection, counter, text
from mediator.stores.conformance.scratch import SCRATCH_DATABASE, Scratch
from mediator.stores.port import StoreRefused

__all__ = ["THEME"]

THEME = Theme("hostile")

_LONG_IDS = ("i" * 512, "é" * 256, "\U0001f600" * 128, "i" * 511 + "j")

_NAMES = (
    *("select", "order", "user", "table", "null", "default", "group", "values"),
    *("xmin", "ctid", "tableoid", "oid", "deleted", "nulls"),
    *("creation_version", "version", "versions"),
    *("v", "g", "f", "k", "t", "object", "object_id", "operation", "data", "type", "fields"),
    *("n" * 63, "n" * 62 + "m"),
)


@THEME.proves("contract")
async def ids_are_data(scratch: Scratch) -> None:
    """Records under hostile and 512-byte ids are written, read, changed and deleted apart."""
    ids = [*HOSTILE_TEXTS, *_LONG_IDS]
    subject = await scratch.subject(counter(index=True), text())
    await subject.write_all([subject.creation(id_, {"s": id_}) for id_ in ids])
    await subject.apply_all([subject.change(id_, {"n": 1}) for id_ in ids], "under a hostile id")
    for id_, record in zip(ids, await subject.read_all(ids), strict=True):
        stored = present(record, f"record {id_!r}")
        same((stored.id, stored.values), (id_, {"s": id_, "n": 1}), f"record {id_!r}")
    await subject.apply_all([subject.deletion(id_) for id_ in ids[::2]], "under a hostile id")
    scanned = await scratch.store.scan(subject.fragment, None, len(ids))
    left = sorted(ids[1::2], key=str.encode)
    same([record.id for record in scanned], left, "ids left after deleting every other")


@THEME.proves("contract")
async def operation_ids_are_data(scratch: Scratch) -> None:
    """Operation ids and fingerprints of any text are remembered apart."""
    subject = await scratch.subject(counter())
    await subject.create("x")
    for n, one in enumerate(HOSTILE_TEXTS):
        write = subject.change("x", {"n": n}, operation=one, remember=one, returning=("n",))
        applied(await subject.write(write), f"UPDATE by operation {one!r}")
    for n, one in enumerate(HOSTILE_TEXTS):
        recalled = await scratch.store.recall(subject.fragment, "x", one)
        require(recalled is not None, f"operation {one!r} is not recalled")
        assert recalled is not None
        actual = (recalled.fingerprint, dict(recalled.result.values))
        same(actual, (one, {"n": n}), f"operation {one!r}")


@THEME.proves("contract")
async def arguments_are_data(scratch: Scratch) -> None:
    """Operators take hostile texts as elements and keys."""
    subject = await scratch.subject(
        collection(FieldType.LIST, FieldType.STRING, "l"),
        collection(FieldType.MAP, FieldType.STRING, "m"),
    )
    await subject.create("x", {"l": [], "m": {}})
    pushes = scratch.store.supports(Operator.PUSH, FieldType.LIST)
    puts = scratch.store.supports(Operator.PUT, FieldType.MAP)
    for one in HOSTILE_TEXTS:
        push = OperatorCall("l", Operator.PUSH, one)
        put = OperatorCall("m", Operator.PUT, {one: one})
        calls = (*((push,) if pushes else ()), *((put,) if puts else ()))
        applied(await subject.update("x", operators=calls, groups=("main",)), f"{one!r}")
    values = await subject.values("x")
    same(values["l"], list(HOSTILE_TEXTS) if pushes else [], "the list")
    same(values["m"], {one: one for one in HOSTILE_TEXTS} if puts else {}, "the map")


@THEME.proves("contract")
async def field_names_are_data(scratch: Scratch) -> None:
    """Fields may be named like keywords, system columns and keys, and by 63 characters."""
    subject = await scratch.subject(*(counter(name) for name in _NAMES))
    full = {name: i for i, name in enumerate(_NAMES)}
    applied(await subject.create("x", dict(full)), "CREATE")
    same(await subject.values("x"), full, "all fields")
    for name in _NAMES:
        same(await subject.values("x", name), {name: full[name]}, f"field {name}")


@THEME.proves("contract")
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


@THEME.proves("contract")
async def long_indexed_texts_are_kept_or_refused(scratch: Scratch) -> None:
    """A long text in an indexed field is stored whole or refused, and harms no other write."""
    subject = await scratch.subject(text(index=True))
    long = "".join(uuid.uuid4().hex for _ in range(1_000))
    try:
        applied(await subject.create("long", {"s": long}), "CREATE")
    except StoreRefused:
        same(await subject.read("long"), None, "a record that was refused")
    else:
        same(await subject.values("long"), {"s": long}, "a long text")
    applied(await subject.create("short", {"s": "short"}), "CREATE of another")
