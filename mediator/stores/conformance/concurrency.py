"""Concurrent writers: no lost updates, one winner for each version, one effect per operation."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from mediator.base.concurrency import concurrently
from mediator.model.operators import Operator, OperatorCall
from mediator.schema.annotations import Capability
from mediator.schema.types import FieldType
from mediator.stores.conformance.check import Theme
from mediator.stores.conformance.expect import (
    ConformanceFailure,
    applied,
    present,
    require,
    same,
)
from mediator.stores.conformance.samples import collection, counter
from mediator.stores.conformance.scratch import Scratch, ScratchClass
from mediator.stores.port import Status, WriteResult

__all__ = ["THEME", "together"]

THEME = Theme("concurrency")

WRITERS = 8
ROUNDS = 12
# Each writer wins once, so that a writer can lose only to the others.
ATTEMPTS = 4 * WRITERS


async def together(*writes: Coroutine[Any, Any, WriteResult]) -> list[WriteResult]:
    """Start writers at the same time: each waits until all others are ready to send."""
    barrier = asyncio.Barrier(len(writes))

    async def start(write: Coroutine[Any, Any, WriteResult]) -> WriteResult:
        await barrier.wait()
        return await write

    try:
        await asyncio.sleep(0)  # a caller that is cancelled here starts none
        return await concurrently(map(start, writes))
    finally:
        for write in writes:  # Python would warn later of coroutines that never started
            write.close()


def _winners(results: Sequence[WriteResult]) -> list[WriteResult]:
    return [result for result in results if result.status is Status.APPLIED]


def _one_wins(results: Sequence[WriteResult], losers: Status) -> int:
    """Require that one write is applied and all others have a status; return its number."""
    statuses = [result.status for result in results]
    expected = {Status.APPLIED: 1, losers: len(results) - 1}
    same(dict(Counter(statuses)), expected, "statuses of concurrent writes")
    return statuses.index(Status.APPLIED)


async def _while_writing(
    writing: Coroutine[Any, Any, None], read: Callable[[], Awaitable[None]], readers: int
) -> None:
    """Let readers read repeatedly until a writer has ended."""
    done = asyncio.Event()

    async def write() -> None:
        try:
            await writing
        finally:
            done.set()

    async def read_on() -> None:
        while not done.is_set():
            await read()
            await asyncio.sleep(0)

    await asyncio.gather(write(), *(read_on() for _ in range(readers)))


@THEME.proves(Capability.CONDITIONAL_UPDATES)
async def one_winner_for_each_version(scratch: Scratch) -> None:
    """Of writers that expect the same version, exactly one is applied; the others conflict."""
    subject = await scratch.subject(counter())
    versions = applied(await subject.create("x", {"n": -1})).versions
    for round_ in range(ROUNDS):
        results = await together(
            *(subject.update("x", {"n": w}, expect=versions) for w in range(WRITERS))
        )
        winner = _one_wins(results, Status.CONFLICT)
        same(await subject.values("x"), {"n": winner}, f"what the winner of round {round_} wrote")
        versions = results[winner].versions
        for result in results:
            same(result.versions, versions, "the version that all of them get")


@THEME.proves(Capability.CONDITIONAL_UPDATES)
async def conditional_counters_lose_nothing(scratch: Scratch) -> None:
    """Writers that read, add one and write on condition, until applied, lose no addition."""
    subject = await scratch.subject(counter())
    await subject.create("x", {"n": 0})

    async def add() -> None:
        for _ in range(ATTEMPTS):
            record = present(await subject.read("x"), "the counter")
            n = record.values["n"]
            assert isinstance(n, int)
            result = await subject.update("x", {"n": n + 1}, expect=record.versions)
            if result.status is Status.APPLIED:
                return
        raise ConformanceFailure(f"an addition was refused {ATTEMPTS} times")

    await asyncio.gather(*(add() for _ in range(WRITERS * 2)))
    same(await subject.values("x"), {"n": WRITERS * 2}, "the counter")


@THEME.proves(Capability.CONDITIONAL_UPDATES)
async def one_writer_wins_a_group_that_was_never_written(scratch: Scratch) -> None:
    """Of writers of a group that is younger than the record, and expected as 0, one is applied."""
    former = await scratch.subject(counter("a"))
    await former.create("x", {"a": 1})
    fields = (counter("a"), counter("b", group="side"))
    younger = scratch.fragment(former.fragment.class_name, fields, schema_version=2)
    subject = await scratch.prepare(younger, former.fragment)
    results = await together(
        *(subject.update("x", {"b": w}, expect={"side": 0}) for w in range(WRITERS))
    )
    winner = _one_wins(results, Status.CONFLICT)
    same(await subject.values("x"), {"a": 1, "b": winner}, "what the winner wrote")


@THEME.proves(Capability.CONDITIONAL_UPDATES)
async def one_creation_wins(scratch: Scratch) -> None:
    """Of writers that create the same id, exactly one is applied; the others see it exist."""
    subject = await scratch.subject(counter())
    for round_ in range(ROUNDS):
        id_ = f"x{round_}"
        results = await together(*(subject.create(id_, {"n": w}) for w in range(WRITERS)))
        winner = _one_wins(results, Status.EXISTS)
        same(await subject.values(id_), {"n": winner}, "what the winner created")


@THEME.proves(Capability.CONDITIONAL_UPDATES)
async def one_deletion_wins(scratch: Scratch) -> None:
    """Of a deletion and updates that expect the same version, exactly one is applied."""
    subject = await scratch.subject(counter())
    for round_ in range(ROUNDS):
        versions = applied(await subject.replace("x", {"n": 0})).versions
        update = (subject.update("x", {"n": w}, expect=versions) for w in range(WRITERS - 1))
        results = await together(subject.delete("x", expect=versions), *update)
        same(len(_winners(results)), 1, f"winners of round {round_}")
        is_deleted = results[0].status is Status.APPLIED
        same(await subject.read("x") is None, is_deleted, "absence, when the deletion won")


@THEME.proves(Capability.CONDITIONAL_UPDATES)
async def creations_and_deletions_alternate(scratch: Scratch) -> None:
    """Applied creations and deletions alternate, each with distinct versions."""
    subject = await scratch.subject(counter())
    results = []
    for _ in range(ROUNDS):
        creators = (subject.create("x", {"n": 1}) for _ in range(WRITERS // 2))
        results += await together(*creators, *(subject.delete("x") for _ in range(WRITERS // 2)))
    applied_results = sorted(_winners(results), key=lambda result: result.versions["main"])
    versions = [result.versions["main"] for result in applied_results]
    require(len(set(versions)) == len(versions), "two writes got the same version")
    presences = [result.created for result in applied_results]
    same(
        presences,
        [i % 2 == 0 for i in range(len(applied_results))],
        "creations (True) and deletions alternate",
    )
    same(await subject.read("x") is not None, presences[-1], "presence after the last write")


@THEME.proves("contract")
async def groups_do_not_disturb_each_other(scratch: Scratch) -> None:
    """Writers of different groups, each expecting its own version, are all applied."""
    subject = await scratch.subject(*(counter(f"n{i}", group=f"g{i}") for i in range(WRITERS)))
    versions = applied(await subject.create("x")).versions
    for round_ in range(ROUNDS):
        results = await together(
            *(
                subject.update("x", {f"n{i}": round_}, expect={f"g{i}": versions[f"g{i}"]})
                for i in range(WRITERS)
            )
        )
        same(len(_winners(results)), WRITERS, f"groups written in round {round_}")
        versions = await subject.versions("x")
    same(set((await subject.values("x")).values()), {ROUNDS - 1}, "values of all groups")


async def _operate(
    subject: ScratchClass, id_: str, calls: Sequence[OperatorCall]
) -> list[WriteResult]:
    results: list[WriteResult] = []
    for start in range(0, len(calls), WRITERS):
        batch = calls[start : start + WRITERS]
        results += await together(
            *(subject.update(id_, operators=(c,), returning=()) for c in batch)
        )
    return results


@THEME.proves(Capability.ATOMIC_UPDATES)
async def increments_are_not_lost(scratch: Scratch) -> None:
    """Concurrent increments add up, and each returns a distinct value."""
    subject = await scratch.subject(counter())
    await subject.create("x", {"n": 0})
    total = WRITERS * ROUNDS
    results = await _operate(subject, "x", [OperatorCall("n", Operator.INC, 1)] * total)
    returned = sorted(applied(result, "an increment").values["n"] for result in results)  # type: ignore[type-var]
    same(returned, list(range(1, total + 1)), "values returned by increments")
    same(await subject.values("x"), {"n": total}, "the counter")


@THEME.proves("contract")
async def pushes_are_not_lost(scratch: Scratch) -> None:
    """Concurrent pushes to a list, and additions to a set, are all present."""
    fields = []
    if scratch.store.supports(Operator.PUSH, FieldType.LIST):
        fields.append((collection(FieldType.LIST, FieldType.INTEGER, "l"), Operator.PUSH))
    if scratch.store.supports(Operator.ADD_TO_SET, FieldType.SET):
        fields.append((collection(FieldType.SET, FieldType.INTEGER, "s"), Operator.ADD_TO_SET))
    subject = await scratch.subject(*(field for field, _ in fields))
    await subject.create("x")
    numbers = list(range(WRITERS * 3))
    for field, operator in fields:
        await _operate(subject, "x", [OperatorCall(field.name, operator, n) for n in numbers])
        elements = (await subject.values("x", field.name))[field.name]
        assert isinstance(elements, list)
        same(sorted(elements), numbers, f"elements after concurrent {operator}")


@THEME.proves("contract")
async def an_operation_happens_once(scratch: Scratch) -> None:
    """A remembered operation that several writers send together is applied exactly once."""
    subject = await scratch.subject(counter())
    await subject.create("x", {"n": 0})
    for round_ in range(ROUNDS):
        creation = subject.creation(f"x{round_}", {"n": 1}, remember="f")
        for write in (creation, subject.change("x", remember="f", returning=())):
            results = await together(*(subject.write(write) for _ in range(WRITERS)))
            _one_wins(results, Status.REPLAYED)
    if not scratch.store.supports(Operator.INC, FieldType.INTEGER):
        return
    for round_ in range(1, ROUNDS + 1):
        add = OperatorCall("n", Operator.INC, 1)
        write = subject.change("x", operators=(add,), remember="f", returning=("n",))
        results = await together(*(subject.write(write) for _ in range(WRITERS)))
        _one_wins(results, Status.REPLAYED)
        same([r.values["n"] for r in results], [round_] * WRITERS, "values they all return")
        same({r.versions["main"] for r in results}, {results[0].versions["main"]}, "versions")
    same(await subject.values("x"), {"n": ROUNDS}, "the counter")


@THEME.proves("contract")
async def readers_see_whole_writes(scratch: Scratch) -> None:
    """A reader never sees a partially written record, over several fields and groups."""
    subject = await scratch.subject(
        counter("a"), counter("b", group="side"), collection(FieldType.LIST, FieldType.INTEGER, "l")
    )
    await subject.create("x", {"a": 0, "b": 0, "l": [0]})

    async def write() -> None:
        for i in range(1, ROUNDS * WRITERS):
            await subject.update("x", {"a": i, "b": i, "l": [i]})

    async def read() -> None:
        values = await subject.values("x")
        a = values["a"]
        same(values, {"a": a, "b": a, "l": [a]}, "a record read while it is written")

    await _while_writing(write(), read, 2)


@THEME.proves(Capability.LINEARIZABLE)
async def what_was_acknowledged_is_read(scratch: Scratch) -> None:
    """After a write is acknowledged, every reader sees it, or a later one."""
    subject = await scratch.subject(counter())
    await subject.create("x", {"n": 0})
    acknowledged = 0

    async def write() -> None:
        nonlocal acknowledged
        for i in range(1, ROUNDS * WRITERS):
            applied(await subject.update("x", {"n": i}))
            acknowledged = i
            await asyncio.sleep(0)  # a store that answers at once lets no other task read

    async def read() -> None:
        floor = acknowledged
        value = (await subject.values("x"))["n"]
        assert isinstance(value, int)
        require(value >= floor, f"{floor} was acknowledged, then {value} was read")

    await _while_writing(write(), read, 4)
