"""Searching in an order: missing, nulls, values at each level; ties by id; from any position on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any

from mediator.model.filters import ID, Compare, Comparison, Exists, Filter, Not
from mediator.model.query import OrderBy
from mediator.schema.tree import Field
from mediator.schema.types import SCALARS, FieldType, Values
from mediator.stores.conformance.check import Theme
from mediator.stores.conformance.expect import same
from mediator.stores.conformance.query_cases import rows_of, sample
from mediator.stores.conformance.query_rows import Searched, searched
from mediator.stores.conformance.samples import counter, plain, text
from mediator.stores.conformance.scratch import Scratch
from mediator.stores.port import SearchRequest

__all__ = ["THEME"]

THEME = Theme("query_orders")

_TYPE: dict[FieldType, dict[str, Any]] = {FieldType.REFERENCE: {"to": "somewhere"}}


async def _check_all(
    rows: Searched, orders: Sequence[tuple[OrderBy, ...]], filter_: Filter | None, size: int
) -> None:
    for order in orders:
        await rows.check(filter_, order, limit=size)
        await rows.check_positions(order, filter_)


def _both(*names: str) -> list[tuple[OrderBy, ...]]:
    return [(OrderBy((name,), descending),) for name in names for descending in (False, True)]


async def _orders(type_: FieldType, scratch: Scratch) -> None:
    rules = _TYPE.get(type_, {})
    fields = [plain(type_, index=True, **rules), plain(type_, "unindexed", **rules)]
    values = [*sample(type_), *sample(type_)[:5]]
    rows = await searched(scratch, fields, rows_of(values, "value", "unindexed"))
    await _check_all(rows, _both("value", "unindexed"), None, 11)


for _scalar in sorted(SCALARS):
    THEME.add(
        f"{_scalar}_orders",
        "contract",
        partial(_orders, _scalar),
        f"A search in the order of a {_scalar} gives each record in order, page by page.",
    )


def _rows() -> list[Values]:
    numbers: list[Values] = [{}, {"n": None}, {"n": 1}, {"n": 2}]
    strings: list[Values] = [{}, {"s": None}, {"s": "x"}, {"s": "é"}]
    flags: list[Values] = [{}, {"b": True}]
    return [n | s | b for n, s, b in product(numbers, strings, flags)]


def _fields() -> list[Field]:
    return [counter(index=True), text("s"), plain(FieldType.BOOLEAN, "b", index=True)]


@THEME.proves("contract")
async def every_page_size_follows_the_order(scratch: Scratch) -> None:
    """Pages of one, two and three records, and one of all, follow an order in both directions."""
    rows = await searched(scratch, _fields(), _rows())
    for size in (1, 2, 3, 100):
        await _check_all(rows, _both("n"), None, size)


@THEME.proves("contract")
async def several_fields_order(scratch: Scratch) -> None:
    """Several levels order one below the other, each in its own direction."""
    rows = await searched(scratch, _fields(), _rows())
    names = ("n", "s", "b", "id")
    orders: list[tuple[OrderBy, ...]] = [
        (OrderBy((first,), down), OrderBy((second,), up))
        for first, second in zip(names, (*names[1:], names[0]), strict=True)
        for down, up in product((False, True), repeat=2)
    ]
    orders += [(OrderBy(("s",), True), OrderBy(("n",)), OrderBy(("b",), True))]
    await _check_all(rows, orders, None, 7)


@THEME.proves("contract")
async def ids_order(scratch: Scratch) -> None:
    """Ids order by their bytes, in both directions; without an order it is theirs, upwards."""
    rows = await searched(scratch, _fields(), _rows())
    await _check_all(rows, [(OrderBy(ID),), (OrderBy(ID, True),), ()], None, 5)


@THEME.proves("contract")
async def parts_of_a_class_are_ordered(scratch: Scratch) -> None:
    """A filter leaves the order of what it finds, and the positions in it."""
    rows = await searched(scratch, _fields(), _rows())
    filters: list[Filter] = [
        Compare(Comparison.GE, ("n",), 1),
        Not(Compare(Comparison.EQ, ("s",), "x")),
        Exists(("b",)),
        Compare(Comparison.EQ, ("n",), None),
        Compare(Comparison.GT, ID, "a"),
    ]
    for filter_ in filters:
        await _check_all(rows, [*_both("n", "s"), (OrderBy(ID, True),)], filter_, 3)


@THEME.proves("contract")
async def what_orders_need_not_be_returned(scratch: Scratch) -> None:
    """A search returns the named fields, whatever it is ordered by."""
    rows = await searched(scratch, _fields(), _rows())
    order = (OrderBy(("n",), True), OrderBy(("b",)))
    fragment = rows.subject.fragment
    if not rows.store.pushdown(fragment, None, order).ordered:
        return
    expected = rows.in_order(list(rows.rows), order)
    page = await rows.store.find(SearchRequest(fragment, None, order, 6, fields=("s",)))
    found = list(page.records)
    while page.resume is not None and len(found) < len(expected):
        find = SearchRequest(fragment, None, order, 6, resume=page.resume, fields=("s",))
        page = await rows.store.find(find)
        found += page.records
    same(found, await rows.subject.read_all(expected, ("s",)), "found with one field")
