"""Every type keeps its values, at its edges and through every kind of write."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from mediator.schema.annotations import Capability
from mediator.schema.tree import Field
from mediator.schema.types import SCALARS, FieldType, Values
from mediator.stores.conformance.check import Theme
from mediator.stores.conformance.expect import applied, present, same
from mediator.stores.conformance.samples import EDGES, collection, edges_of, plain, text
from mediator.stores.conformance.scratch import Scratch, Subject

__all__ = ["THEME"]

THEME = Theme("values")


async def _keeps(subject: Subject, rows: Sequence[Values]) -> None:
    """Write rows by CREATE, UPDATE and REPLACE in turn, each time to other records."""
    ids = [f"row-{i}" for i in range(len(rows))]
    for shift, build in enumerate((subject.creation, subject.change, subject.replacement)):
        turned = [rows[(i + shift) % len(rows)] for i in range(len(rows))]
        writes = [build(id_, row, returning=()) for id_, row in zip(ids, turned, strict=True)]
        results = await subject.write_all(writes)
        records = await subject.read_all(ids)
        for write, result, record in zip(writes, results, records, strict=True):
            applied(result, f"{write.kind.name} of a value")
            same(result.values, write.values, f"values returned by {write.kind.name}")
            same(present(record, write.id).values, write.values, f"read after {write.kind.name}")


async def _keeps_edges(type_: FieldType, scratch: Scratch) -> None:
    subject = await scratch.subject(plain(type_))
    await _keeps(subject, [{"value": value} for value in EDGES[type_]])


async def _keeps_collections(type_: FieldType, scratch: Scratch) -> None:
    fields = [collection(type_, items, name=f"of_{items}") for items in sorted(SCALARS)]
    subject = await scratch.subject(*fields)
    edges = {field.name: edges_of(type_, _items(field)) for field in fields}
    longest = max(map(len, edges.values()))
    rows = [{name: some[i % len(some)] for name, some in edges.items()} for i in range(longest)]
    await _keeps(subject, rows)


def _items(field: Field) -> FieldType:
    assert field.items is not None
    return field.items


for _type in EDGES:
    THEME.add(
        f"{_type}_at_its_edges",
        "contract",
        partial(_keeps_edges, _type),
        f"Values at the edges of {_type} come back as they were.",
    )
for _type in (FieldType.LIST, FieldType.SET, FieldType.MAP):
    THEME.add(
        f"{_type}_of_every_scalar",
        "contract",
        partial(_keeps_collections, _type),
        f"A {_type} keeps items at the edges of every scalar type, and can be empty.",
    )


@THEME.proves("contract")
async def list_of_documents(scratch: Scratch) -> None:
    """A list keeps documents as its items."""
    subject = await scratch.subject(collection(FieldType.LIST, FieldType.DOCUMENT))
    await _keeps(subject, [{"value": list(EDGES[FieldType.DOCUMENT])}, {"value": [{}]}])


@THEME.proves("contract")
async def unicode_is_not_normalised(scratch: Scratch) -> None:
    """Composed and decomposed text, case and width stay apart, in ids too."""
    subject = await scratch.subject(text())
    lookalikes = ["\u00e9", "e\u0301", "E\u0301", "\u212b", "\u00c5", "\uff21", "A", "a", "a "]
    await subject.write_all([subject.creation(one, {"s": one}) for one in lookalikes])
    for one in lookalikes:
        same(await subject.values(one), {"s": one}, f"record {one!r}")


@THEME.proves(Capability.POINT_LOOKUPS)
async def records_are_found_by_id(scratch: Scratch) -> None:
    """A record is found by its id, alone or among many, and an absent one is None."""
    subject = await scratch.subject(text())
    await subject.write_all([subject.creation(f"id-{i}", {"s": str(i)}) for i in range(20)])
    same(await subject.values("id-7"), {"s": "7"}, "a record by its id")
    records = await subject.read_all(["id-3", "absent", "id-19", "id-3"])
    found = [record and record.id for record in records]
    same(found, ["id-3", None, "id-19", "id-3"], "records by their ids")
