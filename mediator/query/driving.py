"""The driver of a plan: the system that finds its objects, or computes its aggregate."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from mediator.operations.expiry import living
from mediator.query.aggregation import Row, checked, too_many_groups
from mediator.query.budget import Budget
from mediator.query.model import Position
from mediator.query.planner import Plan
from mediator.stores.port import (
    Aggregating,
    Find,
    Found,
    Read,
    Record,
    Store,
    StoreError,
    StoreTooCostly,
    is_queryable,
)
from mediator.systems import Systems, unavailable

__all__ = ["Driver"]

PAGE: Final = 1_001
"""Records asked for at once: the largest page of an answer, and the one that tells of more."""

PAGE_VALUES: Final = 20_000
"""Values asked for at once: of wide records fewer are, because a page is decoded in one go."""

_T = TypeVar("_T")


class Driver:
    """Asks the system that a plan has chosen.

    Args:
        plan: The plan.
        systems: The systems at hand.
        budget: What it may cost.
    """

    def __init__(self, plan: Plan, systems: Systems, budget: Budget) -> None:
        self._plan = plan
        self._guarded = systems.get(plan.driver.system)
        self._now_for = systems.now_for
        self._budget = budget

    async def pages(self, after: Position | None) -> AsyncIterator[list[Record]]:
        """Find records, page by page, in the order of the query if the plan says so."""
        plan = self._plan
        fields = None
        if plan.fields is not None:
            fields = tuple(name for name in plan.fields if name in plan.driver.fields)
        width = len(plan.driver.fields if fields is None else fields)
        page = min(PAGE, PAGE_VALUES // max(width, 1))
        limit = min(page, plan.query.limit + 1) if plan.limited else page
        order = plan.query.order if plan.ordered else ()
        find = Find(plan.driver, plan.pushdown.pushed, order, limit, after, None, fields)
        while True:
            found = await self._find(find)
            yield self._living(found)
            if found.resume is None:
                return
            find = replace(find, limit=page, after=None, resume=found.resume)

    async def rows(self) -> list[Row]:
        """Compute the aggregate; raises `Invalid` if there are too many groups."""
        plan, aggregate = self._plan, self._plan.query.aggregate
        store, most = self._guarded.store, self._budget.limits.groups
        assert isinstance(store, Aggregating)
        assert aggregate is not None
        call = partial(
            store.aggregate,
            plan.driver,
            plan.pushdown.pushed,
            aggregate.group,
            aggregate.compute,
            limit=most + 1,
            deadline_s=self._budget.left_s(),
        )
        found = await self._bounded(call)
        self._budget.spend(self._guarded.name, len(found))
        if len(found) > most:
            raise too_many_groups(most)
        return [checked(Row(group, computed)) for group, computed in found]

    async def _find(self, find: Find) -> Found:
        store = self._guarded.store
        timed = replace(find, deadline_s=self._budget.left_s())
        search = store.find if is_queryable(store) else partial(_scanned, store)
        found = await self._bounded(partial(search, timed))
        self._budget.spend(self._guarded.name, len(found.records))
        return found

    async def _bounded(self, call: Callable[[], Awaitable[_T]]) -> _T:
        async def made() -> _T:
            return await call()

        try:
            return await self._guarded.guarded(made)
        except StoreTooCostly:
            raise self._budget.too_long() from None
        except StoreError as error:
            raise unavailable(self._guarded, error, "read") from error

    def _living(self, found: Found) -> list[Record]:
        driver = self._plan.driver
        reads = [Read(driver, record.id) for record in found.records]
        kept = living(reads, list(found.records), self._now_for)
        return [record for record in kept if record is not None]


async def _scanned(store: Store, find: Find) -> Found:
    """Find everything in a store that cannot search, in the order of ids."""
    after = find.resume or (find.after.id if find.after else None)
    records = await store.scan(find.fragment, after, find.limit, find.fields)
    return Found(records, records[-1].id if len(records) == find.limit else None)
