"""The standing queries of a database in memory, from one load to the next.

Loading completes the history of streams in the log of batches, and reads the log back without
results. From then on batches are read, executed and published one by one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NoReturn

from mediator.base.errors import Invalid, NotFound
from mediator.base.lease import Lease
from mediator.base.observation import StandingQueriesCounted
from mediator.base.slices import Slices
from mediator.data_plane.port import is_outdated
from mediator.event_streams.port import EventStream
from mediator.routing.model import DatabaseRoute
from mediator.standing.active_plan import ActivePlan
from mediator.standing.batch_run import BatchRun
from mediator.standing.catch_up import CatchUp
from mediator.standing.class_backlog import ClassBacklog
from mediator.standing.context import HolderContext, MustStop, OutOfDate
from mediator.standing.delivery import Deliveries
from mediator.standing.history import complete_history, is_present
from mediator.standing.intake import Intake, Lost
from mediator.standing.lag import has_missed_too_much, next_states
from mediator.standing.log import BatchLog, Reach
from mediator.standing.model import Join
from mediator.standing.needs import Needs, needs_of, stopped_state, stream_into
from mediator.standing.results import (
    READY,
    RESUMING,
    LoggedTuple,
    Offset,
    Progress,
    QueryState,
)
from mediator.standing.runtime import Runtime

__all__ = ["MAX_TUPLES", "Session"]

MAX_TUPLES: Final = 200_000
"""Maximum tuples and intermediate results in memory for a database."""

POLL_S: Final = 0.1
_CHECK_S: Final = 0.25
"""How soon a new query, or a changed schema or stream, is noticed, in seconds."""

_PROGRESS_S: Final = 5.0
"""How often progress in streams and the feed is recorded, even without new tuples."""


@dataclass(eq=False)
class Session:
    _context: HolderContext
    _route: DatabaseRoute
    _lease: Lease
    _materialise: bool
    _log: BatchLog = field(init=False)
    _needs: Needs = field(default_factory=lambda: Needs({}), init=False)
    _streams: Mapping[str, EventStream] = field(default_factory=dict, init=False)
    _runtime: Runtime = field(init=False)
    _plan: ActivePlan = field(init=False)
    _intake: Intake = field(init=False)
    _deliveries: Deliveries = field(init=False)
    _backlog: ClassBacklog = field(init=False)
    _checked_at: float = field(default=0.0, init=False)
    _recorded_at: float = field(default=float("-inf"), init=False)
    _catch_up: CatchUp | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        results, route = self._context.results, self._route
        self._log = BatchLog(results, route.id, self._lease)
        self._deliveries = Deliveries(self._context, route, self._lease)
        self._backlog = ClassBacklog(results, route, self._context.clock)

    async def run(self) -> None:
        """Load, and execute batches until the process is about to end.

        Raises:
            OutOfDate: The streams, the schema or the queries have changed since they were loaded.
        """
        await self._log.open()
        await self._read_needs()
        context = self._context
        await complete_history(
            self._log, self._needs, self._route.id, context.streams, context.subscriptions
        )
        needs = self._needs
        relations = [source.relation for source in needs.sources]
        self._runtime = Runtime(relations, 1, needs.window_s, needs.lateness_s)
        self._plan = ActivePlan(
            context, self._route.id, self._lease, self._runtime, self._materialise
        )
        self._intake = Intake.of(context, self._route, needs.sources, self._log.progress.offsets)
        await self._deliveries.open()
        try:
            await self._execute_batches()
        except Lost as lost:
            await self._stop(self._readers(lost.relations), lost.detail)
        except MustStop as error:
            await self._stop(error.queries, error.detail)
        finally:
            self._intake.close()
            await self._plan.close()

    async def _execute_batches(self) -> None:
        await self._load()
        if self._needs.executed:
            await self._replan(self._needs.new)
        while not self._context.has_ended:
            await self._check_changes()
            await self._plan.take_better(self._needs.executed)
            has_executed = not await self._deliver() and await self._execute()
            await self._note_progress()
            if not has_executed:
                await asyncio.sleep(POLL_S)

    async def _execute(self) -> bool:
        """Execute new tuples, and tuples that a query missed; return whether there were any."""
        is_far_behind = has_missed_too_much(self._needs, self._log.progress)
        has_taken = not is_far_behind and await self._take_batch()
        has_caught_up = await self._resume()
        return has_taken or has_caught_up

    async def _read_needs(self) -> None:
        """Read the queries, and stop those that are no longer possible."""
        context, id_ = self._context, self._route.id
        # In this order: a query created meanwhile may need a stream declared meanwhile.
        definitions = await context.results.queries(id_)
        self._streams = await context.streams.of_database(id_)
        self._needs = needs_of(definitions, self._route, self._streams)
        if self._needs.refused:
            if await is_outdated(context.plane, self._route):
                raise OutOfDate
            await self._log.publish(states=self._needs.refused)

    async def _load(self) -> None:
        """Load the state in memory from the log."""
        needs, progress = self._needs, self._log.progress
        await self._plan.open()
        slices, count = Slices(self._context.clock), 0
        watermark_s = progress.latest_s - needs.lateness_s
        async for tuples in self._logged():
            # For queries that are behind, the log has tuples that no window of the others reaches.
            reachable = [item for item in tuples if watermark_s - item.time_s <= needs.window_s]
            for _ in self._runtime.restore(reachable, progress.latest_s):
                await slices.checkpoint()
            self._intake.restore(tuples)
            count += len(reachable)
            if count > MAX_TUPLES:
                await self._check_size()
        if needs.queries and progress.feed:
            await self._intake.follow(progress.feed, progress.latest_s)

    async def _logged(self) -> AsyncIterator[Sequence[LoggedTuple]]:
        """Yield the kept batches, without tuples of former readers."""
        offsets = self._log.progress.offsets
        async for batch in self._log.read():
            items = ((item, offsets.get(item.stream)) for item in batch.tuples)
            yield [item for item, offset in items if is_present(batch.sequence, offset)]

    async def _check_changes(self) -> None:
        """Check periodically for added, removed or changed queries, streams and classes."""
        context, id_, now = self._context, self._route.id, self._context.clock.monotonic()
        if now - self._checked_at < _CHECK_S:
            return
        self._checked_at = now
        streams = await context.streams.of_database(id_)
        has_changed = _dependencies(streams, self._needs) != _dependencies(
            self._streams, self._needs
        )
        if has_changed or context.plane.model.by_id.get(id_) is not self._route:
            raise OutOfDate
        revision = (await context.results.published(id_)).revision
        if revision != self._log.revision:
            self._log.revision = revision
            await self._change_queries()
        pauses = await context.results.pauses(id_)
        if changed := next_states(self._needs, self._log.progress, pauses):
            # Otherwise, entries not needed before a pause would be kept throughout.
            await self._log.publish(states=changed, reach=self._reach)
            await self._change_queries()

    async def _change_queries(self) -> None:
        """Apply added, removed and paused queries, and stop those no longer possible."""
        former = self._needs
        await self._read_needs()
        if self._needs.state != former.state or (former.executed and not self._needs.executed):
            raise OutOfDate
        if self._catch_up is not None and self._catch_up.id not in self._needs.behind:
            self._catch_up = None
        if self._needs.executed and self._needs.executed != former.executed:
            await self._replan(self._needs.new)

    async def _resume(self) -> bool:
        """Execute some tuples that a query missed; return whether a query is resuming."""
        resuming = (id_ for id_, state in self._needs.behind.items() if state.name == RESUMING)
        if self._catch_up is None and (id_ := next(resuming, None)) is not None:
            self._catch_up = await self._open_catch_up(id_)
        if (catch_up := self._catch_up) is None:
            return False
        run = await catch_up.run(Slices(self._context.clock))
        state = QueryState(RESUMING, numbers=dict(catch_up.numbers))
        if catch_up.has_ended:
            state = QueryState(READY)
        await self._log.publish(states={catch_up.id: state}, results=run.results)
        self._count(run, caught_up=len(run.accepted))
        if catch_up.has_ended:
            await self._change_queries()
        else:
            states = {**self._needs.states, catch_up.id: state}
            self._needs = replace(self._needs, states=states)
        return True

    async def _open_catch_up(self, id_: str) -> CatchUp:
        query, numbers = self._needs.queries[id_], self._needs.states[id_].numbers
        plan = await self._plan.of_one(id_, query.join)
        catch_up = CatchUp(id_, dict(numbers), query, self._needs.lateness_s)
        await catch_up.open(self._logged(), plan, Slices(self._context.clock))
        return catch_up

    async def _replan(self, new: Iterable[str]) -> None:
        """Activate a plan for the current queries; new queries are then ready."""
        try:
            await self._plan.replace(self._needs.executed)
        except Invalid as error:
            raise MustStop(_widest(self._needs.executed), error.detail) from error
        if states := dict.fromkeys(new, QueryState(READY)):
            await self._log.publish(states=states)
            self._needs = replace(self._needs, states={**self._needs.states, **states})

    async def _take_batch(self) -> bool:
        """Execute and publish a batch; return whether there were new tuples."""
        tuples = await self._intake.read(self._log.progress.offsets, self._runtime.watermark_s)
        if tuples:
            run = BatchRun(self._runtime, self._needs.queries)
            slices = Slices(self._context.clock)
            for _ in run.run(tuples):
                await slices.checkpoint()
            await self._publish(run)
            if self._catch_up is not None:
                self._catch_up.add(run.accepted)
            await self._check_size()
            await self._plan.sample(run.accepted, self._needs)
        return bool(tuples)

    async def _deliver(self) -> bool:
        """Deliver results; return whether batches should wait for undelivered results."""
        try:
            await self._deliveries.deliver(self._needs.queries, self._streams)
            return await self._is_held_up()
        except NotFound:
            raise OutOfDate from None

    async def _is_held_up(self) -> bool:
        is_long = await self._backlog.is_long(self._needs.queries)
        if self._backlog.has_stalled and not await self._deliveries.is_known_to_be_current():
            return True  # the class may be up, and only the catalogue down
        return is_long or self._deliveries.is_held_up

    def _readers(self, relations: frozenset[str]) -> list[str]:
        joins = self._needs.joins.items()
        return [id_ for id_, join in joins if not relations.isdisjoint(join.relations)]

    @property
    def _reach(self) -> Reach:
        needs = self._needs
        return Reach(self._runtime.watermark_s, needs.window_s, needs.missed)

    async def _publish(self, run: BatchRun) -> None:
        runtime, offsets, count = self._runtime, dict(self._log.progress.offsets), 0
        for relation, number in run.last_numbers.items():
            count += number - offsets[relation].number
            offsets[relation] = Offset(number, *offsets[relation][1:])
        self._intake.take(run.last_numbers)
        await self._log.publish(
            run.accepted,
            progress=Progress(runtime.latest_s, offsets, self._intake.feed),
            reach=self._reach,
            results=run.results,
        )
        self._count(run, batches=1, tuples=count, late=count - len(run.accepted))

    def _count(self, run: BatchRun, **counts: int) -> None:
        counts["results"] = sum(map(len, run.results.values()))
        self._context.observe(StandingQueriesCounted(self._route.schema.database, counts))

    async def _check_size(self) -> None:
        """Stop the queries that read the largest store if the state exceeds the limit."""
        sizes = self._runtime.sizes()
        if sum(sizes.values()) > MAX_TUPLES:
            largest = max(sizes, key=lambda layout: sizes[layout]).join
            detail = (
                f"The queries of the database need more than {MAX_TUPLES:,} tuples and results of"
                f" smaller joins; most are of {largest}."
            )
            joins = self._needs.joins.items()
            raise MustStop([id_ for id_, j in joins if largest.relations <= j.relations], detail)

    async def _note_progress(self) -> None:
        """Record how far streams were taken, so that they hold back their writers."""
        now = self._context.clock.monotonic()
        if now - self._recorded_at < _PROGRESS_S:
            return
        self._recorded_at = now
        await self._intake.note_consumed(self._log.progress.offsets)
        if self._intake.feed not in ("", self._log.progress.feed):
            await self._log.publish(progress=replace(self._log.progress, feed=self._intake.feed))

    async def _stop(self, queries: Iterable[str], detail: str) -> NoReturn:
        """Stop queries; the others are reloaded without them."""
        await self._log.publish(states=dict.fromkeys(queries, stopped_state(detail)))
        raise OutOfDate


def _dependencies(streams: Mapping[str, EventStream], needs: Needs) -> tuple[dict[str, Any], ...]:
    """Return the declarations that queries read, and the ids of the streams they fill."""
    names = [source.name for source in needs.sources if source.kind == "stream"]
    filled = {id_: stream_into(query, streams) for id_, query in needs.queries.items()}
    return {name: streams.get(name) for name in names}, filled


def _widest(joins: Mapping[str, Join]) -> list[str]:
    """Return the queries of most relations, which have most candidate probe orders."""
    max_relations = max(len(join.relations) for join in joins.values())
    return [id_ for id_, join in joins.items() if len(join.relations) == max_relations]
