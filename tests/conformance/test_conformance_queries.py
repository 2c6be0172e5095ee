"""The checks of searches: a faithful store passes all of them, and every defect is found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mediator.model.evaluate import Lookup, holds
from mediator.model.filters import And, Compare, Comparison, Contains, Filter, Like, Not, Path
from mediator.model.query import Aggregate, Computation, OrderBy, Position
from mediator.schema.tree import MISSING, MissingType
from mediator.schema.types import Value
from mediator.stores.conformance import CHECKS, CheckStatus, run
from mediator.stores.port import (
    ComputedGroup,
    Fragment,
    Pushdown,
    Record,
    SearchPage,
    SearchRequest,
)
from tests.conformance.model_store import ModelStore
from tests.conformance.searching_model import SearchingModel

SEARCHES = ("queries.", "query_orders.", "indexes.", "path_indexes.", "aggregates.")


class ThreeValued(SearchingModel):
    """Takes unknown for not true, negated or not, as SQL does."""

    def holds(self, filter_: Filter, lookup: Lookup) -> bool:
        if isinstance(filter_, Compare) and filter_.comparison is Comparison.NE:
            is_known = lookup(filter_.path) not in (None, MISSING)
            return is_known and holds(filter_, lookup)
        return super().holds(filter_, lookup)


class Caseless(SearchingModel):
    """Matches patterns without regard to case."""

    def holds(self, filter_: Filter, lookup: Lookup) -> bool:
        if isinstance(filter_, Like):
            value = lookup(filter_.path)
            folded = value.casefold() if isinstance(value, str) else value
            pattern = Like(filter_.path, filter_.pattern.casefold())
            return holds(pattern, lambda _: folded)
        return super().holds(filter_, lookup)


class Rounding(SearchingModel):
    """Compares integers as doubles."""

    def holds(self, filter_: Filter, lookup: Lookup) -> bool:
        if isinstance(filter_, Compare) and type(filter_.value) is int:
            rounded = replace(filter_, value=float(filter_.value))
            return holds(rounded, lambda path: _rounded(lookup(path)))
        return super().holds(filter_, lookup)


def _rounded(value: Any) -> Any:
    return float(value) if type(value) is int else value


class Coercing(SearchingModel):
    """Treats true as 1 in documents."""

    def holds(self, filter_: Filter, lookup: Lookup) -> bool:
        if isinstance(filter_, Compare) and filter_.comparison is Comparison.EQ:
            return bool(lookup(filter_.path) == filter_.value)
        return super().holds(filter_, lookup)


class Prefixing(SearchingModel):
    """Finds substrings only at the beginning."""

    def holds(self, filter_: Filter, lookup: Lookup) -> bool:
        value = lookup(filter_.path) if isinstance(filter_, Contains) else None
        if isinstance(filter_, Contains) and isinstance(value, str):
            return value.startswith(str(filter_.value))
        return super().holds(filter_, lookup)


class Losing(SearchingModel):
    """Drops an operand of a filter that it splits."""

    def pushdown(
        self, fragment: Fragment, filter_: Filter | None, order: tuple[OrderBy, ...]
    ) -> Pushdown:
        plan = super().pushdown(fragment, filter_, order)
        split = isinstance(filter_, And) and len(filter_.operands) > 1
        return (
            replace(plan, pushed=filter_.operands[0])
            if split and isinstance(filter_, And)
            else plan
        )


class FindsDeleted(SearchingModel):
    """Finds deleted records."""

    async def find(self, find: SearchRequest) -> SearchPage:
        for row in self.rows(find.fragment).values():
            row.is_live = True
        return await super().find(find)


class Overlapping(SearchingModel):
    """Starts a page with the last record of the page before."""

    def position(self, order: tuple[OrderBy, ...], record: Any) -> Position:
        position = super().position(order, record)
        return replace(position, id=position.id[:-1] or "!")


class Upward(SearchingModel):
    """Orders ties by ascending id, whatever the direction."""

    async def find(self, find: SearchRequest) -> SearchPage:
        is_descending = bool(find.order) and find.order[-1].descending
        order = (*find.order, OrderBy(("id",))) if is_descending else find.order
        after = find.resume or find.after
        full = await super().find(replace(find, order=order, after=None, resume=None, limit=9_999))
        records = list(full.records)
        if after is not None:
            at = next(i for i, record in enumerate(records) if record.id == after.id)
            records = records[at + 1 :]
        page, remaining = records[: find.limit], records[find.limit :]
        return SearchPage(
            page, Position(after.values if after else (), page[-1].id) if remaining else None
        )


class Digitwise(SearchingModel):
    """Orders integers by their digits."""

    def values(self, record: Record) -> Lookup:
        lookup = super().values(record)
        return lambda path: str(value) if type(value := lookup(path)) is int else value


class Wide(SearchingModel):
    """Returns all fields, whatever the request."""

    async def find(self, find: SearchRequest) -> SearchPage:
        return await super().find(replace(find, fields=None))


class Merging(SearchingModel):
    """Puts null and missing into one group."""

    async def aggregate(
        self,
        fragment: Fragment,
        filter_: Filter | None,
        aggregate: Aggregate,
        *,
        limit: int,
        deadline_s: float,
    ) -> list[ComputedGroup]:
        groups = await super().aggregate(
            fragment, filter_, aggregate, limit=limit, deadline_s=deadline_s
        )
        return [(tuple(v or None for v in key), results) for key, results in groups]


class Floating(SearchingModel):
    """Sums as doubles."""

    def total(self, values: list[Any]) -> Any:
        return type(values[0])(float(super().total(values)))


class Counting(SearchingModel):
    """Also counts null and missing values."""

    def compute_one(self, computation: Computation, lookups: list[Lookup]) -> Value:
        value = super().compute_one(computation, lookups)
        return len(lookups) if computation.function == "count" else value


class CountsDeleted(SearchingModel):
    """Counts deleted records."""

    async def _matches(self, fragment: Fragment, filter_: Filter | None) -> list[Record]:
        for row in self.rows(fragment).values():
            row.is_live = True
        return await super()._matches(fragment, filter_)


class Guessing(SearchingModel):
    """Returns negative estimates."""

    async def estimate(
        self, fragment: Fragment, filter_: Filter | None, *, deadline_s: float
    ) -> int:
        return -1


class Stale(SearchingModel):
    """Also finds records by their former values."""

    async def _matches(self, fragment: Fragment, filter_: Filter | None) -> list[Record]:
        former: dict[str, Record] = self.__dict__.setdefault("former", {})
        records = await super()._matches(fragment, None)
        for record in records:
            former.setdefault(record.id, record)
        return [
            record
            for record in records
            if filter_ is None
            or any(self.holds(filter_, self.values(r)) for r in (record, former[record.id]))
        ]


class Repeating(SearchingModel):
    """Finds a record once for each matching element."""

    async def _matches(self, fragment: Fragment, filter_: Filter | None) -> list[Record]:
        matches = await super()._matches(fragment, filter_)
        if not isinstance(filter_, Contains):
            return matches
        items = [(record, record.values[filter_.path[0]]) for record in matches]
        return [
            r
            for r, elements in items
            if isinstance(elements, list)
            for i in elements
            if i == filter_.value
        ]


class Descending(SearchingModel):
    """Descends into arrays on a path."""

    def values(self, record: Record) -> Lookup:
        lookup = super().values(record)

        def lookup_within(path: Path) -> Value | MissingType:
            outer = lookup(path[:-1]) if len(path) > 1 else MISSING
            inner = outer[0] if isinstance(outer, list) and outer else None
            return inner.get(path[-1], MISSING) if isinstance(inner, dict) else lookup(path)

        return lookup_within


DEFECTS = (
    (Descending, "path_indexes.paths_into_documents_are_found"),
    (Digitwise, "path_indexes.items_of_a_map_of_integer_are_found"),
    (Stale, "path_indexes.indexed_paths_follow_writes"),
    (Stale, "indexes.elements_of_a_set_follow_writes"),
    (Repeating, "indexes.elements_of_a_list_are_found"),
    (ThreeValued, "queries.integer_compares"),
    (Caseless, "queries.texts_match_patterns"),
    (Rounding, "queries.integer_compares"),
    (Coercing, "queries.documents_are_searched_within"),
    (Prefixing, "queries.texts_match_patterns"),
    (Losing, "queries.logic_is_two_valued"),
    (FindsDeleted, "queries.boolean_compares"),
    (Overlapping, "queries.pages_give_all_once"),
    (Upward, "query_orders.several_fields_order"),
    (Digitwise, "query_orders.integer_orders"),
    (Wide, "queries.found_records_are_whole_or_sparse"),
    (Merging, "aggregates.every_type_groups"),
    (Floating, "aggregates.each_function_computes"),
    (Counting, "aggregates.each_function_computes"),
    (CountsDeleted, "aggregates.matches_of_a_filter_are_counted"),
    (Guessing, "aggregates.estimates_are_numbers_of_records"),
)


async def test_faithful_store_conforms() -> None:
    checks = [check for check in CHECKS if check.name.startswith(SEARCHES)]
    report = await run(SearchingModel(), checks=checks)
    failures = [f.detail for f in report.findings if f.status is not CheckStatus.PASSED]
    assert not failures


@pytest.mark.parametrize(("defective", "check"), DEFECTS)
async def test_every_defect_is_found(defective: type[SearchingModel], check: str) -> None:
    report = await run(defective(), only=check)
    assert [finding.status for finding in report.findings] == [CheckStatus.FAILED]


async def test_a_store_without_searches_skips_their_checks() -> None:
    checks = [check for check in CHECKS if check.name.startswith(SEARCHES)]
    report = await run(ModelStore(), checks=checks)
    assert {finding.status for finding in report.findings} == {CheckStatus.NOT_OFFERED}


async def test_a_wrong_split_is_found_without_its_records() -> None:
    class Negating(SearchingModel):
        def pushdown(
            self, fragment: Fragment, filter_: Filter | None, order: tuple[OrderBy, ...]
        ) -> Pushdown:
            plan = super().pushdown(fragment, filter_, order)
            return replace(plan, pushed=None, residual=None if filter_ is None else Not(filter_))

    report = await run(Negating(), only="queries.logic_is_two_valued")
    assert "split" in report.findings[0].detail
