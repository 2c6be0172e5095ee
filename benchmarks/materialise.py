"""The materialised view under sustained updates: its writes, and the age of its answers.

Counters are on Redis, the rest of each article on PostgreSQL, which holds the view. Writers count
as fast as they can; samplers read whole articles from the view and compare the version of the
counter they see with those acknowledged before: an answer is too old if it lacks a version that was
acknowledged longer ago than the bound. The view must write as often as articles are dirty, not as
often as they are written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from time import perf_counter
from typing import Any, Final
from uuid import uuid4

import asyncpg

from app.commands.demo.failed import Failed
from app.commands.demo.service import succeed
from benchmarks.harness.report import Measured, Options, Result
from benchmarks.harness.shared_servers import (
    SharedService,
    field_on,
    shared_service,
    state_metrics,
)
from mediator.model.operations import Get, Outcome, Update
from mediator.model.operators import Operator, OperatorCall
from mediator.routing.freshness import ReadPreference

__all__ = ["run"]

_DATABASE: Final = "materialised"
_CLASS: Final = "articles"
_BOUND_S: Final = 5.0
_BATCH: Final = 100
_READERS: Final = 8
_STATISTICS_S: Final = 11.0
"""PostgreSQL's statistics may lack the writes of an idle connection for 10 s."""

_ROWS: Final = "SELECT sum(n_tup_ins + n_tup_upd) FROM pg_stat_user_tables WHERE relname LIKE $1"
"""Only copies are written to these tables during the measurement."""
_BOUNDED: Final = ReadPreference("bounded")


@dataclass(frozen=True, slots=True)
class _Work:
    """Objects that were dirty, summed over the intervals, and rows written to the view."""

    dirty: int
    written: int


@dataclass(slots=True)
class _Ledger:
    """The acknowledged versions of each counter, and the samples of it."""

    acknowledged: list[list[tuple[float, int]]]
    samples: int = 0
    from_view: int = 0
    late: int = 0
    oldest_s: float = 0.0
    operations: int = 0


async def run(options: Options) -> Measured:
    objects = 1_000 if options.quick else 10_000
    async with shared_service() as running:
        running.require("redis", "postgresql")
        await _fill(running, objects)
        await _wait_until_built(running)
        before = await _count_work(running)
        ledger = _Ledger([[] for _ in range(objects)])
        await _work(running, ledger, 10.0 if options.quick else 120.0, Random(options.seed))
        await _wait_until_caught_up(running, ledger)
        after = await _count_work(running)
        work = _Work(after.dirty - before.dirty, after.written - before.written)
        return Measured(_results(options, ledger, work), await running.service.versions())


def _results(options: Options, ledger: _Ledger, work: _Work) -> list[Result]:
    share = ledger.from_view / max(1, ledger.samples)
    options.note(
        f"{ledger.operations:,} updates, {work.dirty:,} dirty objects in all intervals,"
        f" {work.written:,} writes to the view;"
        f" {ledger.samples:,} samples, {share:.1%} from the view, {ledger.late} too old,"
        f" oldest {ledger.oldest_s:.2f} s"
    )
    older = f"answers of the view older than {_BOUND_S:g} s"
    dirty = "writes to the view, against dirty objects in each interval"
    updates = "writes to the view, against updates of the articles"
    return [
        Result(older, "answers", ledger.late, None, 0, True),
        Result("age of the oldest answer of the view", "s", ledger.oldest_s, None, _BOUND_S, True),
        Result("samples", "answers", ledger.samples),
        Result("share of them answered by the view", "share", share),
        Result(dirty, "writes", work.written, work.dirty, 1.0, True),
        Result(updates, "writes", work.written, ledger.operations, small_is_good=True),
    ]


async def _fill(running: SharedService, objects: int) -> None:
    await state_metrics(running.service)
    fields = {
        "title": {"type": "string"} | field_on("postgresql"),
        "hits": {"type": "integer", "default": 0, "group": "hits"} | field_on("redis"),
    }
    schema = {
        "mode": "microbatched",
        "materialised_view": {"system": "postgres", "staleness_s": _BOUND_S},
        "classes": {_CLASS: {"fields": fields}},
    }
    await running.service.set_schema(_DATABASE, schema)
    articles = {f"a{number}": {"title": f"Part {number}"} for number in range(objects)}
    await running.service.create(_DATABASE, {_CLASS: articles})


async def _state(running: SharedService) -> dict[str, Any]:
    view = await succeed(running.service.admin.get(f"views/{_DATABASE}"))
    state: dict[str, Any] = view["classes"][_CLASS]
    return state


async def _count_work(running: SharedService) -> _Work:
    written = await _rows_written(running)  # takes longer than the materialiser's interval
    partitions = (await _state(running))["partitions"]
    return _Work(sum(part["dirty"] for part in partitions), written)


async def _rows_written(running: SharedService) -> int:
    """Return how many rows of the copy were written; PostgreSQL counts them once it is idle."""
    connection = await asyncpg.connect(running.servers["postgresql"].url)
    try:
        before = None
        while (rows := int(await connection.fetchval(_ROWS, f"%{_DATABASE}%"))) != before:
            await asyncio.sleep(_STATISTICS_S)
            before = rows
        return rows
    finally:
        await connection.close()


async def _wait_until_built(running: SharedService) -> None:
    async with asyncio.timeout(120):
        while True:
            partitions = (await _state(running))["partitions"]
            if all(part["state"] == "complete" for part in partitions):
                return
            await asyncio.sleep(0.1)


async def _work(running: SharedService, ledger: _Ledger, seconds: float, draw: Random) -> None:
    end = perf_counter() + seconds
    samplers = [_sample(running, ledger, end, draw) for _ in range(_READERS)]
    await asyncio.gather(_count(running, ledger, end, draw), *samplers)


async def _count(running: SharedService, ledger: _Ledger, end: float, draw: Random) -> None:
    while perf_counter() < end:
        numbers = draw.sample(range(len(ledger.acknowledged)), _BATCH)
        answers = await running.plane.batch([_hit(number) for number in numbers])
        now = perf_counter()
        for number, answer in zip(numbers, answers, strict=True):
            if not isinstance(answer, Outcome):
                raise Failed(f"an update was refused: {answer}")
            ledger.acknowledged[number].append((now, answer.versions["hits"] or 0))
        ledger.operations += _BATCH
        await asyncio.sleep(0)


def _hit(number: int) -> Update:
    call = (OperatorCall("hits", Operator.INC, 1),)
    return Update(_DATABASE, _CLASS, f"a{number}", uuid4().hex, operators=call)


async def _sample(running: SharedService, ledger: _Ledger, end: float, draw: Random) -> None:
    while (started := perf_counter()) < end:
        number = draw.randrange(len(ledger.acknowledged))
        outcome = await running.plane.read(Get(_DATABASE, _CLASS, f"a{number}"), _BOUNDED)
        _record_sample(ledger, number, started, outcome)


def _record_sample(ledger: _Ledger, number: int, started: float, outcome: Outcome) -> None:
    ledger.samples += 1
    if outcome.freshness is None:
        return
    ledger.from_view += 1
    version = outcome.versions["hits"] or 0
    age = _age(ledger.acknowledged[number], version, started)
    ledger.oldest_s = max(ledger.oldest_s, age)
    ledger.late += age > _BOUND_S


def _age(acknowledged: Sequence[tuple[float, int]], version_read: int, started: float) -> float:
    """Return how long ago the first missing version was acknowledged (seconds)."""
    missing = [
        at for at, version in acknowledged[-200:] if version > version_read and at <= started
    ]
    return started - min(missing) if missing else 0.0


async def _wait_until_caught_up(running: SharedService, ledger: _Ledger) -> None:
    """Wait until the view has every count, and check it."""
    async with asyncio.timeout(120):
        for number, writes in enumerate(ledger.acknowledged):
            if writes:
                await _wait_for_count(running, number, writes[-1][1], len(writes))


async def _wait_for_count(running: SharedService, number: int, version: int, count: int) -> None:
    while True:
        outcome = await running.plane.read(Get(_DATABASE, _CLASS, f"a{number}"), _BOUNDED)
        if outcome.freshness is not None and (outcome.versions["hits"] or 0) >= version:
            break
        await asyncio.sleep(0.05)
    if (outcome.values or {}).get("hits") != count:
        raise Failed(f"a{number} was counted {count} times, and the view says otherwise")
