"""An in-memory store with searches: it tests the checks of searches."""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

from mediator.model.evaluate import Lookup, holds, lookup_of
from mediator.model.exact import decimal_of
from mediator.model.filters import Filter
from mediator.model.order import beyond, position_of, sort_key
from mediator.model.query import Aggregate, Computation, Function, OrderBy, Position
from mediator.schema.tree import MissingType
from mediator.schema.types import Value
from mediator.stores.port import (
    AccessPath,
    ComputedGroup,
    Fragment,
    Pushdown,
    Record,
    SearchPage,
    SearchRequest,
)
from tests.conformance.model_store import ModelStore

__all__ = ["SearchingModel"]

Key = tuple[Value | MissingType, ...]


class SearchingModel(ModelStore):
    """Applies every filter and order, and computes everything, as the mediator would."""

    def pushdown(
        self, fragment: Fragment, filter_: Filter | None, order: tuple[OrderBy, ...]
    ) -> Pushdown:
        return Pushdown(filter_, None, AccessPath.CLIENT_SCAN, ordered=True)

    async def build(self, fragment: Fragment, previous: Fragment | None = None) -> None:
        """Build nothing: there are no indexes."""

    async def built(self, fragment: Fragment) -> float | None:
        return None

    def holds(self, filter_: Filter, lookup: Lookup) -> bool:
        return holds(filter_, lookup)

    def values(self, record: Record) -> Lookup:
        return lookup_of(record.id, dict(record.values))

    async def find(self, find: SearchRequest) -> SearchPage:
        key, after = sort_key(find.order), find.resume or find.after
        matches = await self._matches(find.fragment, find.filter)
        matches.sort(key=lambda r: key(self.values(r), r.id))
        if after is not None:
            is_beyond = beyond(find.order, after)
            matches = [r for r in matches if is_beyond(self.values(r), r.id)]
        page, remaining = matches[: find.limit], matches[find.limit :]
        resume = self.position(find.order, page[-1]) if remaining else None
        return SearchPage([self.record(find.fragment, r.id, find.fields) for r in page], resume)

    def position(self, order: tuple[OrderBy, ...], record: Record) -> Position:
        return position_of(order, self.values(record), record.id)

    async def _matches(self, fragment: Fragment, filter_: Filter | None) -> list[Record]:
        rows = self.rows(fragment)
        records = [self.record(fragment, i, None) for i, row in rows.items() if row.is_live]
        return [r for r in records if filter_ is None or self.holds(filter_, self.values(r))]

    def aggregates(self, fragment: Fragment, filter_: Filter | None, aggregate: Aggregate) -> bool:
        return True

    async def aggregate(
        self,
        fragment: Fragment,
        filter_: Filter | None,
        aggregate: Aggregate,
        *,
        limit: int,
        deadline_s: float,
    ) -> list[ComputedGroup]:
        group, compute = aggregate.group, aggregate.compute
        groups: dict[str, tuple[Key, list[Lookup]]] = {} if group else {"()": ((), [])}
        for record in await self._matches(fragment, filter_):
            lookup = self.values(record)
            key = tuple(lookup(path) for path in group)
            groups.setdefault(repr(key), (key, []))[1].append(lookup)
        return [
            (key, {name: self.compute_one(c, lookups) for name, c in compute.items()})
            for key, lookups in list(groups.values())[:limit]
        ]

    def estimates(self, fragment: Fragment, filter_: Filter | None) -> bool:
        return True

    async def estimate(
        self, fragment: Fragment, filter_: Filter | None, *, deadline_s: float
    ) -> int:
        return len(await self._matches(fragment, filter_))

    def compute_one(self, computation: Computation, lookups: list[Lookup]) -> Any:
        if computation.path is None:
            return len(lookups)
        inputs = [lookup(computation.path) for lookup in lookups]
        values: list[Any] = [v for v in inputs if v is not None and not isinstance(v, MissingType)]
        match computation.function:
            case Function.COUNT:
                return len(values)
            case _ if not values:
                return None
            case Function.MIN:
                return min(values)
            case Function.MAX:
                return max(values)
            case Function.SUM:
                return self.total(values)
        if isinstance(values[0], Decimal):
            return Context(prec=34).divide(self.total(values), Decimal(len(values)))
        return float(sum(map(_fraction, values)) / len(values))

    def total(self, values: list[Any]) -> Any:
        if isinstance(values[0], Decimal):
            total = Decimal(0)
            for value in values:
                total = Context(prec=20_000).add(total, value)
            return total
        return type(values[0])(sum(map(_fraction, values)))


def _fraction(value: float) -> Fraction:
    return Fraction(decimal_of(value)) if isinstance(value, float) else Fraction(value)
