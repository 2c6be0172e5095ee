"""Calibration: a short synthetic workload that gives a new system its first metrics.

It uses the store port like any other call, in a scratch fragment that is dropped at the end.
Latencies are those of one call at a time; throughput is that of many concurrent tasks. Medians
exclude single slow moments (a connection opened, a page faulted in).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from statistics import median
from uuid import uuid4

from mediator.model.operators import Operator, OperatorCall
from mediator.schema.annotations import Metric
from mediator.schema.tree import MAIN_GROUP, SCRATCH_DATABASE, Field
from mediator.schema.types import FieldType, Values
from mediator.stores.port import (
    Fragment,
    Read,
    Status,
    Store,
    StoreError,
    StoreRefused,
    Write,
    WriteKind,
    WriteResult,
)

__all__ = ["Calibration", "calibrate"]

_OBJECTS = 64
_MIN_CALLS = 8
_SLICES = 5
_PAYLOAD = "x" * 100

_Call = Callable[[int], Awaitable[None]]


@dataclass(frozen=True)
class Calibration:
    """Medians of latencies (seconds) and throughputs (operations/s), and availabilities.

    `p99` are those of the latencies, `samples` the calls made for each operation.
    """

    metrics: dict[Metric, float]
    p99: dict[Metric, float]
    samples: dict[str, int]


async def calibrate(store: Store, *, budget_s: float = 2.0, concurrency: int = 16) -> Calibration:
    """Measure an open store by creates, reads and single increments.

    That takes `budget_s` seconds, plus preparing and dropping. `concurrency` is the number of
    concurrent tasks while throughput is measured.

    Raises:
        StoreError: The store does not answer.
    """
    name = f"calibration_{uuid4().hex[:12]}"
    fields = {
        "payload": Field("payload", FieldType.STRING),
        "counter": Field("counter", FieldType.INTEGER),
    }
    groups = {MAIN_GROUP: tuple(fields)}
    fragment = Fragment(store.config.name, SCRATCH_DATABASE, name, fields, groups)
    await store.prepare(fragment)
    try:
        _check(await store.write([_create(fragment, number) for number in range(_OBJECTS)]))
        # Reads and writes are each measured one at a time, and then concurrently.
        share = budget_s / 4
        reads = await _measure(_reader(store, fragment), share, concurrency)
        writes = await _measure(_writer(store, fragment), share, concurrency)
    finally:
        await store.drop(fragment)
    return _calibration(reads, writes)


def _create(fragment: Fragment, number: int) -> Write:
    values: Values = {"payload": _PAYLOAD, "counter": 0}
    groups = (MAIN_GROUP,)
    return Write(fragment, str(number), WriteKind.CREATE, uuid4().hex, groups, values=values)


def _check(results: Sequence[WriteResult]) -> None:
    """Refuse writes that had no effect: they are fast, and measure nothing."""
    if any(result.status is not Status.APPLIED for result in results):
        raise StoreRefused("a write to the scratch class was not applied")


def _reader(store: Store, fragment: Fragment) -> _Call:
    async def read(number: int) -> None:
        (record,) = await store.read([Read(fragment, str(number % _OBJECTS))])
        if record is None:
            raise StoreRefused("a created record is missing")

    return read


def _writer(store: Store, fragment: Fragment) -> _Call:
    increment = (OperatorCall("counter", Operator.INC, 1),)

    async def write(number: int) -> None:
        id_, operation = str(number % _OBJECTS), uuid4().hex
        groups = (MAIN_GROUP,)
        kind = WriteKind.UPDATE
        call = Write(fragment, id_, kind, operation, groups, operators=increment)
        _check(await store.write([call]))

    return write


class _CallSample:
    def __init__(self, call: _Call) -> None:
        self._call = call
        self.latencies: list[float] = []
        self.failures: list[StoreError] = []

    async def run(self, end: float, number: int = 0, min_calls: int = 1) -> None:
        """Make calls one at a time until a time, at least `min_calls`."""
        started = time.perf_counter()
        while True:
            try:
                await self._call(number)
            except StoreError as failure:
                self.failures.append(failure)
                now = time.perf_counter()
            else:
                now = time.perf_counter()
                self.latencies.append(now - started)
            if now >= end and len(self.latencies) + len(self.failures) >= min_calls:
                return
            started, number = now, number + 1


@dataclass(frozen=True)
class _Measurement:
    """One kind of call, made one at a time, and then concurrently in several slices of time."""

    sequential: _CallSample
    concurrent: list[_CallSample]
    rates: list[float]

    @property
    def calls(self) -> int:
        return self._succeeded + sum(len(sample.failures) for sample in self._samples)

    @property
    def availability(self) -> float:
        return self._succeeded / self.calls

    @property
    def p99(self) -> float:
        """The 99th percentile of the latencies of calls made one at a time, in seconds."""
        ordered = sorted(self.sequential.latencies)
        return ordered[int(0.99 * (len(ordered) - 1))]

    @property
    def _samples(self) -> list[_CallSample]:
        return [self.sequential, *self.concurrent]

    @property
    def _succeeded(self) -> int:
        return sum(len(sample.latencies) for sample in self._samples)


async def _measure(call: _Call, seconds: float, concurrency: int) -> _Measurement:
    """Make calls one at a time for `seconds`, then concurrently for as long."""
    await _CallSample(call).run(0)  # the first call opens a connection, and does not count
    sequential = _CallSample(call)
    await sequential.run(time.perf_counter() + seconds, min_calls=_MIN_CALLS)
    if not sequential.latencies:
        raise sequential.failures[-1]
    concurrent = [_CallSample(call) for _ in range(_SLICES)]
    rates = [await _rate(sample, seconds / _SLICES, concurrency) for sample in concurrent]
    return _Measurement(sequential, concurrent, rates)


async def _rate(sample: _CallSample, seconds: float, concurrency: int) -> float:
    started = time.perf_counter()
    tasks = (sample.run(started + seconds, number) for number in range(concurrency))
    await asyncio.gather(*tasks)
    return len(sample.latencies) / (time.perf_counter() - started)


def _calibration(reads: _Measurement, writes: _Measurement) -> Calibration:
    return Calibration(
        metrics={
            Metric.READ_LATENCY: median(reads.sequential.latencies),
            Metric.READ_THROUGHPUT: median(reads.rates),
            Metric.READ_AVAILABILITY: reads.availability,
            Metric.WRITE_LATENCY: median(writes.sequential.latencies),
            Metric.WRITE_THROUGHPUT: median(writes.rates),
            Metric.WRITE_AVAILABILITY: writes.availability,
        },
        p99={Metric.READ_LATENCY: reads.p99, Metric.WRITE_LATENCY: writes.p99},
        samples={"read": reads.calls, "write": writes.calls},
    )
