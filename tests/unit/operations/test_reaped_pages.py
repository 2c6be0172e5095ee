"""What is due is removed in pages until none is left, whatever fails meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mediator.base.clock import SystemClock
from mediator.base.errors import Unavailable
from mediator.operations.reaping import PAGE, Reap, reap_all


class Backlog:
    """Some things that are due."""

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
    def listed() -> Sequence[Reap]:
        return reaps

    await reap_all(listed, SystemClock())


async def test_nothing_that_is_due_is_left() -> None:
    backlogs = [Backlog(due) for due in (0, PAGE - 1, PAGE, 3 * PAGE + 5)]
    await reap(*(each.reap for each in backlogs))
    assert [each.due for each in backlogs] == [0, 0, 0, 0]
    assert {limit for each in backlogs for limit in each.limits} == {PAGE}


async def test_what_fails_keeps_no_other_from_its_end() -> None:
    backlog = Backlog(3 * PAGE)
    with pytest.raises(Unavailable):
        await reap(refuse, backlog.reap)
    assert backlog.due == 0


async def test_what_is_added_meanwhile_is_reaped_as_well() -> None:
    first, added = Backlog(2 * PAGE), Backlog(PAGE)
    calls = 0

    def listed() -> Sequence[Reap]:
        nonlocal calls
        calls += 1
        return [first.reap, *([added.reap] if calls > 1 else [])]

    await reap_all(listed, SystemClock())
    assert (first.due, added.due) == (0, 0)
