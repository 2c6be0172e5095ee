"""The active plan, its measurements, and the search for a better plan."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import orjson

from mediator.base.concurrency import end
from mediator.base.lease import Lease
from mediator.base.offload import offload
from mediator.base.slices import Slices
from mediator.standing.batch_run import MAX_PAIRS
from mediator.standing.context import HolderContext, OutOfDate
from mediator.standing.model import Join
from mediator.standing.needs import Needs
from mediator.standing.planning import Mode, Plan
from mediator.standing.replanning import choose_plan, is_cheaper, workload_of
from mediator.standing.report import describe_running
from mediator.standing.results import LoggedTuple
from mediator.standing.runtime import Runtime
from mediator.standing.sampling import Sampling

__all__ = ["ActivePlan"]


@dataclass(eq=False)
class ActivePlan:
    """Plans the queries of one database, given by its id, that every batch executes."""

    _context: HolderContext
    _database: str
    _lease: Lease
    _runtime: Runtime
    _materialise: bool
    _plan: Plan | None = field(default=None, init=False)
    _search: asyncio.Task[Plan] | None = field(default=None, init=False)
    _sampling: Sampling = field(default_factory=Sampling, init=False)

    async def open(self) -> None:
        """Load the last holder's measurements."""
        report = await self._context.results.report(self._database)
        if report is not None:
            self._sampling = Sampling.from_json(orjson.loads(report)["statistics"])

    async def close(self) -> None:
        """End the search."""
        await end([self._search] if self._search is not None else [])

    async def replace(self, joins: Mapping[str, Join]) -> None:
        """Activate a plan for these queries.

        The plan is greedy: queries must not wait for a solver. A better plan follows.

        Raises:
            Invalid: There are too many candidate probe orders.
            OutOfDate: Intermediate results are larger than expected.
        """
        await self._activate(await self._choose(joins, "greedy"))
        self._start_search(joins)

    async def of_one(self, query: str, join: Join) -> Plan:
        """Return a plan for a query that is executed separately."""
        workload = workload_of({query: join}, self._sampling.statistics([join]))
        return await offload(True, choose_plan, workload, "greedy", materialise=False)

    async def take_better(self, joins: Mapping[str, Join]) -> None:
        """Activate the plan that the search found, if it fits these queries and saves enough."""
        if self._search is None or not self._search.done():
            return
        plan, self._search = self._search.result(), None
        if plan.workload.queries != joins:
            self._start_search(joins)
        elif self._plan is not None and is_cheaper(plan, self._plan):
            await self._activate(plan)

    async def sample(self, tuples: Sequence[LoggedTuple], needs: Needs) -> None:
        """Measure periodically, and search for a better plan by the measurements.

        Args:
            tuples: Tuples of a batch that were not late.
            needs: The needs of the queries that the batch executed.
        """
        self._sampling.count(tuples)
        relations = [source.relation for source in needs.sources]
        if self._plan is None or not self._sampling.take(self._runtime, relations, needs.window_s):
            return
        self._start_search(needs.executed)
        await self._put_report()

    async def _choose(self, joins: Mapping[str, Join], mode: Mode) -> Plan:
        workload = workload_of(joins, self._sampling.statistics(joins.values()))
        return await offload(True, choose_plan, workload, mode, materialise=self._materialise)

    def _start_search(self, joins: Mapping[str, Join]) -> None:
        """Search for a better plan while batches continue."""
        if self._search is None:
            self._search = asyncio.create_task(self._choose(joins, "shared"))

    async def _activate(self, plan: Plan) -> None:
        slices = Slices(self._context.clock)
        for steps, _ in enumerate(self._runtime.activation(plan)):
            await slices.checkpoint()
            if steps > MAX_PAIRS:
                raise OutOfDate(materialise=False)
        self._plan = plan
        self._sampling.restart(self._runtime)
        await self._put_report()

    async def _put_report(self) -> None:
        if self._plan is not None:
            report = describe_running(self._plan, self._runtime, self._sampling)
            await self._context.results.put_report(
                self._database, self._lease, orjson.dumps(report)
            )
