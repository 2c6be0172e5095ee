"""Searching by filters: what a store applies and what it leaves find together what holds.

A store may leave everything to the mediator; what it says it has applied must be exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

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
from mediator.schema.tree import Field
from mediator.schema.types import SCALARS, FieldType, Values
from mediator.stores.conformance.check import Theme
from mediator.stores.conformance.expect import require, same
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
    comparisons,
    constants,
    equalities,
    logical_rows,
    rows_of,
    sample,
    some,
)
from mediator.stores.conformance.query_rows import Searched, searched
from mediator.stores.conformance.samples import collection, counter, edges_of, light, plain, text
from mediator.stores.conformance.scratch import Scratch
from mediator.stores.port import SearchRequest

__all__ = ["THEME"]

THEME = Theme("queries")

_TYPE = {FieldType.REFERENCE: {"to": "somewhere"}}


def _field(type_: FieldType, name: str = "value", *, index: bool = False) -> Field:
    return plain(type_, name, index=index, **_TYPE.get(type_, {}))


async def _check_all(rows: Searched, filters: Iterable[Filter]) -> None:
    for filter_ in filters:
        await rows.check(filter_)


async def _compares(type_: FieldType, scratch: Scratch) -> None:
    fields = [_field(type_, index=True), _field(type_, "unindexed")]
    rows = await searched(scratch, fields, rows_of(sample(type_), "value", "unindexed"))
    for name in ("value", "unindexed"):
        await _check_all(rows, comparisons((name,), constants(type_)))


for _scalar in sorted(SCALARS):
    THEME.add(
        f"{_scalar}_compares",
        "contract",
        partial(_compares, _scalar),
        f"Filters on a {_scalar} find what they hold for, indexed and not.",
    )


async def _holds_items(type_: FieldType, scratch: Scratch) -> None:
    for items in sorted(SCALARS):
        field = collection(type_, items)
        rows = await searched(scratch, [field], rows_of(edges_of(type_, items), "value"))
        members = some(light(items))
        await _check_all(rows, (Contains(("value",), member) for member in members))
        await _check_all(rows, (Not(Contains(("value",), member)) for member in members[:2]))
        await _check_all(rows, equalities(("value",), ()))


for _collection in (FieldType.LIST, FieldType.SET):
    THEME.add(
        f"{_collection}_contains",
        "contract",
        partial(_holds_items, _collection),
        f"A {_collection} is found by its elements, by null and by presence, of every type.",
    )


def _texts(path: Path, parts: Sequence[str] = PARTS) -> Iterable[Filter]:
    yield from (Like(path, pattern) for pattern in PATTERNS)
    yield from (Contains(path, part) for part in parts)
    yield Not(Like(path, "a%"))
    yield Not(Contains(path, "a"))


@THEME.proves("contract")
async def texts_match_patterns(scratch: Scratch) -> None:
    """Patterns and parts mean in strings what they say, whatever they mean elsewhere."""
    rows = await searched(
        scratch, [text("value", index=True), text("other")], rows_of(TEXTS, "value", "other")
    )
    await _check_all(rows, _texts(("value",)))
    await _check_all(rows, _texts(("other",)))


@THEME.proves("contract")
async def documents_are_searched_within(scratch: Scratch) -> None:
    """Paths lead into documents, where values compare with their own kind only."""
    rows = await searched(scratch, [plain(FieldType.DOCUMENT)], DOCUMENTS)
    for path in DOCUMENT_PATHS:
        await _check_all(rows, equalities(path, (1, "a", True)))
    path = ("value", "a")
    await _check_all(rows, equalities(path, DOCUMENT_VALUES))
    numbers = [v for v in DOCUMENT_VALUES if type(v) in (int, float)]
    await _check_all(rows, comparisons(path, numbers[1::2]))
    await _check_all(rows, comparisons(path, WHOLE_FLOATS))
    await _check_all(rows, comparisons(path, ["", "a", "é", "1"]))
    await _check_all(rows, (Contains(path, value) for value in DOCUMENT_VALUES))
    await _check_all(rows, (Like(path, pattern) for pattern in ("%", "_", "a%", "1", "\\%")))


@THEME.proves("contract")
async def maps_are_searched_within(scratch: Scratch) -> None:
    """Paths lead into maps, whose items compare as their type does."""
    for items, values in MAPS.items():
        maps: list[Values] = [{"value": {"k": v, "a.b": values[0]}} for v in values]
        maps += [{"value": {}}, {"value": None}, {}]
        rows = await searched(scratch, [collection(FieldType.MAP, items)], maps)
        for path in (("value", "k"), ("value", "a.b")):
            await _check_all(rows, comparisons(path, values[:3]))
        await _check_all(rows, (Exists(("value",)), Compare(Comparison.EQ, ("value",), None)))


@THEME.proves("contract")
async def ids_are_searched(scratch: Scratch) -> None:
    """Ids compare like strings, and are never null or missing."""
    rows = await searched(scratch, [counter()], [{"n": i} for i in range(24)])
    ids = [*sorted(rows.rows)[::6], "absent", "gone-a000-0", "a", "~"]
    await _check_all(rows, comparisons(ID, ids))
    await _check_all(rows, (Like(ID, pattern) for pattern in ("a%", "%-1", "_%", "é0_0%")))
    await _check_all(rows, (Contains(ID, part) for part in ("é", "-", "")))


@THEME.proves("contract")
async def logic_is_two_valued(scratch: Scratch) -> None:
    """And, or and not decide for nulls and missing fields as for values."""
    fields = [counter(index=True), text("s"), _field(FieldType.BOOLEAN, "b", index=True)]
    rows = await searched(scratch, fields, logical_rows())
    await _check_all(rows, LOGICAL)


@THEME.proves("contract")
async def searches_follow_writes(scratch: Scratch) -> None:
    """A search finds what is there now: after updates, nulls, removals and deletes."""
    rows = await searched(scratch, [counter(index=True), text("s")], [{"n": 1, "s": "x"}] * 4)
    subject, (a, b, c, d) = rows.subject, rows.rows
    await subject.update(a, {"n": 2})
    await subject.update(b, {"n": None})
    await subject.update(c, unset=("n",))
    await subject.delete(d)
    now: dict[str, Values] = {a: {"n": 2, "s": "x"}, b: {"n": None, "s": "x"}, c: {"s": "x"}}
    await _check_all(Searched(subject, rows.store, now), comparisons(("n",), (1, 2)))


@THEME.proves("contract")
async def found_records_are_whole_or_sparse(scratch: Scratch) -> None:
    """A search returns what reading each record returns, for all fields, some and none."""
    fields = [counter(index=True), text("s", group="side")]
    rows = await searched(scratch, fields, [{"n": 1, "s": "x"}, {"n": 2, "s": None}, {"s": "z"}])
    ids = sorted(rows.rows)
    for wanted in (None, ("n",), ("s",), ()):
        page = await rows.store.find(
            SearchRequest(rows.subject.fragment, None, (), 9, fields=wanted)
        )
        found = sorted(page.records, key=lambda record: record.id)
        same(found, await rows.subject.read_all(ids, wanted), f"found with fields {wanted}")
        require(page.resume is None, "a page with all records leads to another")


@THEME.proves("contract")
async def pages_give_all_once(scratch: Scratch) -> None:
    """Pages of any size give each record once, of a part of a class and of all."""
    rows = await searched(scratch, [counter(index=True)], [{"n": i % 3} for i in range(20)])
    filters = (None, Compare(Comparison.EQ, ("n",), 1), Between(("n",), 1, 2), In(("n",), (0, 7)))
    for filter_ in (
        *filters,
        In(ID, tuple(sorted(rows.rows)[:7])),
        Compare(Comparison.GE, ID, "a"),
    ):
        for size in (1, 3, 7, 20):
            await rows.check(filter_, limit=size)
