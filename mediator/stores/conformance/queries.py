"""Searches: pushed and residual conditions together match the filter, in the requested order.

A store can leave everything to the mediator; the conditions that it pushes must be exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

from mediator.model.filters import (
    ID,
    Between,
    Compare,
    Comparison,
    Contains,
    Exists,
    Filter,
    In,
    Like,
    Not,
    Path,
)
from mediator.model.query import OrderBy, Position
from mediator.schema.annotations import Capability
from mediator.schema.tree import MISSING, Field, MissingType
from mediator.schema.types import SCALARS, FieldType, Value, Values
from mediator.stores.conformance.check import Theme
from mediator.stores.conformance.expect import NotOffered, require, same
from mediator.stores.conformance.query_cases import (
    DOCUMENT_PATHS,
    DOCUMENT_VALUES,
    DOCUMENTS,
    LOGICAL,
    MAPS,
    PARTS,
    PATTERNS,
    TEXTS,
    WHOLE_FLOATS,
    SearchedClass,
    comparisons,
    constants,
    create_searched_class,
    equalities,
    logical_rows,
    rows_of,
    sample,
    subset_of,
)
from mediator.stores.conformance.samples import (
    collection,
    counter,
    edges_of,
    plain,
    short_edges,
    text,
)
from mediator.stores.conformance.scratch import Scratch
from mediator.stores.port import Record, SearchRequest

__all__ = ["ORDERS", "QUERIES"]

QUERIES = Theme("queries")
ORDERS = Theme("query_orders")


def _two_fields(type_: FieldType) -> list[Field]:
    return [plain(type_, index=True), plain(type_, "unindexed")]


@QUERIES.proves_each(sorted(SCALARS), "{}_compares", "contract")
async def compares(type_: FieldType, scratch: Scratch) -> None:
    """Filters on a {} find exactly the matching records, with and without an index."""
    names = ("value", "unindexed")
    rows = await create_searched_class(scratch, _two_fields(type_), rows_of(sample(type_), *names))
    for name in names:
        await rows.check_all(comparisons((name,), constants(type_)))


@QUERIES.proves_each((FieldType.LIST, FieldType.SET), "{}_contains", "contract")
async def contains(type_: FieldType, scratch: Scratch) -> None:
    """A {} is found by its elements, by null and by presence, of every type."""
    for items in sorted(SCALARS):
        field = collection(type_, items)
        rows = await create_searched_class(
            scratch, [field], rows_of(edges_of(type_, items), "value")
        )
        members = subset_of(short_edges(items))
        await rows.check_all(Contains(("value",), member) for member in members)
        await rows.check_all(Not(Contains(("value",), member)) for member in members[:2])
        await rows.check_all(equalities(("value",), ()))


def _texts(path: Path, parts: Sequence[str] = PARTS) -> Iterable[Filter]:
    yield from (Like(path, pattern) for pattern in PATTERNS)
    yield from (Contains(path, part) for part in parts)
    yield Not(Like(path, "a%"))
    yield Not(Contains(path, "a"))


@QUERIES.proves("contract")
async def texts_match_patterns(scratch: Scratch) -> None:
    """Patterns and substrings have only their own meaning, whatever they mean elsewhere."""
    rows = await create_searched_class(
        scratch, [text("value", index=True), text("other")], rows_of(TEXTS, "value", "other")
    )
    await rows.check_all(_texts(("value",)))
    await rows.check_all(_texts(("other",)))


@QUERIES.proves("contract")
async def documents_are_searched_within(scratch: Scratch) -> None:
    """Paths lead into documents, where values compare only with their own kind."""
    rows = await create_searched_class(scratch, [plain(FieldType.DOCUMENT)], DOCUMENTS)
    for path in DOCUMENT_PATHS:
        await rows.check_all(equalities(path, (1, "a", True)))
    path = ("value", "a")
    await rows.check_all(equalities(path, DOCUMENT_VALUES))
    numbers = [v for v in DOCUMENT_VALUES if type(v) in (int, float)]
    await rows.check_all(comparisons(path, numbers[1::2]))
    await rows.check_all(comparisons(path, WHOLE_FLOATS))
    await rows.check_all(comparisons(path, ["", "a", "é", "1"]))
    await rows.check_all(Contains(path, value) for value in DOCUMENT_VALUES)
    await rows.check_all(Like(path, pattern) for pattern in ("%", "_", "a%", "1", "\\%"))


@QUERIES.proves("contract")
async def maps_are_searched_within(scratch: Scratch) -> None:
    """Paths lead into maps, whose items compare as their type does."""
    for items, values in MAPS.items():
        maps: list[Values] = [{"value": {"k": v, "a.b": values[0]}} for v in values]
        maps += [{"value": {}}, {"value": None}, {}]
        rows = await create_searched_class(scratch, [collection(FieldType.MAP, items)], maps)
        for path in (("value", "k"), ("value", "a.b")):
            await rows.check_all(comparisons(path, values[:3]))
        await rows.check_all((Exists(("value",)), Compare(Comparison.EQ, ("value",), None)))


@QUERIES.proves("contract")
async def ids_are_searched(scratch: Scratch) -> None:
    """Ids compare like strings, and are never null or missing."""
    rows = await create_searched_class(scratch, [counter()], [{"n": i} for i in range(24)])
    ids = [*sorted(rows.rows)[::6], "absent", "gone-a000-0", "a", "~"]
    await rows.check_all(comparisons(ID, ids))
    await rows.check_all(Like(ID, pattern) for pattern in ("a%", "%-1", "_%", "é0_0%"))
    await rows.check_all(Contains(ID, part) for part in ("é", "-", ""))


@QUERIES.proves("contract")
async def logic_is_two_valued(scratch: Scratch) -> None:
    """And, or and not treat nulls and missing fields like values."""
    fields = [counter(index=True), text("s"), plain(FieldType.BOOLEAN, "b", index=True)]
    rows = await create_searched_class(scratch, fields, logical_rows())
    await rows.check_all(LOGICAL)


@QUERIES.proves("contract")
async def searches_follow_writes(scratch: Scratch) -> None:
    """A search finds the current values after updates, nulls, removals and deletes."""
    rows = await create_searched_class(
        scratch, [counter(index=True), text("s")], [{"n": 1, "s": "x"}] * 4
    )
    subject, (a, b, c, d) = rows.subject, rows.rows
    await subject.update(a, {"n": 2})
    await subject.update(b, {"n": None})
    await subject.update(c, unset=("n",))
    await subject.delete(d)
    values: dict[str, Values] = {a: {"n": 2, "s": "x"}, b: {"n": None, "s": "x"}, c: {"s": "x"}}
    await SearchedClass(subject, rows.store, values).check_all(comparisons(("n",), (1, 2)))


@QUERIES.proves("contract")
async def found_records_are_whole_or_sparse(scratch: Scratch) -> None:
    """A search returns the same records as reads, for all fields, some and none."""
    fields = [counter(index=True), text("s", group="side")]
    rows = await create_searched_class(
        scratch, fields, [{"n": 1, "s": "x"}, {"n": 2, "s": None}, {"s": "z"}]
    )
    ids = sorted(rows.rows)
    for requested_fields in (None, ("n",), ("s",), ()):
        page = await rows.store.find(
            SearchRequest(rows.subject.fragment, None, (), 9, fields=requested_fields)
        )
        records = sorted(page.records, key=lambda record: record.id)
        same(
            records,
            await rows.subject.read_all(ids, requested_fields),
            f"found with fields {requested_fields}",
        )
        require(page.resume is None, "a page with all records leads to another")


@QUERIES.proves("contract")
async def pages_give_all_once(scratch: Scratch) -> None:
    """Pages of any size give each record once, with a filter and without."""
    rows = await create_searched_class(
        scratch, [counter(index=True)], [{"n": i % 3} for i in range(20)]
    )
    filters = (None, Compare(Comparison.EQ, ("n",), 1), Between(("n",), 1, 2), In(("n",), (0, 7)))
    for filter_ in (
        *filters,
        In(ID, tuple(sorted(rows.rows)[:7])),
        Compare(Comparison.GE, ID, "a"),
    ):
        for size in (1, 3, 7, 20):
            await rows.check(filter_, limit=size)


async def _check_orders(
    rows: SearchedClass, orders: Sequence[tuple[OrderBy, ...]], filter_: Filter | None, size: int
) -> None:
    for order in orders:
        await rows.check(filter_, order, limit=size)
        await rows.check_positions(order, filter_)


def _both_directions(*names: str) -> list[tuple[OrderBy, ...]]:
    return [(OrderBy((name,), descending),) for name in names for descending in (False, True)]


@ORDERS.proves_each(sorted(SCALARS), "{}_orders", Capability.SORTING)
async def orders(type_: FieldType, scratch: Scratch) -> None:
    """A search in the order of a {} gives each record in order, page by page, also with ties."""
    values, names = sample(type_) * 2, ("value", "unindexed")
    rows = await create_searched_class(scratch, _two_fields(type_), rows_of(values, *names))
    await _check_orders(rows, _both_directions(*names), None, 11)


def _in_order(records: Sequence[Record] | None) -> list[str]:
    """Return the ids of records in an order, or raise `NotOffered`."""
    if records is None:
        raise NotOffered("the store does not order by an indexed field")
    return [record.id for record in records]


async def _mixed(scratch: Scratch) -> SearchedClass:
    """Create records with combinations of values, null and missing in three fields."""
    fields = [counter(index=True), text("s"), plain(FieldType.BOOLEAN, "b", index=True)]
    numbers: list[Values] = [{}, {"n": None}, {"n": 1}, {"n": 2}]
    strings: list[Values] = [{}, {"s": None}, {"s": "x"}, {"s": "é"}]
    flags: list[Values] = [{}, {"b": True}]
    rows = [n | s | b for n, s, b in product(numbers, strings, flags)]
    return await create_searched_class(scratch, fields, rows)


@ORDERS.proves(Capability.RANGE_QUERIES)
async def every_page_size_follows_the_order(scratch: Scratch) -> None:
    """Pages of one, two and three records, and one of all, follow an order in both directions."""
    rows = await _mixed(scratch)
    _in_order(await rows.subject.in_order("n"))
    for size in (1, 2, 3, 100):
        await _check_orders(rows, _both_directions("n"), None, size)


@ORDERS.proves(Capability.RANGE_QUERIES)
async def positions_need_no_record(scratch: Scratch) -> None:
    """A page can start beyond a value and an id that no record has."""
    rows = await create_searched_class(scratch, [counter(index=True)], [])
    subject = rows.subject
    await subject.write_all([subject.creation(f"id{n}", {"n": n}) for n in (10, 20, 30)])
    await subject.create("none")
    _in_order(await subject.in_order("n"))
    after: Sequence[tuple[Value | MissingType, str, list[str], list[str]]] = (
        (15, "x", ["id20", "id30"], ["id10", "none"]),
        (20, "id2", ["id20", "id30"], ["id10", "none"]),
        (20, "id20", ["id30"], ["id10", "none"]),
        (20, "id200", ["id30"], ["id20", "id10", "none"]),
        (None, "x", ["id10", "id20", "id30"], ["none"]),
        (MISSING, "a", ["none", "id10", "id20", "id30"], []),
    )
    for value, id_, *expected in after:
        for down, ids in zip((False, True), expected, strict=True):
            position, order = Position((value,), id_), (OrderBy(("n",), down),)
            page = await rows.store.find(SearchRequest(subject.fragment, None, order, 9, position))
            same([record.id for record in page.records], ids, f"beyond {position} in {order}")


@ORDERS.proves(Capability.SORTING)
async def order_follows_writes(scratch: Scratch) -> None:
    """The order is that of the current values, after updates, nulls, removals and deletes."""
    subject = await scratch.subject(counter(index=True))
    await subject.write_all([subject.creation(id_, {"n": 5}) for id_ in "abcde"])
    await subject.update("a", {"n": 9})
    await subject.update("b", {"n": None})
    await subject.update("c", unset=("n",))
    await subject.delete("d")
    same(_in_order(await subject.in_order("n")), ["c", "b", "e", "a"], "after writes")
    await subject.replace("d", {"n": 1})
    await subject.replace("a")
    await subject.update("b", {"n": 7})
    same(_in_order(await subject.in_order("n")), ["a", "c", "d", "e", "b"], "after more writes")


@ORDERS.proves("contract")
async def several_fields_order(scratch: Scratch) -> None:
    """Several levels order lexicographically, each in its own direction."""
    rows = await _mixed(scratch)
    names = ("n", "s", "b", "id")
    orders: list[tuple[OrderBy, ...]] = [
        (OrderBy((first,), down), OrderBy((second,), up))
        for first, second in zip(names, (*names[1:], names[0]), strict=True)
        for down, up in product((False, True), repeat=2)
    ]
    orders += [(OrderBy(("s",), True), OrderBy(("n",)), OrderBy(("b",), True))]
    await _check_orders(rows, orders, None, 7)


@ORDERS.proves("contract")
async def ids_order(scratch: Scratch) -> None:
    """Ids order by their bytes, in both directions; the default order is that of ids, ascending."""
    rows = await _mixed(scratch)
    await _check_orders(rows, [(OrderBy(ID),), (OrderBy(ID, True),), ()], None, 5)


@ORDERS.proves("contract")
async def parts_of_a_class_are_ordered(scratch: Scratch) -> None:
    """A filter preserves the order of matching records, and positions in it."""
    rows = await _mixed(scratch)
    filters: list[Filter] = [
        Compare(Comparison.GE, ("n",), 1),
        Not(Compare(Comparison.EQ, ("s",), "x")),
        Exists(("b",)),
        Compare(Comparison.EQ, ("n",), None),
        Compare(Comparison.GT, ID, "a"),
    ]
    for filter_ in filters:
        await _check_orders(rows, [*_both_directions("n", "s"), (OrderBy(ID, True),)], filter_, 3)


@ORDERS.proves("contract")
async def order_fields_need_not_be_returned(scratch: Scratch) -> None:
    """A search returns only the named fields, whatever it is ordered by."""
    rows = await _mixed(scratch)
    order = (OrderBy(("n",), True), OrderBy(("b",)))
    if not rows.plan(None, order).ordered:
        return
    expected = rows.in_order(list(rows.rows), order)
    records = await rows.pages(rows.plan(None, order), order, 6, ("s",))
    same(records, await rows.subject.read_all(expected, ("s",)), "found with one field")
