"""The cost of constraints: `inc` with a minimum against without, unique values against plain.

Several writers call the mediator in process, as the service does. Each write of a unique value is
of a new value.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from time import perf_counter
from typing import Any, Final

from benchmarks.harness.report import Measured, Options, Result, medians, per_second
from benchmarks.harness.shared_servers import (
    SharedService,
    field_on,
    shared_service,
    state_metrics,
)
from mediator.embedded.port import Kind
from mediator.model.operations import Create, Update
from mediator.model.operators import Operator, OperatorCall

__all__ = ["run"]

_MINIMUM_BAR: Final = 0.9
_UNIQUE_BAR: Final = 0.7
_WRITERS: Final = 16
_WRITES: Final = 2_000
_QUICK_WRITES: Final = 400
_COUNTERS: Final = 64

_Write = Callable[[int], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class _Store:
    """Classes with and without each constraint, wholly on one kind of system."""

    running: SharedService
    kind: Kind
    numbers: count[int] = field(default_factory=count)

    @property
    def database(self) -> str:
        return f"constrained_{self.kind}"

    async def declare(self) -> None:
        placed = field_on(self.kind)
        stocks: dict[str, dict[str, Any]] = {"minimum": {"minimum": 0}, "no_minimum": {}}
        emails: dict[str, dict[str, Any]] = {"unique": {"unique": True}, "plain": {}}
        classes = {
            **{n: {"fields": {"n": {"type": "integer", **placed, **m}}} for n, m in stocks.items()},
            **{n: {"fields": {"n": {"type": "string", **placed, **m}}} for n, m in emails.items()},
        }
        await self.running.service.set_schema(self.database, {"mode": "mixed", "classes": classes})
        counters = {f"c{number}": {"n": 0} for number in range(_COUNTERS)}
        await self.running.service.create(self.database, dict.fromkeys(stocks, counters))

    def incrementing(self, class_name: str) -> _Write:
        def write(number: int) -> Awaitable[object]:
            add = OperatorCall("n", Operator.INC, 1)
            id_ = f"c{number % _COUNTERS}"
            return self.running.plane.write(
                Update(self.database, class_name, id_, f"inc-{number}", operators=(add,))
            )

        return write

    def creating(self, class_name: str) -> _Write:
        def write(number: int) -> Awaitable[object]:
            values: Any = {"n": f"user{number}@example.org"}
            return self.running.plane.write(
                Create(self.database, class_name, f"u{number}", f"create-{number}", values=values)
            )

        return write

    async def rate(self, write: _Write, writes: int) -> float:
        """Return the rate of a number of writes (1/s)."""
        remaining = iter(range(writes))

        async def writer() -> None:
            for _ in remaining:
                await write(next(self.numbers))

        started = perf_counter()
        await asyncio.gather(*(writer() for _ in range(_WRITERS)))
        return writes / (perf_counter() - started)


async def run(options: Options) -> Measured:
    async with shared_service() as running:
        await state_metrics(running.service)
        results: list[Result] = []
        for kind in running.servers:
            store = _Store(running, kind)
            await store.declare()
            increments = {name: store.incrementing(name) for name in ("minimum", "no_minimum")}
            creations = {name: store.creating(name) for name in ("unique", "plain")}
            name = f"inc with a minimum against without, {kind}"
            results.append(await _compare(options, store, name, increments, _MINIMUM_BAR))
            name = f"create with a unique value against a plain one, {kind}"
            results.append(await _compare(options, store, name, creations, _UNIQUE_BAR))
        return Measured(results, await running.service.versions())


async def _compare(
    options: Options, store: _Store, name: str, writes: dict[str, _Write], bar: float
) -> Result:
    """Compare the median rates of two kinds of write, the constrained one first."""
    number, rounds = (_QUICK_WRITES, 5) if options.quick else (_WRITES, 9)
    measures = {side: partial(store.rate, write, number) for side, write in writes.items()}
    for measure in measures.values():  # preparations of the first write do not count
        await measure()
    rates = await medians(rounds, measures)
    options.note(f"{name}: {per_second(rates)}")
    constrained, free = writes
    return Result(name, "writes/s", rates[constrained], rates[free], bar)
