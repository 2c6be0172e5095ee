"""Due records are removed in pages until none is left, whatever fails meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mediator.base.clock import SystemClock
from mediator.base.errors import Unavailable
from mediator.operations.reaping import PAGE, Reap, reap_all


class Backlog:
    """Due records of one kind."""

    def __init__(self, due: int) -> None:
        self.due = due
        self.limits: list[int] = []

    async def reap(self, limit: int) -> int:
        self.limits.append(limit)
        removed = min(limit, self.due)
        self.due -= removed
        return removed


async def refuse(_: int) -> int:
    raise Unavailable("It does not answer.", system="redis")


async def reap(*reaps: Reap) -> None:
    def list_reaps() -> Sequence[Reap]:
        return reaps

    await reap_all(list_reaps, SystemClock())


async def test_no_due_record_is_left() -> None:
    backlogs = [Backlog(due) for due in (0, PAGE - 1, PAGE, 3 * PAGE + 5)]
    await reap(*(backlog.reap for backlog in backlogs))
    assert [backlog.due for backlog in backlogs] == [0, 0, 0, 0]
    assert {limit for backlog in backlogs for limit in backlog.limits} == {PAGE}


async def test_a_failing_reap_does_not_stop_the_others() -> None:
    backlog = Backlog(3 * PAGE)
    with pytest.raises(Unavailable):
        await reap(refuse, backlog.reap)
    assert backlog.due == 0


async def test_reaps_added_meanwhile_run_as_well() -> None:
    first, added = Backlog(2 * PAGE), Backlog(PAGE)
    calls = 0

    def list_reaps() -> Sequence[Reap]:
        nonlocal calls
        calls += 1
        return [first.reap, *([added.reap] if calls > 1 else [])]

    await reap_all(list_reaps, SystemClock())
    assert (first.due, added.due) == (0, 0)
