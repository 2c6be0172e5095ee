"""The driver of a plan: the system that finds its objects, or computes its aggregate."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, TypeVar, cast

from mediator.model.query import Position
from mediator.operations.expiry import live_records
from mediator.query.aggregation import Row, checked, too_many_groups
from mediator.query.budget import Budget
from mediator.query.planner import QueryPlan
from mediator.query.semi_joins import PAGE_VALUES, Projection
from mediator.stores.port import (
    Aggregating,
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
"""Records requested at once: the largest page of an answer, and one that shows that more follow."""

_T = TypeVar("_T")


class Driver:
    def __init__(self, plan: QueryPlan, systems: Systems, budget: Budget) -> None:
        self._plan = plan
        self._guarded = systems.get(plan.driver.system)
        self._now_for = systems.now_for
        self._budget = budget

    async def pages(self, after: Position | None) -> AsyncIterator[Sequence[Record]]:
        """Find records, page by page, in the order of the query if the plan says so."""
        plan, fields, resume = self._plan, self._plan.driver_fields, None
        driver, pushed = plan.driver, plan.pushdown.pushed
        width = len(driver.fields if fields is None else fields)
        page = min(PAGE, PAGE_VALUES // max(width, 1))
        limit = min(page, plan.query.limit + 1) if plan.limited else page
        order = plan.query.order if plan.ordered else ()
        while True:
            left_s = self._budget.left_s()
            semi = plan.semi_joins.joins
            request = SearchRequest(
                driver, pushed, order, limit, after, resume, fields, left_s, semi
            )
            results = await self._find(request)
            yield self._live(results)
            if results.resume is None:
                return
            # Only the first page begins at the cursor; the next ones where the store stopped.
            limit, after, resume = page, None, results.resume

    async def documents(self, after: Position | None, projection: Projection) -> DocumentPage:
        plan = self._plan
        store = cast("Joining", self._guarded.store)  # or else the plan would have no projection
        query, pushed = plan.query, plan.pushdown.pushed
        left_s = self._budget.left_s()
        request = SearchRequest(
            plan.driver, pushed, query.order, query.limit, after, deadline_s=left_s
        )
        page = await self._bounded(
            partial(store.documents, request, projection.names, projection.joins)
        )
        self._budget.spend(self._guarded.name, len(page.documents))
        return page

    async def rows(self) -> list[Row]:
        """Compute the aggregate; raises `Invalid` if there are too many groups."""
        plan, aggregate = self._plan, self._plan.query.aggregate
        store = cast("Aggregating", self._guarded.store)  # or else the plan would not say so
        most = self._budget.limits.groups
        assert aggregate is not None
        call = partial(
            store.aggregate,
            plan.driver,
            plan.pushdown.pushed,
            aggregate,
            # One more shows that there are too many.
            limit=most + 1,
            deadline_s=self._budget.left_s(),
        )
        rows = await self._bounded(call)
        self._budget.spend(self._guarded.name, len(rows))
        if len(rows) > most:
            raise too_many_groups(most)
        return [checked(Row(group, computed)) for group, computed in rows]

    async def estimate(self) -> int:
        """Estimate how many records the plan finds."""
        plan = self._plan
        store = cast("Estimating", self._guarded.store)  # or else the plan would not say so
        left_s = self._budget.left_s()
        call = partial(store.estimate, plan.driver, plan.pushdown.pushed, deadline_s=left_s)
        estimated = await self._bounded(call)
        self._budget.spend(self._guarded.name, 1)
        return estimated

    async def _find(self, request: SearchRequest) -> SearchPage:
        store = self._guarded.store
        search = store.find if is_queryable(store) else partial(_scanned, store)
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


async def _scanned(store: Store, request: SearchRequest) -> SearchPage:
    """Find everything in a store that cannot search, in the order of ids."""
    after = request.resume or (request.after.id if request.after else None)
    records = await store.scan(request.fragment, after, request.limit, request.fields)
    return SearchPage(records, records[-1].id if len(records) == request.limit else None)
