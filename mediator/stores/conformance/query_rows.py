"""Records to be searched, and what a search of them must find: an oracle in plain Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mediator.model.evaluate import compile_filter, lookup_of
from mediator.model.filters import Filter
from mediator.model.order import position_of, sort_key
from mediator.model.query import OrderBy, Position
from mediator.schema.tree import Field
from mediator.schema.types import Values
from mediator.stores.conformance.expect import (
    ConformanceFailure,
    NotOffered,
    require,
    same,
)
from mediator.stores.conformance.scratch import Scratch, Subject
from mediator.stores.port import Pushdown, Queryable, Record, SearchRequest

__all__ = ["Searched", "meets", "searched"]

_MOST = 1_000


def meets(filter_: Filter | None, id_: str, values: Values) -> bool:
    """Whether an object meets a filter."""
    return filter_ is None or compile_filter(filter_)(lookup_of(id_, values))


@dataclass(frozen=True, slots=True)
class Searched:
    """A class with records, whose every search is compared with the oracle."""

    subject: Subject
    store: Queryable
    rows: Mapping[str, Values]

    async def check(
        self, filter_: Filter | None, order: tuple[OrderBy, ...] = (), *, limit: int = _MOST
    ) -> None:
        """Require that pushed and residual part together find what the filter holds for."""
        plan = self.plan(filter_, order)
        found = await self.pages(plan, order if plan.ordered else (), limit)
        ids = [record.id for record in found]
        same(sorted(ids), sorted(self._ids(plan.pushed)), f"found for {plan.pushed}")
        for record in found:
            same(record.values, self.rows[record.id], f"values of {record.id!r}")
        left = [r.id for r in found if meets(plan.residual, r.id, dict(r.values))]
        same(sorted(left), sorted(self._ids(filter_)), f"found and kept for {filter_}")
        if plan.ordered:
            same(ids, self.in_order(ids, order), f"the order {order}")

    async def check_positions(self, order: tuple[OrderBy, ...], filter_: Filter | None) -> None:
        """Require that a search may begin beyond any record, if the store has the order."""
        plan = self.plan(filter_, order)
        if not plan.ordered:
            return
        expected = self.in_order(self._ids(plan.pushed), order)
        for at in range(0, len(expected), 5):
            after = self.position(expected[at], order)
            find = SearchRequest(self.subject.fragment, plan.pushed, order, 3, after)
            page = await self.store.find(find)
            ids = [record.id for record in page.records]
            same(ids, expected[at + 1 : at + 4], f"beyond {expected[at]!r} in {order}")

    async def pages(
        self,
        plan: Pushdown,
        order: tuple[OrderBy, ...],
        limit: int,
        fields: tuple[str, ...] | None = None,
    ) -> list[Record]:
        """Return what a store finds, page after page."""
        found: list[Record] = []
        resume = None
        for _ in range(_MOST):
            find = SearchRequest(
                self.subject.fragment, plan.pushed, order, limit, resume=resume, fields=fields
            )
            page = await self.store.find(find)
            require(len(page.records) <= limit, f"a page of {limit} has {len(page.records)}")
            found += page.records
            if page.resume is None:
                return found
            resume = page.resume
        raise ConformanceFailure("a search does not end")

    def in_order(self, ids: Sequence[str], order: tuple[OrderBy, ...]) -> list[str]:
        """Sort ids by the order of their records."""
        key = sort_key(order)
        return sorted(ids, key=lambda id_: key(lookup_of(id_, self.rows[id_]), id_))

    def position(self, id_: str, order: tuple[OrderBy, ...]) -> Position:
        """Return the position of a record in an order."""
        return position_of(order, lookup_of(id_, self.rows[id_]), id_)

    def plan(self, filter_: Filter | None, order: tuple[OrderBy, ...]) -> Pushdown:
        """Return the store's plan, whose two parts must be equivalent to the filter."""
        plan = self.store.pushdown(self.subject.fragment, filter_, order)
        for id_, values in self.rows.items():
            both = meets(plan.pushed, id_, values) and meets(plan.residual, id_, values)
            same(both, meets(filter_, id_, values), f"{filter_}, split, on {id_!r}")
        return plan

    def _ids(self, filter_: Filter | None) -> list[str]:
        return [id_ for id_, values in self.rows.items() if meets(filter_, id_, values)]


async def searched(scratch: Scratch, fields: Sequence[Field], rows: Sequence[Values]) -> Searched:
    """Create records, among them some that are then deleted, and offer them to searches."""
    if not isinstance(scratch.store, Queryable):
        raise NotOffered("the store does not search by filters")
    subject = await scratch.subject(*fields)
    named: dict[str, Any] = {_id(i, len(rows)): row for i, row in enumerate(rows)}
    gone = {f"gone-{id_}": row for id_, row in list(named.items())[:3]}
    writes = [subject.creation(id_, row) for id_, row in (named | gone).items()]
    await subject.apply_all(writes, "of a record to be found")
    await subject.apply_all([subject.deletion(id_) for id_ in gone], "of a record not to be found")
    return Searched(subject, scratch.store, named)


def _id(number: int, count: int) -> str:
    """Ids whose order is neither that of creation nor that of ASCII alone."""
    return f"{'aZé~'[number % 4]}{(number * 31) % max(count, 1):03}-{number}"
