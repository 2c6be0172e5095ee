"""Reading a class in the order of ids or of a field: missing, nulls, values; page by page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import TypeAlias

from mediator.model.order import sort_key
from mediator.model.query import OrderBy
from mediator.schema.annotations import Capability
from mediator.schema.limits import INTEGER_MAX
from mediator.schema.tree import MISSING, MissingType
from mediator.schema.types import SCALARS, FieldType, Value
from mediator.stores.conformance.check import Theme
from mediator.stores.conformance.expect import NotOffered, require, same
from mediator.stores.conformance.samples import HOSTILE_TEXTS, counter, light, plain, text
from mediator.stores.conformance.scratch import Scratch, Subject
from mediator.stores.port import Ordered

__all__ = ["ORDERING", "SCANNING", "neighbours"]

SCANNING = Theme("scanning")
ORDERING = Theme("ordering")

_IDS = ("a", "A", "aa", "b", "é", "e\u0301", "\uffee", "\U00010000", "~", *HOSTILE_TEXTS)

_MOST = 1_000

Position: TypeAlias = tuple[Value | MissingType, str]


async def _scanned(subject: Subject, size: int) -> list[str]:
    """Scan a class in pages until one is empty."""
    ids: list[str] = []
    while page := await subject.store.scan(subject.fragment, ids[-1] if ids else None, size):
        require(len(page) <= size, f"a page of {size} has {len(page)} records")
        ids += [record.id for record in page]
        require(len(ids) < _MOST, "a scan does not end")
    return ids


@SCANNING.proves(Capability.SCANS)
async def pages_give_every_id_once(scratch: Scratch) -> None:
    """Pages of any size give every record once, in the order of the UTF-8 bytes of its id."""
    subject = await scratch.subject(counter())
    await subject.write_all([subject.creation(id_, {"n": 1}) for id_ in _IDS])
    expected = sorted(_IDS, key=str.encode)
    for size in (1, 7, len(_IDS), 1_000):
        same(await _scanned(subject, size), expected, f"ids in pages of {size}")
    same(await subject.store.count(subject.fragment), len(_IDS), "count")


@SCANNING.proves(Capability.SCANS)
async def a_scan_may_start_anywhere(scratch: Scratch) -> None:
    """A page may start beyond an id that is not there."""
    subject = await scratch.subject(counter())
    await subject.write_all([subject.creation(id_) for id_ in ("b", "d", "f")])
    for after, expected in (("a", "bdf"), ("b", "df"), ("c", "df"), ("f", ""), ("z", "")):
        page = await subject.store.scan(subject.fragment, after, 5)
        same([record.id for record in page], list(expected), f"scan beyond {after!r}")


@SCANNING.proves("contract")
async def scanned_records_are_whole_or_sparse(scratch: Scratch) -> None:
    """A scan returns what reading each record returns, for all fields, some and none."""
    subject = await scratch.subject(counter(), text(group="side"))
    await subject.create("x", {"n": None, "s": "see"})
    await subject.create("y", {"n": 2})
    for fields in (None, ("n",), ("s",), ()):
        scanned = await subject.store.scan(subject.fragment, None, 5, fields)
        read = await subject.read_all(["x", "y"], fields)
        same(list(scanned), read, f"scan of fields {fields}")


@SCANNING.proves("contract")
async def an_empty_class_has_nothing(scratch: Scratch) -> None:
    """A class without records scans and counts as empty."""
    subject = await scratch.subject(counter())
    same(await _scanned(subject, 5), [], "scan of an empty class")
    same(await subject.store.count(subject.fragment), 0, "count of an empty class")


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


_KEY = sort_key((OrderBy(("value",)),))


def _in_order(positions: Sequence[Position]) -> list[Position]:
    """Sort (value, id) positions by the port's order."""
    return sorted(positions, key=lambda position: _KEY(lambda _: position[0], position[1]))


class _Reader:
    """Reads a class in the order of its field `value`, whole or in pages."""

    def __init__(self, subject: Subject) -> None:
        if not isinstance(subject.store, Ordered):
            raise NotOffered("the store does not read a class in the order of a field")
        self.store: Ordered = subject.store
        self.subject = subject

    @classmethod
    async def of(cls, scratch: Scratch, type_: FieldType = FieldType.INTEGER) -> _Reader:
        """Prepare a class with such a field."""
        subject = await scratch.subject(plain(type_, index=True), text("s", group="side"))
        return cls(subject)

    async def create(self, positions: Sequence[Position]) -> list[Position]:
        """Create a record for each position; return them in order."""
        writes = [
            self.subject.creation(id_, {} if isinstance(value, MissingType) else {"value": value})
            for value, id_ in positions
        ]
        await self.subject.apply_all(writes, "of a record to be ordered")
        return _in_order(positions)

    async def page(
        self, limit: int, after: Position | None = None, *, descending: bool = False
    ) -> list[Position]:
        records = await self.store.ordered(
            self.subject.fragment, "value", descending=descending, limit=limit, after=after
        )
        require(len(records) <= limit, f"a page of {limit} has {len(records)} records")
        return [(record.values.get("value", MISSING), record.id) for record in records]

    async def check_pages(self, size: int, expected: Sequence[Position]) -> None:
        """Require that pages of a size follow the order, in both directions."""
        for descending in (False, True):
            positions: list[Position] = []
            while page := await self.page(
                size, positions[-1] if positions else None, descending=descending
            ):
                positions += page
                require(len(positions) < _MOST, "pages do not end")
            what = f"pages of {size}, {'descending' if descending else 'ascending'}"
            same(positions, list(expected[::-1] if descending else expected), what)


async def _rows(scratch: Scratch, type_: FieldType) -> tuple[_Reader, list[Position]]:
    """Create records with every neighbour of the type twice, three nulls and three missing."""
    reader = await _Reader.of(scratch, type_)
    values: list[Value | MissingType] = [*neighbours(type_) * 2, *[None] * 3, *[MISSING] * 3]
    ids = [f"{(i * 31) % len(values):03}-{i}" for i in range(len(values))]
    return reader, await reader.create(list(zip(values, ids, strict=True)))


@ORDERING.proves_each(sorted(SCALARS), "{}_in_order", Capability.SORTING)
async def in_order(type_: FieldType, scratch: Scratch) -> None:
    """An indexed {} orders its class: missing, nulls, values; descending is the reverse."""
    reader, expected = await _rows(scratch, type_)
    everything = len(expected) + 1
    same(await reader.page(everything), expected, f"{type_}, ascending")
    down = await reader.page(everything, descending=True)
    same(down, expected[::-1], f"{type_}, descending")


@ORDERING.proves_each(sorted(SCALARS), "{}_in_pages", Capability.RANGE_QUERIES)
async def in_pages(type_: FieldType, scratch: Scratch) -> None:
    """Pages in the order of a {} give every record exactly once, under ties too."""
    reader, expected = await _rows(scratch, type_)
    await reader.check_pages(7, expected)


@ORDERING.proves(Capability.RANGE_QUERIES)
async def every_page_size_gives_all(scratch: Scratch) -> None:
    """Pages of one, two and three records give each record once, upwards and downwards."""
    reader = await _Reader.of(scratch)
    values: list[Value | MissingType] = [1, 1, 1, 1, 2**53, 2**53 + 1, None, None, MISSING, MISSING]
    expected = await reader.create([(value, f"id{i}") for i, value in enumerate(values)])
    for size in (1, 2, 3):
        await reader.check_pages(size, expected)


@ORDERING.proves(Capability.RANGE_QUERIES)
async def positions_need_no_record(scratch: Scratch) -> None:
    """A page may start beyond a value and an id that no record has."""
    reader = await _Reader.of(scratch)
    await reader.create([(10, "id10"), (20, "id20"), (30, "id30"), (MISSING, "none")])
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


@ORDERING.proves(Capability.SORTING)
async def order_follows_writes(scratch: Scratch) -> None:
    """The order is that of the values now, after updates, nulls, removals and deletes."""
    reader = await _Reader.of(scratch)
    subject = reader.subject
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


@ORDERING.proves(Capability.SORTING)
async def ordered_records_are_whole_or_sparse(scratch: Scratch) -> None:
    """Ordered reads return all fields, or those named, with versions and creation version."""
    reader = await _Reader.of(scratch)
    subject = reader.subject
    await subject.create("x", {"value": 1, "s": "see"})
    for fields in (None, ("s",)):
        records = await reader.store.ordered(
            subject.fragment, "value", descending=True, limit=5, fields=fields
        )
        same(records, await subject.read_all(["x"], fields), f"ordered read of fields {fields}")
