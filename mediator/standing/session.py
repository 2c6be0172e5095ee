"""The standing queries of a database in memory, from one load to the next.

Loading completes the history of streams in the log of batches, and reads the log back without
results. From then on a batch is read, executed and published, one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NoReturn

import orjson

from mediator.base.concurrency import end
from mediator.base.errors import Invalid, NotFound
from mediator.base.lease import Lease
from mediator.base.observation import StandingQueriesCounted
from mediator.base.offload import offload
from mediator.base.slices import Slices
from mediator.changes.feed import PositionGone
from mediator.event_streams.port import EventStream, StreamKey
from mediator.routing.model import DatabaseRoute
from mediator.standing.alignment import aligned
from mediator.standing.batch_run import MOST_PAIRS, BatchRun, TooMuch
from mediator.standing.catch_up import CatchUp
from mediator.standing.class_backlog import ClassBacklog
from mediator.standing.class_intake import ClassIntake
from mediator.standing.context import HolderContext
from mediator.standing.delivery import Deliveries, Undeliverable
from mediator.standing.history import complete_history, is_present
from mediator.standing.lag import next_states
from mediator.standing.log import BatchLog
from mediator.standing.model import Join
from mediator.standing.needs import Needs, needs_of, stopped
from mediator.standing.planning import Mode, Plan
from mediator.standing.query import Source
from mediator.standing.replanning import choose_plan, is_cheaper, workload_of
from mediator.standing.report import describe_running
from mediator.standing.results import (
    READY,
    RESUMING,
    LoggedTuple,
    Offset,
    Progress,
    QueryState,
)
from mediator.standing.runtime import Runtime
from mediator.standing.sampling import Sampling

__all__ = ["MOST_TUPLES", "OutOfDate", "Session"]

MOST_TUPLES: Final = 200_000
"""Tuples and intermediate results that are kept in memory for a database."""

POLL_S: Final = 0.1
_LOOK_S: Final = 0.25
"""How soon a new query, and another schema or stream, is seen."""

_NOTED_S: Final = 5.0
"""How often it is noted how far streams and the feed were taken, though nothing is new in them."""

_TAKEN: Final = 500
"""Tuples of each stream that a batch has at most."""


class OutOfDate(Exception):
    """Everything has to be loaded anew.

    Attributes:
        materialise: Whether intermediate results may be kept then, or one was larger than expected.
    """

    def __init__(self, *, materialise: bool = True) -> None:
        super().__init__()
        self.materialise = materialise


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
    _classes: ClassIntake = field(init=False)
    _deliveries: Deliveries = field(init=False)
    _backlog: ClassBacklog = field(init=False)
    _plan: Plan | None = field(default=None, init=False)
    _planning: asyncio.Task[Plan] | None = field(default=None, init=False)
    _sampling: Sampling = field(default_factory=Sampling, init=False)
    _looked_at: float = field(default=0.0, init=False)
    _noted_at: float = field(default=float("-inf"), init=False)
    _catch_up: CatchUp | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        results, route = self._context.results, self._route
        self._log = BatchLog(results, route.id, self._lease)
        self._deliveries = Deliveries(self._context.streams, results, route.id, self._lease)
        self._backlog = ClassBacklog(results, route, self._context.clock)

    async def run(self) -> None:
        """Load, and execute batches until the process is about to end.

        Raises:
            OutOfDate: The streams, the schema or the queries are not those that were loaded.
        """
        await self._log.open()
        await self._read_needs()
        context = self._context
        await complete_history(
            self._log, self._needs, self._route.id, context.streams, context.subscriptions
        )
        self._classes = self._class_intake()
        await self._deliveries.open()
        try:
            if self._needs.queries:
                await self._load()
            if self._needs.executed:
                await self._replan(self._needs.new)
            while not context.has_ended:
                await self._look()
                await self._take_plan()
                has_executed = not await self._deliver() and await self._execute()
                await self._note_progress()
                if not has_executed:
                    await asyncio.sleep(POLL_S)
        finally:
            self._classes.close()
            await end([self._planning] if self._planning is not None else [])

    async def _execute(self) -> bool:
        """Execute what is new, and what a query has missed; return whether there was any."""
        has_taken, has_caught_up = await self._take_batch(), await self._resume()
        return has_taken or has_caught_up

    def _class_intake(self) -> ClassIntake:
        context, offsets = self._context, self._log.progress.offsets
        classes = [each for each in self._needs.sources if each.kind == "class"]
        return ClassIntake(
            context.plane,
            context.subscriptions,
            self._route,
            frozenset(each.name for each in classes),
            {each.relation: offsets[each.relation].number for each in classes},
        )

    async def _read_needs(self) -> None:
        """Read the queries; those that are not possible any more are stopped."""
        context, id_ = self._context, self._route.id
        self._streams = await context.streams.of_database(id_)
        stored = await context.results.queries(id_)
        self._needs = needs_of(stored, self._route.schema, self._streams)
        if self._needs.refused:
            if await self._context.is_outdated(self._route):
                raise OutOfDate
            await self._log.publish(states=self._needs.refused)

    async def _load(self) -> None:
        """Bring the state in memory up to the log."""
        needs, progress = self._needs, self._log.progress
        await self._read_report()
        relations = [each.relation for each in needs.sources]
        self._runtime = Runtime(relations, 1, needs.window_s, needs.lateness_s)
        slices, count = Slices(self._context.clock), 0
        watermark_s = progress.latest_s - needs.lateness_s
        async for present in self._logged():
            # For queries that are behind there are tuples that no window of the others reaches.
            reached = [each for each in present if watermark_s - each.time_s <= needs.window_s]
            for _ in self._runtime.restore(reached, progress.latest_s):
                await slices.checkpoint()
            self._classes.restore(present)
            count += len(reached)
            if count > MOST_TUPLES:
                await self._check_size()
        if progress.feed:
            try:
                await self._classes.open(progress.feed)
            except PositionGone:
                await self._stop_classes()

    async def _logged(self) -> AsyncIterator[Sequence[LoggedTuple]]:
        """Go through the batches that are kept, without what a former reader has left."""
        offsets = self._log.progress.offsets
        async for batch in self._log.read():
            at = ((each, offsets.get(each.stream)) for each in batch.tuples)
            yield [each for each, offset in at if is_present(batch.sequence, offset)]

    async def _read_report(self) -> None:
        report = await self._context.results.report(self._route.id)
        if report is not None:
            self._sampling = Sampling.from_json(orjson.loads(report)["statistics"])

    async def _look(self) -> None:
        """Look now and then for queries, streams and classes that came, went or changed."""
        context, id_, now = self._context, self._route.id, self._context.clock.monotonic()
        if now - self._looked_at < _LOOK_S:
            return
        self._looked_at = now
        streams = await context.streams.of_database(id_)
        has_changed = _used(streams, self._needs) != _used(self._streams, self._needs)
        if has_changed or context.plane.model.by_id.get(id_) is not self._route:
            raise OutOfDate
        revision = (await context.results.published(id_)).revision
        if revision != self._log.revision:
            self._log.revision = revision
            await self._change_queries()
        pauses = await context.results.pauses(id_)
        if changed := next_states(self._needs, self._log.progress, pauses):
            await self._log.publish(states=changed)
            await self._change_queries()

    async def _change_queries(self) -> None:
        """Take over queries that came, went, are paused, or are not possible any more."""
        before = self._needs
        await self._read_needs()
        if self._needs.state != before.state or (before.executed and not self._needs.executed):
            raise OutOfDate
        if self._catch_up is not None and self._catch_up.id not in self._needs.behind:
            self._catch_up = None
        if self._needs.executed and self._needs.executed != before.executed:
            await self._replan(self._needs.new)

    async def _resume(self) -> bool:
        """Execute some of what a query has missed; return whether there was one."""
        resuming = (id_ for id_, each in self._needs.behind.items() if each.name == RESUMING)
        if self._catch_up is None and (id_ := next(resuming, None)) is not None:
            self._catch_up = await self._open_catch_up(id_)
        if (catch_up := self._catch_up) is None:
            return False
        try:
            run = await catch_up.run(Slices(self._context.clock))
        except TooMuch as error:
            await self._stop(error.queries, error.detail)
        state = QueryState(RESUMING, numbers=catch_up.numbers)
        if catch_up.has_ended:
            state = QueryState(READY)
        await self._log.publish(states={catch_up.id: state}, results=run.results)
        self._count(run, caught_up=len(run.accepted))
        if catch_up.has_ended:
            await self._change_queries()
        return True

    async def _open_catch_up(self, id_: str) -> CatchUp:
        query, numbers = self._needs.queries[id_], self._needs.states[id_].numbers
        workload = workload_of({id_: query.join}, self._sampling.statistics([query.join]))
        plan = await offload(True, choose_plan, workload, "greedy", materialise=False)
        catch_up = CatchUp(id_, dict(numbers), query, self._needs.lateness_s)
        await catch_up.open(self._logged(), plan, Slices(self._context.clock))
        return catch_up

    async def _replan(self, new: Iterable[str]) -> None:
        """Activate a plan for the present queries; new ones are ready then.

        It is greedy, which takes no time: queries must not wait for a solver. A better one follows.
        """
        try:
            plan = await self._choose("greedy")
        except Invalid as error:
            await self._stop(_widest(self._needs.executed), error.detail)
        await self._activate(plan)
        if states := dict.fromkeys(new, QueryState(READY)):
            await self._log.publish(states=states)
            self._needs = replace(self._needs, states={**self._needs.states, **states})
        self._begin_planning()

    async def _choose(self, mode: Mode) -> Plan:
        joins = self._needs.executed
        workload = workload_of(joins, self._sampling.statistics(joins.values()))
        return await offload(True, choose_plan, workload, mode, materialise=self._materialise)

    def _begin_planning(self) -> None:
        """Look for a better plan while batches go on."""
        if self._planning is None:
            self._planning = asyncio.create_task(self._choose("shared"))

    async def _take_plan(self) -> None:
        """Activate the plan that was found, if it is of these queries and saves enough."""
        if self._planning is None or not self._planning.done():
            return
        plan, self._planning = self._planning.result(), None
        if plan.workload.queries != self._needs.executed:
            self._begin_planning()
        elif self._plan is not None and is_cheaper(plan, self._plan):
            await self._activate(plan)

    async def _activate(self, plan: Plan) -> None:
        slices = Slices(self._context.clock)
        for steps, _ in enumerate(self._runtime.activation(plan)):
            await slices.checkpoint()
            if steps > MOST_PAIRS:
                raise OutOfDate(materialise=False)
        self._plan = plan
        self._sampling.restart(self._runtime)
        await self._put_report()

    async def _take_batch(self) -> bool:
        """Execute and publish a batch; return whether there was anything new."""
        tuples = await self._read_sources()
        if tuples:
            run = BatchRun(self._runtime, self._needs.queries)
            slices = Slices(self._context.clock)
            try:
                for _ in run.run(tuples):
                    await slices.checkpoint()
            except TooMuch as error:
                await self._stop(error.queries, error.detail)
            await self._publish(run)
            if self._catch_up is not None:
                self._catch_up.add(run.accepted)
            await self._check_size()
            await self._sample(run.accepted)
        return bool(tuples)

    async def _deliver(self) -> bool:
        """Deliver results; return whether batches should wait, as too many are not."""
        try:
            await self._deliveries.deliver(self._needs.queries)
            return await self._backlog.is_long(self._needs.queries)
        except Undeliverable as error:
            await self._stop([error.query], error.detail)

    async def _read_sources(self) -> list[LoggedTuple]:
        """Read what is new, in the order of time, as a batch may end early."""
        sources = sorted(each for each in self._needs.sources if each.kind == "stream")
        try:
            inputs: list[Sequence[LoggedTuple]] = [await self._classes.read()]
        except PositionGone:
            await self._stop_classes()
        inputs += [await self._read_stream(source) for source in sources]
        return aligned(inputs, _TAKEN, self._runtime.watermark_s)

    async def _read_stream(self, source: Source) -> Sequence[LoggedTuple]:
        relation, key = source.relation, StreamKey(self._route.id, source.name)
        after = self._log.progress.offsets[relation].number
        try:
            page = await self._context.streams.read(key, after, _TAKEN)
        except NotFound:
            raise OutOfDate from None
        except PositionGone:
            detail = (
                f"The stream {source.name} has removed tuples that were not taken yet. Declare one"
                " that keeps more of them, or keeps them for longer."
            )
            await self._stop(self._readers(relation), detail)
        return [LoggedTuple(relation, each.time_s, each.values, each.number) for each in page]

    async def _stop_classes(self) -> NoReturn:
        relations = {each.relation for each in self._needs.sources if each.kind == "class"}
        reading = {id_ for each in relations for id_ in self._readers(each)}
        await self._stop(reading, "The change feed has lost changes that were not taken yet.")

    def _readers(self, relation: str) -> list[str]:
        return [id_ for id_, join in self._needs.joins.items() if relation in join.relations]

    async def _publish(self, run: BatchRun) -> None:
        runtime, offsets, count = self._runtime, dict(self._log.progress.offsets), 0
        for relation, number in run.taken.items():
            count += number - offsets[relation].number
            offsets[relation] = Offset(number, *offsets[relation][1:])
        self._classes.take(run.taken)
        await self._log.publish(
            run.accepted,
            progress=Progress(runtime.latest_s, offsets, self._classes.position),
            watermark_s=runtime.watermark_s,
            # What a query has missed is in the log until it has caught up.
            window_s=float("inf") if self._needs.behind else self._needs.window_s,
            results=run.results,
        )
        self._count(run, batches=1, tuples=count, late=count - len(run.accepted))

    def _count(self, run: BatchRun, **counts: int) -> None:
        counts["results"] = sum(map(len, run.results.values()))
        self._context.observe(StandingQueriesCounted(self._route.schema.database, counts))

    async def _check_size(self) -> None:
        """Stop the queries that read the largest store if there is more than fits."""
        kept = self._runtime.kept()
        if sum(kept.values()) > MOST_TUPLES:
            largest = max(kept, key=lambda each: kept[each]).join
            detail = (
                f"The queries of the database need more than {MOST_TUPLES:,} tuples and results of"
                f" smaller joins; most are of {largest}."
            )
            joins = self._needs.joins.items()
            await self._stop([id_ for id_, j in joins if largest.relations <= j.relations], detail)

    async def _sample(self, tuples: Sequence[LoggedTuple]) -> None:
        """Measure now and then, and look for a better plan by that."""
        needs = self._needs
        self._sampling.count(tuples)
        relations = [each.relation for each in needs.sources]
        if self._plan is None or not self._sampling.take(self._runtime, relations, needs.window_s):
            return
        self._begin_planning()
        await self._put_report()

    async def _put_report(self) -> None:
        if self._plan is not None:
            report = describe_running(self._plan, self._runtime, self._sampling)
            await self._context.results.put_report(
                self._route.id, self._lease, orjson.dumps(report)
            )

    async def _note_progress(self) -> None:
        """Say how far streams were taken, which keeps them from running away."""
        now = self._context.clock.monotonic()
        if now - self._noted_at < _NOTED_S:
            return
        self._noted_at = now
        for source in self._needs.sources:
            if source.kind == "stream":
                key = StreamKey(self._route.id, source.name)
                number = self._log.progress.offsets[source.relation].number
                await self._context.streams.consumed(key, "standing-queries", number)
        if self._classes.position not in ("", self._log.progress.feed):
            progress = replace(self._log.progress, feed=self._classes.position)
            await self._log.publish(progress=progress)

    async def _stop(self, queries: Iterable[str], detail: str) -> NoReturn:
        """Stop queries; the others are loaded anew without them."""
        await self._log.publish(states=dict.fromkeys(queries, stopped(detail)))
        raise OutOfDate


def _used(streams: Mapping[str, EventStream], needs: Needs) -> dict[str, EventStream | None]:
    names = [each.name for each in needs.sources if each.kind == "stream"]
    return {name: streams.get(name) for name in names}


def _widest(joins: Mapping[str, Join]) -> list[str]:
    """Return the queries of most relations, which have most candidate probe orders."""
    most = max(len(each.relations) for each in joins.values())
    return [id_ for id_, each in joins.items() if len(each.relations) == most]
