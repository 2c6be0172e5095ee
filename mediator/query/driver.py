"""The driver of a plan: the system that finds its objects or computes its aggregate."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, TypeVar, cast

from mediator.model.query import Aggregate, Position
from mediator.model.sizes import large_fields, sizes_of
from mediator.operations.expiry import live_records
from mediator.query.aggregation import Row, check_sums, too_many_groups
from mediator.query.budget import Budget
from mediator.query.object_pages import FIRST, ObjectPages
from mediator.query.planner import QueryPlan
from mediator.query.semi_joins import PAGE_VALUES, Projection
from mediator.stores.port import (
    Aggregating,
    ComputedGroup,
    DocumentPage,
    Estimating,
    Joining,
    Read,
    Record,
    SearchPage,
    SearchRequest,
    Store,
    StoreError,
    StoreTooCostly,
    is_queryable,
)
from mediator.stores.systems import Systems, unavailable

__all__ = ["Driver"]

PAGE: Final = 1_001
"""Records requested at once: the largest page of an answer, plus one to detect that more follow."""

_T = TypeVar("_T")


class Driver:
    """Executes the driver's part of a plan; reads its objects in the pages of `object_pages`."""

    def __init__(self, plan: QueryPlan, systems: Systems, budget: Budget) -> None:
        width = len(plan.driver.fields if plan.driver_fields is None else plan.driver_fields)
        page_limit = min(PAGE, PAGE_VALUES // max(width, 1))
        first = page_limit if plan.query.is_sized else FIRST
        self.object_pages = ObjectPages(plan.route.schema.fields, plan.fields, page_limit, first)
        self._plan = plan
        self._guarded = systems.get(plan.driver.system)
        self._now_for = systems.now_for
        self._budget = budget

    async def pages(self, after: Position | None) -> AsyncIterator[Sequence[Record]]:
        """Find records page by page, in the order of the query if the plan is ordered."""
        plan, fields, resume = self._plan, self._plan.driver_fields, None
        driver, pushed = plan.driver, plan.pushdown.pushed
        limit = plan.query.limit + 1 if plan.limited else PAGE
        order, budget = plan.query.order if plan.ordered else (), self._budget
        while True:
            count, remaining_s = min(limit, self.object_pages.count), budget.remaining_s()
            semi = plan.semi_joins.joins
            request = SearchRequest(
                driver, pushed, order, count, after, resume, fields, remaining_s, semi, budget.room
            )
            results = await self._find(request)
            yield self._live(results)
            if results.resume is None:
                return
            # Only the first page begins at the cursor; the next ones where the store stopped.
            after, resume = None, results.resume
            # If the whole limit has come and more is needed, some records were filtered out.
            limit = limit - len(results.records) if plan.limited else PAGE
            limit = limit if limit > 0 else PAGE

    async def documents(self, after: Position | None, projection: Projection) -> DocumentPage:
        plan = self._plan
        store = cast("Joining", self._guarded.store)  # else the plan would have no projection
        query, pushed = plan.query, plan.pushdown.pushed
        remaining_s = self._budget.remaining_s()
        max_bytes = self._budget.room if query.may_end_early else None
        request = SearchRequest(
            plan.driver,
            pushed,
            query.order,
            query.limit,
            after,
            deadline_s=remaining_s,
            max_bytes=max_bytes,
        )
        page = await self._bounded(
            partial(store.documents, request, projection.names, projection.joins)
        )
        self._budget.spend(self._guarded.name, len(page.documents))
        return page

    async def rows(self) -> list[Row]:
        """Compute the aggregate; raises `Invalid` if there are too many groups."""
        plan, aggregate = self._plan, self._plan.query.aggregate
        store = cast("Aggregating", self._guarded.store)  # else the plan would not say so
        max_groups = self._budget.limits.groups
        assert aggregate is not None
        call = partial(
            store.aggregate,
            plan.driver,
            plan.pushdown.pushed,
            aggregate,
            # One more than allowed shows that there are too many.
            limit=max_groups + 1,
            deadline_s=self._budget.remaining_s(),
        )
        rows = await self._bounded(call)
        self._budget.spend(self._guarded.name, len(rows))
        await self._admit_groups(aggregate, rows)
        if len(rows) > max_groups:
            raise too_many_groups(max_groups)
        return [check_sums(Row(group, computed)) for group, computed in rows]

    async def _admit_groups(self, aggregate: Aggregate, rows: Sequence[ComputedGroup]) -> None:
        names = {path[0] for path in aggregate.paths}
        if large_fields(self._plan.route.schema.fields, names):
            values = [{"": [*group, *computed.values()]} for group, computed in rows]
            self._budget.admit(await sizes_of(values, ("",)))

    async def estimate(self) -> int:
        """Estimate how many records the plan finds."""
        plan = self._plan
        store = cast("Estimating", self._guarded.store)  # else the plan would not say so
        remaining_s = self._budget.remaining_s()
        call = partial(store.estimate, plan.driver, plan.pushdown.pushed, deadline_s=remaining_s)
        estimated = await self._bounded(call)
        self._budget.spend(self._guarded.name, 1)
        return estimated

    async def _find(self, request: SearchRequest) -> SearchPage:
        store = self._guarded.store
        search = store.find if is_queryable(store) else partial(_scan, store)
        results = await self._bounded(partial(search, request))
        self._budget.spend(self._guarded.name, len(results.records))
        return results

    async def _bounded(self, call: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        try:
            return await self._guarded.guarded(call)
        except StoreTooCostly:
            raise self._budget.too_long() from None
        except StoreError as error:
            raise unavailable(self._guarded, error, "read") from error

    def _live(self, results: SearchPage) -> Sequence[Record]:
        driver = self._plan.driver
        if driver.ttl_s is None:
            return results.records
        reads = [Read(driver, record.id) for record in results.records]
        live = live_records(reads, list(results.records), self._now_for)
        return [record for record in live if record is not None]


async def _scan(store: Store, request: SearchRequest) -> SearchPage:
    """Scan a store that cannot search, in the order of ids."""
    after = request.resume or (request.after.id if request.after else None)
    records = await store.scan(request.fragment, after, request.limit, request.fields)
    return SearchPage(records, records[-1].id if len(records) == request.limit else None)
