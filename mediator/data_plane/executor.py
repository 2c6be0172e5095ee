"""The data plane: routes and plans operations, calls the stores, and merges their results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from mediator.base.clock import Clock
from mediator.base.concurrency import concurrently
from mediator.base.errors import (
    AdvisoryOnly,
    Locked,
    MediatorError,
    NeedsScan,
    NotFound,
    OutcomeUnknown,
    TooCostly,
    TransactionAborted,
    Unavailable,
)
from mediator.base.observation import Observer
from mediator.data_plane.batch import BatchExecution
from mediator.materialisation.copier import Copier
from mediator.materialisation.reads import ViewReads
from mediator.materialisation.state import Watermarks
from mediator.model.filters import Contains, In
from mediator.model.operations import (
    Delete,
    Freshness,
    Get,
    Operation,
    Outcome,
    ReadModifyWrite,
    Update,
    WriteOperation,
)
from mediator.model.query import Query
from mediator.operations.calls import StoreCalls
from mediator.operations.intents import is_joint, lacks_fragment
from mediator.operations.merge import check_if_match, merge_records, narrow_to_creation, outcome_of
from mediator.operations.read_modify_write import matching_versions, read_modify_write
from mediator.operations.replay import recall
from mediator.operations.torn_reads import TornReads
from mediator.query.budget import Budget, Ceiling, Limits
from mediator.query.execution import Execution, QueryResult
from mediator.query.joins import Joiner
from mediator.query.planner import make_plan
from mediator.query.reverse_joins import ReferringPage
from mediator.query.shapes import Refusal, costly_query
from mediator.routing.fragments import Steps, is_partial, plan_read, plan_write
from mediator.routing.freshness import ANY, STRONG, ReadPreference
from mediator.routing.model import EMPTY, ClassRoute, RoutingModel
from mediator.schema.batching import Direction, WaitBound
from mediator.schema.foreign_keys import ForeignKey
from mediator.schema.tree import Mode
from mediator.transactions.foreign_keys import is_checked
from mediator.transactions.joint import JointWriter
from mediator.transactions.model import CommitRequest

__all__ = ["LONG_QUERY_S", "Executor"]

LONG_QUERY_S: Final = 0.1
"""Seconds from which a query is reported as costly."""


class Executor:
    """Implements `mediator.data_plane.port.DataPlane` over opened systems.

    `refresh` looks for a newer routing model before a class is reported missing; only `adopt`
    puts one in force. `joint` executes writes over several systems, `transact` transactions;
    both are set later.
    """

    joint: JointWriter
    transact: Callable[[CommitRequest], Awaitable[list[Outcome]]]

    def __init__(
        self,
        calls: StoreCalls,
        staleness: Watermarks,
        refresh: Callable[[], Awaitable[None]],
        limits: Limits,
        clock: Clock,
        observe: Observer,
    ) -> None:
        self.limits = limits
        self._clock = clock
        self._observe = observe
        self._calls = calls
        self._view_reads = ViewReads(calls, staleness, observe)
        self._copier = Copier(calls)
        self._torn_reads = TornReads(calls)
        self._refresh = refresh
        self.model: RoutingModel = EMPTY

    def adopt(self, model: RoutingModel) -> None:
        """Put a routing model in force, unless it is older than the current one."""
        if model.epoch >= self.model.epoch:
            self.model = model

    async def route(self, database: str, class_name: str) -> ClassRoute:
        route = self._find(database, class_name)
        if route is None:
            await self._refresh()
            database_route = self.model.databases.get(database)
            route = database_route.classes.get(class_name) if database_route is not None else None
        if route is None:
            raise self._not_found(database, class_name)
        return route

    async def read(self, operation: Get, preference: ReadPreference = ANY) -> Outcome:
        route = await self._route_of(operation)
        if route.copy is not None:
            bound_s = self.model.databases[operation.database].schema.materialised_view.staleness_s
            outcome = await self._view_reads.read(route, operation, bound_s, preference)
            if outcome is not None:
                return outcome
        bound = self._wait_bound(route, operation, "read")
        return await self.read_now(route, operation, bound, whole=preference.whole)

    async def read_now(
        self,
        route: ClassRoute,
        operation: Get,
        bound: WaitBound | None = None,
        *,
        whole: bool = False,
    ) -> Outcome:
        """Read one object from its systems; with `whole`, never a fragment of a joint write.

        With `bound` the read may wait to be coalesced with others.
        """
        records = await self._calls.read(plan_read(route, operation), bound)
        outcome = merge_records(route, operation, records)
        if outcome is not None and (outcome.partial or (whole and outcome.pending)):
            [outcome] = await self._torn_reads.resolve(route, operation, [outcome], whole=whole)
        if outcome is None:
            raise NotFound(f"{operation.class_name}/{operation.id} does not exist.")
        return outcome

    async def write(self, operation: WriteOperation) -> Outcome:
        route = await self._route_of(operation)
        if (route.foreign_keys or route.referenced_by) and is_checked(route, operation):
            return await self._write_checked(operation)
        if is_joint(route, operation):
            return await self.joint.write(route, operation)
        if isinstance(operation, ReadModifyWrite):
            return await self._read_modify_write(route, operation)
        if isinstance(operation, Update) and operation.is_empty:
            # It changes nothing, but has conditions and an answer.
            return await self._read_modify_write(route, ReadModifyWrite(*operation.head))
        if isinstance(operation, Update) and is_partial(route, operation):
            return await self._read_modify_write(route, operation)
        return await self._write_single(route, operation)

    async def _write_checked(self, operation: WriteOperation) -> Outcome:
        """Execute a write, with the checks and actions of its foreign keys, as a transaction.

        Raises:
            Locked: Other writers held the objects concerned all the time; nothing was written.
        """
        key = (operation.operation, (), (operation,), operation.fingerprint)
        try:
            [outcome] = await self.transact(CommitRequest(operation.database, *key))
        except TransactionAborted:
            name = f"{operation.class_name}/{operation.id}"
            detail = f"Other writes hold {name}, or objects connected with it; try again."
            raise Locked(detail) from None
        return outcome

    async def _write_single(self, route: ClassRoute, operation: WriteOperation) -> Outcome:
        steps = self.plan_single(route, operation)
        if steps is None:
            if (first := await self._first_answer(route, operation)) is not None:
                return first
            expect = await matching_versions(operation, partial(self.read_now, route))
            steps = plan_write(route, narrow_to_creation(route, operation), expect)
        bound = self._wait_bound(route, operation, "write")
        result = await self._calls.write(steps.first, bound)
        # The object may lack a fragment that was added later: a joint write creates it.
        if lacks_fragment(route, steps.first, result):
            return await self.joint.write(route, operation)
        outcome = outcome_of(route, operation, steps, (result,))
        if isinstance(operation, Delete) and route.copy is not None:
            await self.remove_copy(route, operation.id, result.creation_version)
        return outcome

    async def _read_modify_write(
        self, route: ClassRoute, operation: ReadModifyWrite | Update
    ) -> Outcome:
        check_if_match(route, operation)
        return await self._first_answer(route, operation) or await read_modify_write(
            route, operation, partial(self.read_now, route), self._write_expecting
        )

    async def _first_answer(self, route: ClassRoute, operation: WriteOperation) -> Outcome | None:
        """Recall a repeated operation before its object, changed meanwhile, is read."""
        return await self.stored_outcome(route, operation) if operation.fingerprint else None

    async def _write_expecting(
        self, route: ClassRoute, operation: WriteOperation, expect: Mapping[str, int]
    ) -> Outcome:
        """Raises `PreconditionFailed` if the groups have other versions."""
        steps = plan_write(route, operation, expect)
        return outcome_of(route, operation, steps, (await self._calls.write(steps.first),))

    def plan_single(self, route: ClassRoute, operation: WriteOperation) -> Steps | None:
        """Plan a write that is not joint; None if its store alone cannot check it."""
        if route.schema.require_if_match:
            check_if_match(route, operation)
        if isinstance(operation, Update) and operation.is_empty:
            return None
        alternatives = operation.condition.versions
        if not alternatives:
            if route.schema.require_if_match:
                operation = narrow_to_creation(route, operation)
            return plan_write(route, operation, {})
        if len(alternatives) > 1:
            return None
        return plan_write(route, operation, {g: v or 0 for g, v in alternatives[0].items()})

    async def batch(
        self, operations: Sequence[Operation], *, whole: bool = False
    ) -> list[Outcome | MediatorError]:
        execution = BatchExecution(self, self._calls, self._torn_reads, whole=whole)
        return await execution.run(operations)

    async def recall(self, operation: WriteOperation, *, whole: bool = False) -> Outcome | None:
        route = await self._route_of(operation)
        if whole and len(route.fragments) > 1:
            return await self.joint.recall(route, operation)
        # A joint write looks under its intents: before, an earlier attempt may be half applied.
        return None if is_joint(route, operation) else await self.stored_outcome(route, operation)

    async def stored_outcome(self, route: ClassRoute, operation: WriteOperation) -> Outcome | None:
        """Return the answer that the stores recorded for an operation.

        Raises:
            IdempotencyReused: The operation id was used with another fingerprint.
            Unavailable: A system does not answer.
        """
        outcome = await recall(self._calls.systems, route, operation)
        if outcome is not None:
            # Its writer may have died before it ended the write in the sketch.
            await self._calls.acknowledge(operation.database, operation.class_name)
        if outcome is not None and isinstance(operation, Delete) and route.copy is not None:
            # The deletion may not have been acknowledged because the view did not answer.
            version = max(outcome.versions.get(group) or 0 for group in route.anchor.groups)
            await self.remove_copy(route, operation.id, version)
        return outcome

    async def query(
        self, query: Query, preference: ReadPreference = ANY, ceiling: Ceiling | None = None
    ) -> QueryResult:
        started = self._clock.monotonic()
        try:
            answer = await self._answer(query, preference, ceiling)
        except NeedsScan:
            self._report(query, started, refusal="needs a scan")
            raise
        except TooCostly:
            self._report(query, started, refusal="too costly")
            raise
        if self._clock.monotonic() - started >= LONG_QUERY_S:
            self._report(query, started, answer.budget.rows)
        return answer

    def _report(
        self, query: Query, started: float, rows: int | None = None, refusal: Refusal | None = None
    ) -> None:
        seconds = self._clock.monotonic() - started
        route = self._find(query.database, query.class_name)
        self._observe(costly_query(query, route, seconds, rows, refusal))

    async def _answer(
        self, query: Query, preference: ReadPreference, ceiling: Ceiling | None
    ) -> QueryResult:
        limits = self.limits if ceiling is None else self.limits.under(ceiling)
        route = await self.route(query.database, query.class_name)
        route.require(query.own_fields)
        freshness = await self._view_freshness(route, query, preference)
        if freshness is not None and route.view is not None:
            # If the view's system does not answer, the systems of the objects do.
            with suppress(Unavailable):
                answer = await self._execute(query, route.view, limits, preference)
                return replace(answer, freshness=freshness)
        return await self._execute(query, route, limits, preference)

    async def _execute(
        self, query: Query, route: ClassRoute, limits: Limits, preference: ReadPreference
    ) -> QueryResult:
        return await self._within(Budget(limits, self._clock), preference, query, route)

    async def _within(
        self, budget: Budget, preference: ReadPreference, query: Query, route: ClassRoute
    ) -> QueryResult:
        route_of = partial(self._find, query.database)
        plan = make_plan(query, route, lambda name: self._calls.systems.get(name).store, route_of)
        resolve_torn = partial(self._torn_reads.resolve, whole=preference.whole)
        find = partial(self._find_joined, budget, preference)
        joined = partial(self.route, query.database)
        joiner = Joiner(self._calls, budget, joined, resolve_torn, find)
        return await Execution(plan, self._calls, budget, joiner, resolve_torn).run()

    async def _find_joined(
        self, budget: Budget, preference: ReadPreference, query: Query
    ) -> ReferringPage:
        route = await self.route(query.database, query.class_name)
        result = await self._within(budget, preference, query, route)
        return ReferringPage([item.outcome for item in result.items], result.next, result.partial)

    async def _view_freshness(
        self, route: ClassRoute, query: Query, preference: ReadPreference
    ) -> Freshness | None:
        """Return how fresh the view is; None if it may not answer the query."""
        if route.copy is None or preference.consistency == "strong":
            return None
        bound_s = self.model.databases[query.database].schema.materialised_view.staleness_s
        return await self._view_reads.fresh_for_all(route, bound_s, preference)

    async def find_referencing(
        self, database: str, key: ForeignKey, ids: Sequence[str], limit: int
    ) -> Sequence[str]:
        """Return the ids of up to `limit` objects that refer to any of some objects."""
        route, path = await self.route(database, key.class_name), (key.field,)
        # One query per element: not every system merges the index entries of several.
        conditions = [Contains(path, id_) for id_ in ids] if key.is_array else [In(path, (*ids,))]
        queries = (
            Query(database, key.class_name, condition, limit=limit, fields=path)
            for condition in conditions
        )
        answers = await concurrently(
            self._execute(query, route, self.limits, STRONG) for query in queries
        )
        referencing_ids = (item.outcome.id for answer in answers for item in answer.items)
        return [*dict.fromkeys(referencing_ids)][:limit]

    async def newest_model(self) -> RoutingModel:
        """Return a routing model that is not older than this call."""
        await self._refresh()
        return self.model

    async def remove_copy(self, route: ClassRoute, id_: str, version: int) -> None:
        try:
            # Before the deletion is acknowledged: a read of the view would still find the object.
            await self._copier.forget(route, {id_: version})
        except Unavailable as error:
            detail = "The object is deleted; its copy in the view is removed once the view answers."
            raise OutcomeUnknown(detail, system=error.system) from error

    def _find(self, database: str, class_name: str) -> ClassRoute | None:
        """Return None if the class is unknown, or may have moved."""
        database_route = self.model.databases.get(database)
        if database_route is None or class_name in database_route.held:
            return None
        return database_route.classes.get(class_name)

    async def _route_of(self, operation: Operation) -> ClassRoute:
        route = self._find(operation.database, operation.class_name)
        if route is not None:
            return route
        return await self.route(operation.database, operation.class_name)

    def batching(self, database: str, class_name: str) -> list[dict[str, Any]]:
        """Describe how long single operations on a class wait to coalesce, on each of its systems.

        Empty: none of them waits.
        """
        database_route, route = self.model.databases.get(database), self._find(database, class_name)
        if database_route is None or route is None:
            return []
        return [
            self._calls.coalescer.describe(fragment, direction, bound)
            for (name, direction), bound in database_route.wait_bounds.items()
            for fragment in route.fragments
            if name == class_name
        ]

    def _wait_bound(
        self, route: ClassRoute, operation: Operation, direction: Direction
    ) -> WaitBound | None:
        if route.schema.batching is None:
            return None
        database_route = self.model.databases.get(operation.database)
        return (
            None
            if database_route is None
            else database_route.wait_bounds.get((route.schema.name, direction))
        )

    def _not_found(self, database: str, class_name: str) -> MediatorError:
        database_route = self.model.databases.get(database)
        if database_route is None:
            return NotFound(f"There is no database {database}.")
        if database_route.schema.mode is Mode.ADVISORY:
            return AdvisoryOnly(f"The database {database} only gives advice; it holds no data.")
        return NotFound(f"The database {database} has no class {class_name}.")
