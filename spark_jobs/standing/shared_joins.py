"""The standing queries of a plan, batch by batch: what a batch begins with, and what it commits.

Everything here is decided by the last commit and by the plan, so a batch that is repeated does the
same again. *Earlier* is the order of batches, and that of feed positions within one. Times decide
about windows only.
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
"""In how many steps state is dropped: as many epochs, and one more, hold what a window needs."""

Execute: TypeAlias = Callable[[Work], Report]
"""Executes work over the tuples of a batch, or over those of its history."""


class SharedJoins:
    """Executes plans; what is kept is in a directory, and goes on in the next process.

    Args:
        retention_s: How long tuples are kept, and so the longest window a query may have.
        lateness_s: How long after a later tuple of an earlier batch a tuple may still arrive.
    """

    def __init__(
        self, directory: StateDirectory, plan: Plan, retention_s: float, lateness_s: float = 0.0
    ) -> None:
        self.directory = directory
        self._retention_s = retention_s
        self._lateness_s = lateness_s
        self.activate(plan)

    def activate(self, plan: Plan) -> None:
        """Let another plan be active from the next batch on; queries have the full history.

        Raises:
            ValueError: A query has a longer window than tuples are kept.
        """
        if any(query.window_s > self._retention_s for query in plan.workload.joins):
            raise ValueError("a query has a longer window than tuples are kept")
        self.plan = plan
        self._rules = compile_rules(plan)
        self.hops = compile_hops(self._rules, plan.workload.streams, plan.workload.joins)

    def process(self, batch: int, execute: Execute, execute_history: Execute) -> Commit:
        """Execute a batch, and commit its state and results together.

        A batch that is committed already is not executed again.

        Raises:
            StateMismatch: It is not the one that comes next.
        """
        before = self.directory.latest()
        if not self.directory.is_next(batch, before):
            return before
        begun = replace(before, batch=batch, attempt=uuid4().hex)
        if before.plan != fingerprint(self.plan):
            begun = self._begin_plan(begun, execute_history)
        begun = self._drop_state(begun)
        report = execute(self._work(begun, self.hops))
        done = self._done(begun, report)
        self.directory.commit(done, before)
        return done

    def watermark_s(self, commit: Commit) -> float:
        """Return what later tuples may not be earlier than."""
        return commit.latest_s - self._lateness_s

    def _begin_plan(self, commit: Commit, execute_history: Execute) -> Commit:
        """Begin an epoch with the present plan, and compute what it probes for the first time.

        Raises:
            StateMismatch: It has another number of partition groups than what is kept.
        """
        parallelism = self.plan.workload.parallelism
        if commit.parallelism not in (0, parallelism):
            raise StateMismatch(
                f"{self.directory.root} has {commit.parallelism} partition groups, and the plan"
                f" {parallelism}"
            )
        probed = {join for join in self._rules.stores if len(join.relations) > 1}
        former = {at.join for at in commit.epochs[-1].layouts} if commit.epochs else set()
        kept = [_without(each, _intermediates(former) - probed) for each in commit.epochs]
        begun = replace(
            commit,
            plan=fingerprint(self.plan),
            parallelism=parallelism,
            epochs=tuple(kept),
            sent=(0,) * len(self.hops.hops),
            stored=(0,) * len(self._layouts()),
        )
        begun = self._begin_epoch(begun)
        wanted = probed - former
        if wanted and len(begun.epochs) > 1:
            hops = compile_history(self.hops.stores, wanted)
            report = execute_history(self._work(begun, hops, "-history"))
            begun = replace(begun, epochs=_extended(begun.epochs, report))
        return begun

    def _begin_epoch(self, commit: Commit) -> Commit:
        kept = [each for each in commit.epochs if not each.is_empty]
        number = max((each.number for each in commit.epochs), default=-1) + 1
        epoch = Epoch(number, float("-inf"), self._layouts(), ())
        return replace(commit, epochs=(*kept, epoch), epoch_from_s=self.watermark_s(commit))

    def _drop_state(self, commit: Commit) -> Commit:
        """Begin an epoch from time to time, and drop those that no window reaches any more."""
        watermark_s = self.watermark_s(commit)
        if watermark_s - commit.epoch_from_s > self._retention_s / _EPOCHS:
            commit = self._begin_epoch(commit)
        *past, present = commit.epochs
        kept = [each for each in past if watermark_s - each.newest_s <= self._retention_s]
        return replace(commit, epochs=(*kept, present))

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

    def _done(self, begun: Commit, report: Report) -> Commit:
        stored = list(begun.stored)
        for each in report.written:
            if not each.replaces:
                stored[each.segment.layout] += each.segment.rows
        return replace(
            begun,
            latest_s=max(begun.latest_s, report.latest_s),
            epochs=_extended(begun.epochs, report),
            sent=tuple(count + report.sent[hop] for hop, count in enumerate(begun.sent)),
            stored=tuple(stored),
            late=begun.late + report.late,
            results=begun.results + report.results,
            has_results=report.results > 0,
        )


def _extended(epochs: tuple[Epoch, ...], report: Report) -> tuple[Epoch, ...]:
    """Add what was written to the last epoch."""
    *past, present = epochs
    replaced = {path for each in report.written for path in each.replaces}
    kept = [each for each in present.segments if each.path not in replaced]
    segments = (*kept, *(each.segment for each in report.written))
    newest_s = max([present.newest_s, *(each.newest_s for each in report.written)])
    return (*past, replace(present, segments=segments, newest_s=newest_s))


def _without(epoch: Epoch, joins: Iterable[Join]) -> Epoch:
    """Drop what an epoch has of some joins."""
    dropped = set(joins)
    layouts: list[StoreLayout] = []
    segments: list[Segment] = []
    for number, layout in enumerate(epoch.layouts):
        if layout.join not in dropped:
            segments += [
                replace(each, layout=len(layouts))
                for each in epoch.segments
                if each.layout == number
            ]
            layouts.append(layout)
    return replace(epoch, layouts=tuple(layouts), segments=tuple(segments))


def _intermediates(joins: Iterable[Join]) -> set[Join]:
    return {join for join in joins if len(join.relations) > 1}
