"""Executing a plan: pages of the driver, completed, filtered, joined, ordered and limited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any, Final

from mediator.base.immutable import immutable
from mediator.model.evaluate import Lookup, lookup_of
from mediator.model.operations import Freshness, Get, Outcome
from mediator.model.order import Top, beyond, position_of, sort_key
from mediator.model.query import CountMode, OrderBy, Position
from mediator.model.sizes import sizes_of
from mediator.operations.calls import StoreCalls
from mediator.operations.merge import merge_fragments
from mediator.query.aggregation import Groups, Row, lookup_of_row
from mediator.query.budget import Budget, FilterEvaluator
from mediator.query.driver import Driver
from mediator.query.joins import Joiner, ResolveTornReads
from mediator.query.planner import QueryPlan
from mediator.query.semi_joins import Projection
from mediator.query.totals import TOTAL, Total
from mediator.routing.fragments import ResourceFragments, resource_of
from mediator.schema.tree import MISSING, MissingType
from mediator.schema.types import Value
from mediator.stores.port import Read, Record

__all__ = ["Execution", "Item", "QueryResult", "ResolveTornReads"]


@immutable
class Item:
    """An object that a query found, with the objects and lists joined to it, by alias."""

    outcome: Outcome
    joined: Mapping[str, Outcome | None] = field(default_factory=dict)
    lists: Mapping[str, Sequence[Outcome]] = field(default_factory=dict)

    def lookup(self) -> Lookup:
        outcome_lookup = lookup_of(self.outcome.id, self.outcome.values or {})
        if not self.joined:
            return outcome_lookup
        joined_lookups = {
            alias: lookup_of(outcome.id, outcome.values or {}) if outcome else _missing
            for alias, outcome in self.joined.items()
        }

        def lookup(path: tuple[str, ...]) -> Value | MissingType:
            joined_lookup = joined_lookups.get(path[0])
            return outcome_lookup(path) if joined_lookup is None else joined_lookup(path[1:])

        return lookup


_UNJOINED: Final[Mapping[str, Outcome | None]] = {}


def _missing(_: tuple[str, ...]) -> MissingType:
    return MISSING


@immutable
class QueryResult:
    """The result of a query: objects, or rows of an aggregate.

    Attributes:
        next: The position of the last object, if more follow.
        freshness: Set if the view answered.
        partial: Groups of the objects involved that may lack writes over several systems which
            other groups already show.
        documents: The objects with those joined, in place of items: only for a query
            `as_documents`; see `mediator.stores.port.DocumentPage`.
        total: The number of objects on all pages, if the query has `count`.
    """

    items: tuple[Item, ...]
    rows: tuple[Row, ...]
    next: Position | None
    plan: QueryPlan
    budget: Budget
    freshness: Freshness | None = None
    partial: tuple[str, ...] = ()
    documents: list[dict[str, Any]] | None = None
    total: Total | None = None

    @property
    def size(self) -> int:
        """The number of objects or rows on this page."""
        return len(self.items) + len(self.rows) + len(self.documents or ())


class Execution:
    def __init__(
        self,
        plan: QueryPlan,
        calls: StoreCalls,
        budget: Budget,
        joiner: Joiner,
        resolve_torn: ResolveTornReads,
    ) -> None:
        self._plan = plan
        self._calls = calls
        self._budget = budget
        self._driver = Driver(plan, calls.systems, budget)
        self._joiner = joiner
        self._resolve_torn = resolve_torn
        self._seen: set[str] = set()
        self._joined_filter = (
            FilterEvaluator(plan.joined_filter, budget) if plan.joined_filter is not None else None
        )
        self._partial: set[str] = set()
        self.has_ended_early = False
        query = plan.query
        self._resource = Get(query.database, query.class_name, "", plan.fields)

    async def run(self) -> QueryResult:
        """Return the result; raises `TooCostly` beyond the budget, and `Unavailable`."""
        answer = await self._execute()
        return (
            answer if self._plan.total is None else await self._add_total(answer, self._plan.total)
        )

    async def _execute(self) -> QueryResult:
        if self._plan.query.aggregate is not None:
            answer = await self._aggregate()
        elif self._plan.projection is not None and self._is_whole_page():
            return await self._documents(self._plan.projection)
        else:
            answer = await self._join_lists(self._answer(await self.find()))
        partial = self._partial | self._joiner.partial
        return replace(answer, partial=tuple(sorted(partial))) if partial else answer

    async def _add_total(self, answer: QueryResult, total: QueryPlan) -> QueryResult:
        """Add the total; a single page is counted already."""
        if self._plan.query.after is None and answer.next is None:
            return replace(answer, total=Total(answer.size, CountMode.EXACT))
        counting = Execution(total, self._calls, self._budget, self._joiner, self._resolve_torn)
        if total.estimated:
            minimum = answer.size + (answer.next is not None)
            estimate = max(minimum, await counting._driver.estimate())
            return replace(answer, total=Total(estimate, CountMode.ESTIMATED))
        count_result = await counting._execute()
        objects = count_result.rows[0].computed[TOTAL]
        assert isinstance(objects, int)
        partial = tuple(sorted({*answer.partial, *count_result.partial}))
        return replace(answer, total=Total(objects, CountMode.EXACT), partial=partial)

    def _is_whole_page(self) -> bool:
        """Whether a system can answer the requested page alone; see `Joining`."""
        query = self._plan.query
        return query.after is None or not query.order

    async def _documents(self, projection: Projection) -> QueryResult:
        query, budget = self._plan.query, self._budget
        page = await self._driver.documents(query.after, projection)
        documents, last, following = page.documents, page.last, None
        sizes = await sizes_of(documents, projection.large(self._plan.driver))
        partly = query.may_end_early and projection.shows(query.order)
        count = budget.admit(sizes, partly=partly)
        if count < len(documents):
            documents = documents[:count]
            last = Record(documents[-1]["id"], 0, {}, documents[-1])
        if last is not None:
            following = position_of(query.order, lookup_of(last.id, last.values), last.id)
        return QueryResult((), (), following, self._plan, budget, documents=documents)

    async def find(self) -> list[Item]:
        """Find the objects to return, and one more if more follow."""
        plan = self._plan
        items = await (self._take_ordered() if plan.ordered else self._select_top())
        if plan.tail is not None and not self.has_ended_early and len(items) <= plan.query.limit:
            tail = self._tail_execution(plan.tail)
            items += await tail.find()
            self.has_ended_early = tail.has_ended_early
        return items

    def _tail_execution(self, tail: QueryPlan) -> Execution:
        execution = Execution(tail, self._calls, self._budget, self._joiner, self._resolve_torn)
        # Shared: an object that loses its value in between must not be found twice.
        execution._seen, execution._partial = self._seen, self._partial
        return execution

    async def _take_ordered(self) -> list[Item]:
        """Take objects as they come, in order, until there are enough."""
        limit = self._plan.query.limit + 1
        items: list[Item] = []
        may_end_early = self._plan.query.may_end_early
        async for page in self._objects(self._plan.query.after, may_end_early=may_end_early):
            if self._plan.joined_filter is None:
                page = page[: limit - len(items)]  # noqa: PLW2901 - join only objects of the page
            items += await self._join(page)
            if len(items) >= limit:
                break
        return items[:limit]

    async def _select_top(self) -> list[Item]:
        """Take all objects, and keep the first in the order."""
        query = self._plan.query
        key = sort_key(query.order)
        follows = beyond(query.order, query.after) if query.after else None
        top = Top[Item](query.limit + 1)
        early, slices = self._joins_early(), self._budget.slices()
        async for page in self._objects(None):
            for item in await self._join(page) if early else page:
                await slices.checkpoint()
                lookup, id_ = item.lookup(), item.outcome.id
                if follows is None or follows(lookup, id_):
                    top.add(key(lookup, id_), item)
        items = top.items()
        return items if early else await self._join(items)

    def _joins_early(self) -> bool:
        """Whether joined objects decide which objects are returned, or in which order."""
        query = self._plan.query
        aliases = {join.alias for join in query.joins}
        return self._plan.joined_filter is not None or any(
            o.path[0] in aliases for o in query.order
        )

    async def _join(self, items: list[Item]) -> list[Item]:
        """Join, and apply the filter on joined objects."""
        query = self._plan.query
        if not query.joins or not items:
            return items
        joined = await self._joiner.join(query, [item.outcome for item in items])
        items = [Item(i.outcome, by_alias) for i, by_alias in zip(items, joined, strict=True)]
        if self._joined_filter is None:
            return items
        return await self._joined_filter.select(items, Item.lookup)

    async def _join_lists(self, answer: QueryResult) -> QueryResult:
        """Join the lists, which no condition or order uses, to the objects of the page."""
        query, items = self._plan.query, answer.items
        if not items or not (query.list_joins or query.reverse_joins):
            return answer
        outer, joined = [item.outcome for item in items], [item.joined for item in items]
        lists = await self._joiner.join_lists(query, outer, joined)
        pairs = zip(items, lists, strict=True)
        return replace(
            answer, items=tuple(replace(item, lists=item_lists) for item, item_lists in pairs)
        )

    def _answer(self, items: Sequence[Item]) -> QueryResult:
        query, ends_early = self._plan.query, self.has_ended_early
        if ends_early and not items:
            raise self._budget.too_large()
        # The last one beyond the page shows that more follow.
        page = tuple(items[: min(query.limit, max(len(items) - ends_early, 1))])
        following = None
        if len(items) > len(page) or ends_early:
            last = page[-1]
            following = position_of(query.order, last.lookup(), last.outcome.id)
        return QueryResult(page, (), following, self._plan, self._budget)

    async def _objects(
        self, after: Position | None, *, may_end_early: bool = False
    ) -> AsyncIterator[list[Item]]:
        """Find objects page by page, merge their fragments, and apply the filter on their fields.

        If they are too large together, the query is aborted, or ends there if it
        `may_end_early`.
        """
        plan = self._plan
        own_filter = plan.own_filter
        # Objects that one store found by the whole filter need no second test.
        if plan.residual is None and len(plan.route.fragments) == 1:
            own_filter = None
        evaluator = FilterEvaluator(own_filter, self._budget) if own_filter is not None else None
        async for page in self._driver.pages(after):
            # An object whose position changes between two pages may be found twice.
            seen = self._seen
            records = [record for record in page if record.id not in seen] if seen else page
            seen.update([record.id for record in records])
            outcomes = await self._complete(records)
            items = [Item(outcome, _UNJOINED) for outcome in outcomes if outcome is not None]
            sizes = await self._driver.object_pages.measure([i.outcome.values or {} for i in items])
            count = self._budget.admit(sizes, partly=may_end_early)
            self.has_ended_early = count < len(items)
            items = items[:count]
            yield items if evaluator is None else await evaluator.select(items, Item.lookup)
            if self.has_ended_early:
                return

    async def _complete(self, records: Sequence[Record]) -> Sequence[Outcome | None]:
        """Merge the driver's records with the fragments of other systems, in one round trip."""
        plan, resource = self._plan, self._resource
        touched = resource_of(plan.route, plan.fields)
        outcomes = await self._merge(touched, records)
        outcomes = list(await self._resolve_torn(plan.route, resource, outcomes))
        self._partial.update(*[o.partial for o in outcomes if o is not None and o.partial])
        return outcomes

    async def _merge(
        self, resource: ResourceFragments, records: Sequence[Record]
    ) -> Sequence[Outcome | None]:
        plan, fragments = self._plan, resource.fragments
        if len(fragments) == 1:
            return [merge_fragments(plan.route, resource, r.id, (r,)) for r in records]
        other_fragments = [
            (fragment, fields) for fragment, fields in fragments if fragment is not plan.driver
        ]
        reads = [Read(f, record.id, fields) for record in records for f, fields in other_fragments]
        other_records = iter(await self._calls.read(reads) if reads else ())
        for fragment, _ in other_fragments if reads else ():
            self._budget.spend(fragment.system, len(records))
        outcomes: list[Outcome | None] = []
        slices = self._budget.slices()
        for record in records:
            if slices.is_due():
                await slices.checkpoint()
            object_records = [
                record if f is plan.driver else next(other_records) for f, _ in fragments
            ]
            outcomes.append(merge_fragments(plan.route, resource, record.id, object_records))
        return outcomes

    async def _aggregate(self) -> QueryResult:
        plan, query = self._plan, self._plan.query
        assert query.aggregate is not None
        rows = await self._driver.rows() if plan.aggregated else await self._group_objects()
        rows = await self._order_groups(rows)
        return QueryResult((), tuple(rows), None, plan, self._budget)

    async def _group_objects(self) -> list[Row]:
        assert self._plan.query.aggregate is not None
        groups = Groups(self._plan.query.aggregate, self._budget.limits.groups)
        slices = self._budget.slices()
        async for page in self._objects(None):
            for item in await self._join(page):
                await slices.checkpoint()
                groups.add(item.lookup())
        rows: list[Row] = []
        for row in groups.rows():
            await slices.checkpoint()
            rows.append(row)
        return rows

    async def _order_groups(self, rows: Sequence[Row]) -> list[Row]:
        """Return the first groups, in order, for which the filter on groups holds."""
        query, aggregate = self._plan.query, self._plan.query.aggregate
        assert aggregate is not None
        if aggregate.having is None and len(rows) <= 1:
            return list(rows)
        lookup = partial(lookup_of_row, aggregate)
        if aggregate.having is not None:
            rows = await FilterEvaluator(aggregate.having, self._budget).select(rows, lookup)
        key = sort_key(query.order + tuple(OrderBy(path) for path in aggregate.group))
        top, slices = Top[Row](query.limit), self._budget.slices()
        for row in rows:
            await slices.checkpoint()
            top.add(key(lookup(row), ""), row)
        return top.items()
