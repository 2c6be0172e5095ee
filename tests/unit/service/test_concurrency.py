"""Calls at the same time: all of them come to their end, and the first failure is told."""

from __future__ import annotations

import asyncio

import pytest

from mediator.base.concurrency import both, concurrently


async def _step(log: list[str], name: str, gate: asyncio.Event | None = None) -> str:
    log.append(f"{name} begins")
    try:
        await (gate.wait() if gate else asyncio.sleep(0))
    except asyncio.CancelledError:
        log.append(f"{name} is cancelled")
        raise
    log.append(f"{name} ends")
    return name


async def _fail(error: Exception) -> str:
    await asyncio.sleep(0)
    raise error


async def test_nothing_takes_no_turn() -> None:
    assert await concurrently(()) == []


async def test_answers_come_in_the_order_of_the_calls_whoever_ends_first() -> None:
    log: list[str] = []
    gate = asyncio.Event()

    async def opens() -> str:
        gate.set()
        return "opens"

    assert await concurrently([_step(log, "waits", gate), opens()]) == ["waits", "opens"]


async def test_the_first_begins_at_once_and_the_others_before_it_ends() -> None:
    log: list[str] = []
    await concurrently([_step(log, "one"), _step(log, "two"), _step(log, "three")])
    assert log[:3] == ["one begins", "two begins", "three begins"]


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_the_others_come_to_their_end_before_a_failure_is_raised(place: int) -> None:
    log: list[str] = []
    work = [_step(log, "one"), _step(log, "two")]
    work.insert(place, _fail(ValueError("refused")))
    with pytest.raises(ValueError, match="refused"):
        await concurrently(work)
    assert {"one ends", "two ends"} <= set(log)


async def test_of_several_failures_the_first_in_order_is_raised() -> None:
    with pytest.raises(ValueError, match="one"):
        await concurrently([_fail(ValueError("one")), _fail(KeyError("two"))])


async def test_who_is_cancelled_cancels_all() -> None:
    log: list[str] = []
    never = asyncio.Event()
    work = [_step(log, name, never) for name in ("one", "two", "three")]
    task = asyncio.create_task(concurrently(work))
    for _ in range(3):  # its turn, that of the tasks it makes, and one to spare
        await asyncio.sleep(0)
    assert len(log) == len(work)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert {f"{name} is cancelled" for name in ("one", "two", "three")} <= set(log)


async def test_both_answer_what_they_answer() -> None:
    async def number() -> int:
        return 1

    assert await both(_step([], "one"), number()) == ("one", 1)
