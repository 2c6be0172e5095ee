"""Writes sorted into runs, each of which one call of a script does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mediator.stores.port import Write, WriteResult
from mediator.stores.redis.answers import results_of
from mediator.stores.redis.packing import Form, form_of, pack
from mediator.stores.redis.plan import Plan, Plans

__all__ = ["MOST_WRITES", "Run", "runs_of"]

MOST_WRITES = 200
"""Writes that one script does at most, so that the server is not held up."""


class Run:
    """Writes of one form to one partition that follow each other."""

    __slots__ = ("form", "partition", "plan", "positions", "rows")

    def __init__(self, plan: Plan, partition: int, form: Form) -> None:
        self.plan = plan
        self.partition = partition
        self.form = form
        self.positions: list[int] = []
        self.rows: list[Any] = []

    def command(self) -> bytes:
        """Pack the call."""
        return pack(self.plan, self.partition, self.form, self.rows)

    def results(self, reply: list[Any]) -> list[WriteResult]:
        """Read the reply to the call, in the order of `positions`."""
        return results_of(self.plan, self.form, reply)


def runs_of(plans: Plans, calls: Sequence[Write], token: str) -> list[Run]:
    """Sort writes; those to one record stay in their order."""
    if len(calls) == 1:
        return [_run_of(plans, calls[0], token)]
    runs: list[Run] = []
    latest: dict[tuple[Plan, int], Run] = {}
    for position, call in enumerate(calls):
        plan = plans.of(call.fragment)
        form, partition = form_of(plan, call, has_token=bool(token)), plan.partition(call.id)
        run = latest.get((plan, partition))
        if run is None or run.form is not form or len(run.positions) >= MOST_WRITES:
            run = latest[plan, partition] = Run(plan, partition, form)
            runs.append(run)
        run.positions.append(position)
        form.add(run.rows, call, token)
    return runs


def _run_of(plans: Plans, call: Write, token: str) -> Run:
    plan = plans.of(call.fragment)
    form = form_of(plan, call, has_token=bool(token))
    run = Run(plan, plan.partition(call.id), form)
    form.add(run.rows, call, token)
    return run
