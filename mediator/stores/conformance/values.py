"""Values come back as they were; a null, a missing field and an empty value differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mediator.schema.annotations import Capability
from mediator.schema.tree import Field
from mediator.schema.types import SCALARS, FieldType, Value, Values
from mediator.stores.conformance.check import Theme
from mediator.stores.conformance.expect import applied, present, same
from mediator.stores.conformance.samples import EDGES, collection, counter, edges_of, plain, text
from mediator.stores.conformance.scratch import Scratch, Subject

__all__ = ["MISSING", "VALUES"]

VALUES = Theme("values")
MISSING = Theme("missing")

_EMPTY: dict[FieldType, Value] = {
    FieldType.STRING: "",
    FieldType.BINARY: b"",
    FieldType.DOCUMENT: {},
    FieldType.LIST: [],
    FieldType.SET: [],
    FieldType.MAP: {},
}


async def _keeps(subject: Subject, rows: Sequence[Values]) -> None:
    """Write rows by CREATE, UPDATE and REPLACE in turn, each time to other records."""
    ids = [f"row-{i}" for i in range(len(rows))]
    for shift, build in enumerate((subject.creation, subject.change, subject.replacement)):
        turned = [rows[(i + shift) % len(rows)] for i in range(len(rows))]
        writes = [build(id_, row, returning=()) for id_, row in zip(ids, turned, strict=True)]
        results = await subject.apply_all(writes)
        records = await subject.read_all(ids)
        for write, result, record in zip(writes, results, records, strict=True):
            same(result.values, write.values, f"values returned by {write.kind.name}")
            same(present(record, write.id).values, write.values, f"read after {write.kind.name}")


@VALUES.proves_each(EDGES, "{}_at_its_edges", "contract")
async def at_its_edges(type_: FieldType, scratch: Scratch) -> None:
    """Values at the edges of {} come back as they were."""
    subject = await scratch.subject(plain(type_))
    await _keeps(subject, [{"value": value} for value in EDGES[type_]])


@VALUES.proves_each(
    (FieldType.LIST, FieldType.SET, FieldType.MAP), "{}_of_every_scalar", "contract"
)
async def of_every_scalar(type_: FieldType, scratch: Scratch) -> None:
    """A {} keeps items at the edges of every scalar type, and can be empty."""
    edges = {f"of_{items}": edges_of(type_, items) for items in sorted(SCALARS)}
    fields = [collection(type_, items, name=f"of_{items}") for items in sorted(SCALARS)]
    subject = await scratch.subject(*fields)
    longest = max(map(len, edges.values()))
    rows = [{name: some[i % len(some)] for name, some in edges.items()} for i in range(longest)]
    await _keeps(subject, rows)


@VALUES.proves("contract")
async def list_of_documents(scratch: Scratch) -> None:
    """A list keeps documents as its items."""
    subject = await scratch.subject(collection(FieldType.LIST, FieldType.DOCUMENT))
    await _keeps(subject, [{"value": list(EDGES[FieldType.DOCUMENT])}, {"value": [{}]}])


@VALUES.proves("contract")
async def unicode_is_not_normalised(scratch: Scratch) -> None:
    """Composed and decomposed text, case and width stay apart, in ids too."""
    subject = await scratch.subject(text())
    lookalikes = ["\u00e9", "e\u0301", "E\u0301", "\u212b", "\u00c5", "\uff21", "A", "a", "a "]
    await subject.write_all([subject.creation(one, {"s": one}) for one in lookalikes])
    for one in lookalikes:
        same(await subject.values(one), {"s": one}, f"record {one!r}")


@VALUES.proves(Capability.POINT_LOOKUPS)
async def records_are_found_by_id(scratch: Scratch) -> None:
    """A record is found by its id, alone or among many, and an absent one is None."""
    subject = await scratch.subject(text())
    await subject.write_all([subject.creation(f"id-{i}", {"s": str(i)}) for i in range(20)])
    same(await subject.values("id-7"), {"s": "7"}, "a record by its id")
    records = await subject.read_all(["id-3", "absent", "id-19", "id-3"])
    found = [record and record.id for record in records]
    same(found, ["id-3", None, "id-19", "id-3"], "records by their ids")


def _one_of_each() -> list[Field]:
    return [plain(type_, name=f"a_{type_}") for type_ in FieldType]


@MISSING.proves("contract")
async def null_is_not_missing(scratch: Scratch) -> None:
    """For every type a null is read as null, and a missing field is absent."""
    fields = _one_of_each()
    subject = await scratch.subject(*fields)
    names = [field.name for field in fields]
    await subject.create("nulls", dict.fromkeys(names))
    await subject.create("missing")
    same(await subject.values("nulls"), dict.fromkeys(names), "a record of nulls")
    same(await subject.values("missing"), {}, "a record without fields")
    for name in names:
        same(await subject.values("nulls", name), {name: None}, f"sparse read of null {name}")
        same(await subject.values("missing", name), {}, f"sparse read of missing {name}")


@MISSING.proves("contract")
async def empty_is_not_null(scratch: Scratch) -> None:
    """Empty strings, binaries, documents and collections are values."""
    subject = await scratch.subject(*(plain(type_, name=f"a_{type_}") for type_ in _EMPTY))
    empties = {f"a_{type_}": value for type_, value in _EMPTY.items()}
    await subject.create("empty", empties)
    same(await subject.values("empty"), empties, "a record of empty values")
    for name, value in empties.items():
        same(await subject.values("empty", name), {name: value}, f"sparse read of {name}")


@MISSING.proves("contract")
async def null_value_and_missing_follow_each_other(scratch: Scratch) -> None:
    """An update turns a value to null, null to missing, missing to a value, of every type."""
    subject = await scratch.subject(*_one_of_each())
    full: dict[str, Value] = {f"a_{type_}": value for type_, value in _EMPTY.items()}
    nulls: dict[str, Value] = dict.fromkeys(full)
    await subject.create("x", full)
    for what, change, expected in (
        ("values to null", subject.change("x", nulls), nulls),
        ("null to missing", subject.change("x", unset=tuple(full)), {}),
        ("missing to missing", subject.change("x", unset=tuple(full)), {}),
        ("missing to values", subject.change("x", full), full),
        ("values to missing", subject.change("x", unset=tuple(full)), {}),
    ):
        applied(await subject.write(change), what)
        same(await subject.values("x"), expected, what)


@MISSING.proves("contract")
async def sparse_reads_return_the_named_fields(scratch: Scratch) -> None:
    """A read of some fields returns those that are there, and all versions."""
    subject = await scratch.subject(counter("a"), counter("b"), text("c", group="side"), text("d"))
    await subject.create("x", {"a": 1, "b": None, "c": "see"})
    whole = present(await subject.read("x"), "the record")
    for names in (("a",), ("b", "d"), ("c",), ("a", "b", "c", "d")):
        expected = {name: whole.values[name] for name in names if name in whole.values}
        sparse = replace(whole, values=expected)
        same(await subject.read("x", *names), sparse, f"sparse read of {names}")


@MISSING.proves("contract")
async def existence_alone_can_be_read(scratch: Scratch) -> None:
    """A read of no field at all finds the record, its versions, and no value."""
    subject = await scratch.subject(counter())
    versions = applied(await subject.create("x", {"n": 1})).versions
    whole, absent = await subject.read_all(["x", "y"], fields=())
    record = present(whole, "reading no field")
    same(record.values, {}, "values of a read of no field")
    same(record.versions, versions, "versions of a read of no field")
    same(absent, None, "an absent record")


@MISSING.proves("contract")
async def returning_separates_null_from_missing(scratch: Scratch) -> None:
    """What a write returns has nulls, and leaves missing fields out."""
    subject = await scratch.subject(counter("a"), counter("b"), counter("c"))
    some = await subject.create("x", {"a": 1, "b": None}, returning=("b", "c"))
    same(applied(some).values, {"b": None}, "returning some")
    every = await subject.update("x", {"c": 3}, returning=())
    same(applied(every).values, {"a": 1, "b": None, "c": 3}, "returning all")
    none = await subject.update("x", {"c": 4})
    same(applied(none).values, {}, "returning nothing")
