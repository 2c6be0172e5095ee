"""Random histories: strictly serializable through crashes; not without any one step."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from tests.process.service import Service
from tests.process.transactions.crashable import make_crashable
from tests.process.transactions.histories import CLASSES, History
from tests.process.transactions.serializability import Executed, cycle_in
from tests.process.transactions.transaction_mutants import MUTANTS, Echo

WORKERS, OPERATIONS = 6, 12


@pytest.fixture(scope="module")
async def paper(mediator: Service) -> AsyncIterator[str]:
    database = await mediator.put_schema(CLASSES)
    assert mediator.systems_of(database, "pairs") == ("postgres", "redis")
    with pytest.MonkeyPatch.context() as patched:
        # A writer that waits too long is refused, which would happen often on a busy machine.
        patched.setattr("mediator.transactions.joint.MAX_WAIT_S", 60.0)
        yield database


@pytest.fixture
async def crashable(mediator: Service) -> AsyncIterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        echo = Echo(mediator, patched)
        make_crashable(mediator.mediator, patched)
        yield
        await echo.end()


async def _history(mediator: Service, database: str, seed: int, per_class: int = 2) -> History:
    history = History(mediator, database, random.Random(seed))
    await history.begin(per_class)
    workers = (history.work(OPERATIONS) for _ in range(WORKERS))
    results = await asyncio.gather(*workers, return_exceptions=True)
    history.complaints = [error for error in results if error is not None]
    return history


@pytest.mark.parametrize("seed", range(6))
async def test_histories_are_serializable(
    mediator: Service, paper: str, crashable: None, seed: int
) -> None:
    history = await _history(mediator, paper, seed)
    async with asyncio.timeout(60):
        while not history.killed:  # all transactions to be killed can have been refused before
            await history.transact(crashable=True)
    assert not history.complaints
    assert cycle_in(history.executed) is None
    await history.check_end()
    assert len(history.executed) > WORKERS * OPERATIONS // 4


@pytest.mark.parametrize("mutant", MUTANTS)
async def test_without_any_one_step_histories_are_not_serializable(
    mediator: Service, paper: str, mutant: str
) -> None:
    """The checker detects it."""
    for seed in range(30):
        with pytest.MonkeyPatch.context() as patched:
            MUTANTS[mutant](mediator, patched)
            # The fewer objects there are, the more often transactions conflict.
            history = await _history(mediator, paper, seed, per_class=1)
        if await _is_wrong(history):
            return
    pytest.fail("no history was wrong")


async def _is_wrong(history: History) -> bool:
    for complaint in history.complaints:
        assert isinstance(complaint, AssertionError), complaint
    try:
        if not history.complaints and cycle_in(history.executed) is None:
            await history.check_end()
            return False
    except AssertionError:
        pass
    return True


def test_the_checker_detects_the_textbook_anomalies() -> None:
    x, y = ("c", "x", "main"), ("c", "y", "main")
    start = Executed("start", 0, 0.5, {}, {x: 1, y: 1})
    write_skew = [Executed("a", 1, 2, {y: 1}, {x: 2}), Executed("b", 1, 2, {x: 1}, {y: 2})]
    assert cycle_in([start, *write_skew]) is not None
    lost_update = [Executed("a", 1, 2, {x: 1}, {x: 2}), Executed("b", 1, 2, {x: 1}, {x: 3})]
    assert cycle_in([start, *lost_update]) is not None
    stale_read = [Executed("a", 1, 2, {}, {x: 2}), Executed("b", 3, 4, {x: 1}, {})]
    assert cycle_in([start, *stale_read]) is not None
    serial = [Executed("a", 1, 2, {y: 1}, {x: 2}), Executed("b", 1, 3, {x: 2}, {y: 2})]
    assert cycle_in([start, *serial]) is None
    with pytest.raises(AssertionError):
        cycle_in([start, Executed("a", 1, 2, {x: 7}, {})])
