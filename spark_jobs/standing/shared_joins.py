"""Executes the standing queries of a plan batch by batch, from one commit to the next.

The last commit and the plan determine a batch, so a repeated batch has the same result. *Earlier*
means the order of batches, and of feed positions within a batch. Times only determine windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, TypeAlias
from uuid import uuid4

from mediator.standing.model import Join
from mediator.standing.planning import Plan
from mediator.standing.probe_orders import StoreLayout
from mediator.standing.rules import compile_rules
from spark_jobs.commit_directory import StateMismatch
from spark_jobs.standing.commits import Commit, Epoch, Segment, StateDirectory, fingerprint
from spark_jobs.standing.hops import Hops, compile_history, compile_hops
from spark_jobs.standing.reports import Report
from spark_jobs.standing.work import Work

__all__ = ["Execute", "SharedJoins"]

_EPOCHS: Final = 4
"""Steps in which state is dropped: this many epochs, and one more, cover a window."""

Execute: TypeAlias = Callable[[Work], Report]
"""Executes work over the tuples of a batch, or of its history."""


class SharedJoins:
    """Executes plans; their state is in a directory, which outlives the process.

    Args:
        retention_s: Seconds for which tuples are stored, and so the maximum window of a query.
        lateness_s: Seconds by which a tuple can lag behind the latest tuple of earlier batches.
    """

    def __init__(
        self, directory: StateDirectory, plan: Plan, retention_s: float, lateness_s: float = 0.0
    ) -> None:
        self.directory = directory
        self._retention_s = retention_s
        self._lateness_s = lateness_s
        self.activate(plan)

    def activate(self, plan: Plan) -> None:
        """Activate another plan from the next batch on; its queries have the full history.

        Raises:
            ValueError: A query has a longer window than the retention.
        """
        if any(query.window_s > self._retention_s for query in plan.workload.joins):
            raise ValueError("a query has a longer window than tuples are kept")
        self.plan = plan
        self._rules = compile_rules(plan)
        self.hops = compile_hops(self._rules, plan.workload.streams, plan.workload.joins)

    def process(self, batch: int, execute: Execute, execute_history: Execute) -> Commit:
        """Execute a batch, and commit its state and results together.

        A committed batch is not executed again.

        Raises:
            StateMismatch: It is not the next batch.
        """
        before = self.directory.latest()
        if not self.directory.is_next(batch, before):
            return before
        draft = replace(before, batch=batch, attempt=uuid4().hex)
        if before.plan != fingerprint(self.plan):
            draft = self._start_plan(draft, execute_history)
        draft = self._drop_state(draft)
        report = execute(self._work(draft, self.hops))
        commit = self._finish(draft, report)
        self.directory.commit(commit, before)
        return commit

    def watermark_s(self, commit: Commit) -> float:
        """Return the minimum time of later tuples that are not late."""
        return commit.latest_s - self._lateness_s

    def _start_plan(self, commit: Commit, execute_history: Execute) -> Commit:
        """Start an epoch with the current plan, and compute the joins that it is first to probe.

        Raises:
            StateMismatch: Its number of partition groups differs from the state's.
        """
        parallelism = self.plan.workload.parallelism
        if commit.parallelism not in (0, parallelism):
            raise StateMismatch(
                f"{self.directory.root} has {commit.parallelism} partition groups, and the plan"
                f" {parallelism}"
            )
        probed = {join for join in self._rules.stores if len(join.relations) > 1}
        former = {at.join for at in commit.epochs[-1].layouts} if commit.epochs else set()
        epochs = [_without(epoch, _intermediates(former) - probed) for epoch in commit.epochs]
        draft = replace(
            commit,
            plan=fingerprint(self.plan),
            parallelism=parallelism,
            epochs=tuple(epochs),
            sent=(0,) * len(self.hops.hops),
            stored=(0,) * len(self._layouts()),
        )
        draft = self._start_epoch(draft)
        new_joins = probed - former
        if new_joins and len(draft.epochs) > 1:
            hops = compile_history(self.hops.stores, new_joins)
            report = execute_history(self._work(draft, hops, "-history"))
            draft = replace(draft, epochs=_with_written(draft.epochs, report))
        return draft

    def _start_epoch(self, commit: Commit) -> Commit:
        epochs = [epoch for epoch in commit.epochs if not epoch.is_empty]
        number = max((epoch.number for epoch in commit.epochs), default=-1) + 1
        epoch = Epoch(number, float("-inf"), self._layouts(), ())
        return replace(commit, epochs=(*epochs, epoch), epoch_from_s=self.watermark_s(commit))

    def _drop_state(self, commit: Commit) -> Commit:
        """Start an epoch at intervals, and drop epochs that no window reaches any more."""
        watermark_s = self.watermark_s(commit)
        if watermark_s - commit.epoch_from_s > self._retention_s / _EPOCHS:
            commit = self._start_epoch(commit)
        *past, current = commit.epochs
        reachable = [epoch for epoch in past if watermark_s - epoch.newest_s <= self._retention_s]
        return replace(commit, epochs=(*reachable, current))

    def _layouts(self) -> tuple[StoreLayout, ...]:
        return tuple(self.hops.stores)

    def _work(self, commit: Commit, hops: Hops, suffix: str = "") -> Work:
        return Work(
            self.directory.root,
            self.directory.staging(commit.batch, commit.attempt),
            f"{commit.batch}-{commit.attempt}{suffix}",
            hops,
            commit.epochs,
            self.plan.workload.parallelism,
            self.watermark_s(commit),
        )

    def _finish(self, draft: Commit, report: Report) -> Commit:
        stored = list(draft.stored)
        for written in report.written:
            if not written.replaces:
                stored[written.segment.layout] += written.segment.rows
        return replace(
            draft,
            latest_s=max(draft.latest_s, report.latest_s),
            epochs=_with_written(draft.epochs, report),
            sent=tuple(count + report.sent[hop] for hop, count in enumerate(draft.sent)),
            stored=tuple(stored),
            late=draft.late + report.late,
            results=draft.results + report.results,
            has_results=report.results > 0,
        )


def _with_written(epochs: tuple[Epoch, ...], report: Report) -> tuple[Epoch, ...]:
    """Add written segments to the last epoch."""
    *past, current = epochs
    replaced = {path for written in report.written for path in written.replaces}
    remaining = [segment for segment in current.segments if segment.path not in replaced]
    segments = (*remaining, *(written.segment for written in report.written))
    newest_s = max([current.newest_s, *(written.newest_s for written in report.written)])
    return (*past, replace(current, segments=segments, newest_s=newest_s))


def _without(epoch: Epoch, joins: Iterable[Join]) -> Epoch:
    """Return an epoch without the rows of some joins."""
    dropped_joins = set(joins)
    layouts: list[StoreLayout] = []
    segments: list[Segment] = []
    for number, layout in enumerate(epoch.layouts):
        if layout.join not in dropped_joins:
            segments += [
                replace(segment, layout=len(layouts))
                for segment in epoch.segments
                if segment.layout == number
            ]
            layouts.append(layout)
    return replace(epoch, layouts=tuple(layouts), segments=tuple(segments))


def _intermediates(joins: Iterable[Join]) -> set[Join]:
    return {join for join in joins if len(join.relations) > 1}
