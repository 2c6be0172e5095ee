"""Reading a class in the order of a field: missing, nulls, values; ties by id; page by page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any, TypeAlias

from mediator.schema.annotations import Capability
from mediator.schema.limits import INTEGER_MAX
from mediator.schema.tree import MISSING, MissingType
from mediator.schema.types import SCALARS, FieldType, Value
from mediator.stores.conformance.check import Theme
from mediator.stores.conformance.expect import NotOffered, applied, require, same
from mediator.stores.conformance.samples import counter, light, plain, text
from mediator.stores.conformance.scratch import Scratch, Subject
from mediator.stores.port import Ordered, Record

__all__ = ["THEME", "in_order", "neighbours"]

THEME = Theme("ordering")

_MOST = 1_000

Position: TypeAlias = tuple[Value | MissingType, str]


def neighbours(type_: FieldType) -> list[Value]:
    """Return the edge values of a type, and values as close together as it allows."""
    some = light(type_)
    if type_ is FieldType.INTEGER:
        return [*some, *(2**53 + i for i in range(-3, 4)), INTEGER_MAX - 2]
    if type_ is FieldType.FLOAT:
        return [*some, *(math.nextafter(v, 0.0) for v in (0.1, 1.0, 2.0**53, 1e308))]
    if type_ is FieldType.DECIMAL:
        return [*some, Decimal("0.1" + "0" * 31 + "1"), Decimal(2**53 + 2), Decimal("9" * 33 + "8")]
    if type_ is FieldType.TIMESTAMP:
        return [*some, *(value + timedelta(microseconds=1) for value in some[:-1])]
    if type_ is FieldType.STRING:
        stem = "p" * 500
        return [*some, stem, stem + "\x7f", stem + "\u0080", stem + "a", stem + "\U00010000"]
    return some


def _key(position: Position) -> tuple[int, Any, bytes]:
    value, id_ = position
    if isinstance(value, MissingType):
        return (0, 0, id_.encode())
    if value is None:
        return (1, 0, id_.encode())
    return (2, value.encode() if isinstance(value, str) else value, id_.encode())


def in_order(positions: Sequence[Position]) -> list[Position]:
    """Sort (value, id) positions by the port's order."""
    return sorted(positions, key=_key)


def _position(record: Record) -> Position:
    return record.values.get("value", MISSING), record.id


class _Reader:
    """Reads a class in order, whole or in pages."""

    def __init__(self, subject: Subject, field: str = "value") -> None:
        if not isinstance(subject.store, Ordered):
            raise NotOffered("the store does not read a class in the order of a field")
        self._store: Ordered = subject.store
        self._fragment, self._field = subject.fragment, field

    async def page(
        self, limit: int, after: Position | None = None, *, descending: bool = False
    ) -> list[Position]:
        records = await self._store.ordered(
            self._fragment, self._field, descending=descending, limit=limit, after=after
        )
        require(len(records) <= limit, f"a page of {limit} has {len(records)} records")
        return [_position(record) for record in records]

    async def pages(self, size: int, *, descending: bool) -> list[Position]:
        positions: list[Position] = []
        while page := await self.page(
            size, positions[-1] if positions else None, descending=descending
        ):
            positions += page
            require(len(positions) < _MOST, "pages do not end")
        return positions


async def _rows(scratch: Scratch, type_: FieldType) -> tuple[_Reader, list[Position]]:
    """Create records with every neighbour of the type twice, three nulls and three missing."""
    subject = await scratch.subject(plain(type_, index=True), counter("other"))
    reader = _Reader(subject)
    values: list[Value | MissingType] = [*neighbours(type_) * 2, *[None] * 3, *[MISSING] * 3]
    positions = [(value, f"{(i * 31) % len(values):03}") for i, value in enumerate(values)]
    positions = [(value, f"{id_}-{i}") for i, (value, id_) in enumerate(positions)]
    writes = [
        subject.creation(id_, {} if isinstance(value, MissingType) else {"value": value})
        for value, id_ in positions
    ]
    for result in await subject.write_all(writes):
        applied(result, "CREATE of a record to be ordered")
    return reader, in_order(positions)


async def _is_ordered(type_: FieldType, scratch: Scratch) -> None:
    reader, expected = await _rows(scratch, type_)
    everything = len(expected) + 1
    same(await reader.page(everything), expected, f"{type_}, ascending")
    down = await reader.page(everything, descending=True)
    same(down, expected[::-1], f"{type_}, descending")


async def _is_paged(type_: FieldType, scratch: Scratch) -> None:
    reader, expected = await _rows(scratch, type_)
    same(await reader.pages(7, descending=False), expected, f"{type_}, pages of seven")
    down = await reader.pages(7, descending=True)
    same(down, expected[::-1], f"{type_}, pages of seven, descending")


for _type in sorted(SCALARS):
    THEME.add(
        f"{_type}_in_order",
        Capability.SORTING,
        partial(_is_ordered, _type),
        f"An indexed {_type} orders its class: missing, nulls, values; descending is the reverse.",
    )
    THEME.add(
        f"{_type}_in_pages",
        Capability.RANGE_QUERIES,
        partial(_is_paged, _type),
        f"Pages in the order of a {_type} give every record exactly once, under ties too.",
    )


@THEME.proves(Capability.RANGE_QUERIES)
async def every_page_size_gives_all(scratch: Scratch) -> None:
    """Pages of one, two and three records give each record once, upwards and downwards."""
    subject = await scratch.subject(plain(FieldType.INTEGER, index=True))
    reader = _Reader(subject)
    values: list[Value | MissingType] = [1, 1, 1, 1, 2**53, 2**53 + 1, None, None, MISSING, MISSING]
    positions: list[Position] = [(value, f"id{i}") for i, value in enumerate(values)]
    for value, id_ in positions:
        await subject.create(id_, {} if isinstance(value, MissingType) else {"value": value})
    expected = in_order(positions)
    for size in (1, 2, 3):
        same(await reader.pages(size, descending=False), expected, f"pages of {size}")
        down = await reader.pages(size, descending=True)
        same(down, expected[::-1], f"pages of {size}, descending")


@THEME.proves(Capability.RANGE_QUERIES)
async def positions_need_no_record(scratch: Scratch) -> None:
    """A page may start beyond a value and an id that no record has."""
    subject = await scratch.subject(plain(FieldType.INTEGER, index=True))
    reader = _Reader(subject)
    for n in (10, 20, 30):
        await subject.create(f"id{n}", {"value": n})
    await subject.create("none")
    after: Sequence[tuple[Position, list[str], list[str]]] = (
        ((15, "x"), ["id20", "id30"], ["id10", "none"]),
        ((20, "id2"), ["id20", "id30"], ["id10", "none"]),
        ((20, "id20"), ["id30"], ["id10", "none"]),
        ((20, "id200"), ["id30"], ["id20", "id10", "none"]),
        ((None, "x"), ["id10", "id20", "id30"], ["none"]),
        ((MISSING, "a"), ["none", "id10", "id20", "id30"], []),
    )
    for position, above, below in after:
        same([id_ for _, id_ in await reader.page(9, position)], above, f"beyond {position}")
        down = await reader.page(9, position, descending=True)
        same([id_ for _, id_ in down], below, f"beyond {position}, descending")


@THEME.proves(Capability.SORTING)
async def order_follows_writes(scratch: Scratch) -> None:
    """The order is that of the values now, after updates, nulls, removals and deletes."""
    subject = await scratch.subject(plain(FieldType.INTEGER, index=True))
    reader = _Reader(subject)
    await subject.write_all([subject.creation(id_, {"value": 5}) for id_ in "abcde"])
    await subject.update("a", {"value": 9})
    await subject.update("b", {"value": None})
    await subject.update("c", unset=("value",))
    await subject.delete("d")
    expected: list[Position] = [(MISSING, "c"), (None, "b"), (5, "e"), (9, "a")]
    same(await reader.page(9), expected, "after writes")
    await subject.replace("d", {"value": 1})
    await subject.replace("a")
    await subject.update("b", {"value": 7})
    expected = [(MISSING, "a"), (MISSING, "c"), (1, "d"), (5, "e"), (7, "b")]
    same(await reader.page(9), expected, "after more writes")


@THEME.proves(Capability.SORTING)
async def ordered_records_are_whole_or_sparse(scratch: Scratch) -> None:
    """Ordered reads return all fields, or those named, with versions and creation version."""
    subject = await scratch.subject(plain(FieldType.INTEGER, index=True), text("s", group="side"))
    _Reader(subject)
    await subject.create("x", {"value": 1, "s": "see"})
    whole = await subject.read("x")
    sparse = await subject.read("x", "s")
    assert isinstance(subject.store, Ordered)
    for fields, expected in ((None, whole), (("s",), sparse)):
        records = await subject.store.ordered(
            subject.fragment, "value", descending=True, limit=5, fields=fields
        )
        same(records, [expected], f"ordered read of fields {fields}")
