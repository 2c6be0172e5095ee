"""Concurrent calls: all of them end, and the first failure is raised."""

from __future__ import annotations

import asyncio

import pytest

from mediator.base.concurrency import both, concurrently


async def _step(log: list[str], name: str, opened: asyncio.Event | None = None) -> str:
    log.append(f"{name} begins")
    try:
        await (opened.wait() if opened else asyncio.sleep(0))
    except asyncio.CancelledError:
        log.append(f"{name} is cancelled")
        raise
    log.append(f"{name} ends")
    return name


async def _fail(error: Exception) -> str:
    await asyncio.sleep(0)
    raise error


async def test_no_calls_have_no_answers() -> None:
    assert await concurrently(()) == []


async def test_answers_are_in_the_order_of_the_calls_whichever_ends_first() -> None:
    log: list[str] = []
    opened = asyncio.Event()

    async def opens() -> str:
        opened.set()
        return "opens"

    assert await concurrently([_step(log, "waits", opened), opens()]) == ["waits", "opens"]


async def test_concurrent_calls_all_start_before_the_first_ends() -> None:
    log: list[str] = []
    await concurrently([_step(log, "one"), _step(log, "two"), _step(log, "three")])
    assert log[:3] == ["one begins", "two begins", "three begins"]


@pytest.mark.parametrize("position", [0, 1, 2])
async def test_the_others_end_before_a_failure_is_raised(position: int) -> None:
    log: list[str] = []
    work = [_step(log, "one"), _step(log, "two")]
    work.insert(position, _fail(ValueError("refused")))
    with pytest.raises(ValueError, match="refused"):
        await concurrently(work)
    assert {"one ends", "two ends"} <= set(log)


async def test_of_several_failures_the_first_in_order_is_raised() -> None:
    with pytest.raises(ValueError, match="one"):
        await concurrently([_fail(ValueError("one")), _fail(KeyError("two"))])


async def test_a_cancellation_cancels_all_calls() -> None:
    log: list[str] = []
    never = asyncio.Event()
    work = [_step(log, name, never) for name in ("one", "two", "three")]
    task = asyncio.create_task(concurrently(work))
    for _ in range(3):  # one step for itself, one for the tasks it starts, and one to spare
        await asyncio.sleep(0)
    assert len(log) == len(work)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert {f"{name} is cancelled" for name in ("one", "two", "three")} <= set(log)


async def test_a_pair_has_both_answers() -> None:
    async def number() -> int:
        return 1

    assert await both(_step([], "one"), number()) == ("one", 1)
