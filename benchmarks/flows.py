"""Message flows: batches against single messages, the wait that is computed, and the queue's cost.

See docs/papers/mpo.md. The flow of orders looks up the credit of one of ten customers (selectivity
0.1) and writes the order to PostgreSQL; credits are there, too, or with an HTTP service.
Instance-based execution is the same worker with the same operators on the same queue, but every
partition has one message. The speedup of batches is held against (a + b) k' / (a + b k'), with the
costs a and b that the worker itself measured of single messages. One worker executes; messages
arrive from the same process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from random import Random
from statistics import fmean, median
from time import perf_counter
from typing import Any, Final
from uuid import uuid4

from redis.asyncio import Redis

from app.commands.demo.rounds import interleaved
from benchmarks.harness.delay import listening_process
from benchmarks.harness.flow_load import FlowRun, run_flow, serve_credits
from benchmarks.harness.report import Measured, Options, Result, medians
from benchmarks.harness.shared_servers import SharedService, shared_service
from mediator.base.clock import SystemClock
from mediator.base.waiting_time import Costs
from mediator.coordination.message_queue import RedisMessageQueue
from mediator.flows.http_hosts import HttpHosts
from mediator.flows.http_services import HttpServices
from mediator.flows.invocations import PlanInvoker
from mediator.flows.measurement import Measurement
from mediator.flows.parser import Flow, parse_flow
from mediator.flows.queue import MAX_QUEUED, Batch, FlowKey, NewMessage
from mediator.schema.parse import parse_schema

__all__ = ["run"]

_DATABASE: Final = "shop"
_CUSTOMERS: Final = 10
_BATCH: Final = 10
"""Messages of a partition (k'): the paper's 100 messages with a selectivity of 0.1."""

_BOUND_S: Final = 1.0
_LOAD: Final = 0.6
"""Of the rate of batches: messages arrive that often, when they are not executed at once."""

_FACTORS: Final = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
"""Of the computed wait: those that are swept."""

_SWEEPS: Final = 11
_OPERATORS: Final = 25
_BARS: Final[Mapping[str, float]] = {"speedup": 0.9, "wait": 1.1, "compute_ms": 1.0, "enqueue": 5.0}

_SCHEMA: Final[Mapping[str, Any]] = {
    "default": {"system": "postgres"},
    "classes": {
        "credits": {
            "cache": {"visibility": "none"},
            "fields": {
                "customer": {"type": "string", "index": True},
                "amount": {"type": "integer"},
            },
        },
        "orders": {"fields": {"customer": {"type": "string"}, "credit": {"type": "integer"}}},
    },
}
_LOOKUPS: Final = ("PostgreSQL", "HTTP")
"""Where credits are: in a class, or with a service in a process of its own."""

_PLAN: Final[list[dict[str, Any]]] = [
    {"op": "receive", "attributes": {"number": "string", "name": "string"}},
    {"op": "assign", "to": "wanted", "value": {"$": "/name"}},
    {
        "op": "invoke",
        "query": {"class": "credits", "filter": {"eq": ["customer", {"$": "/wanted"}]}},
        "to": "credits",
    },
    {"op": "join", "with": "credits", "on": {"customer": {"$": "/name"}}, "to": "credit"},
    {
        "op": "invoke",
        "write": {
            "class": "orders",
            "id": {"$": "/number"},
            "body": {"customer": {"$": "/name"}, "credit": {"$": "/credit/amount"}},
        },
    },
]


@dataclass
class _Orders:
    """The flow of orders, on the data plane of a service; ids of orders never come again."""

    running: SharedService
    queue: RedisMessageQueue
    chance: Random
    services: HttpServices
    port: int
    _sent: int = field(default=0, init=False)

    def flow(self, lookup: str = _LOOKUPS[0], **members: Any) -> Flow:
        schema = self.running.plane.model.databases[_DATABASE].schema
        plan = list(_PLAN)
        if lookup == "HTTP":
            url = f"http://127.0.0.1:{self.port}/customers/{{wanted}}"
            plan[2] = {"op": "invoke", "http": {"method": "GET", "url": url}, "to": "credits"}
        return parse_flow({"plan": plan, "latency_s": _BOUND_S, **members}, schema)

    async def run(
        self,
        flow: Flow,
        messages: Sequence[tuple[str, int]],
        wait_s: float | None,
        arrivals: Sequence[float] | None = None,
    ) -> FlowRun:
        """Execute messages, each given by its partition and its customer."""
        self._sent += len(messages)
        bodies = [
            (partition, {"number": f"{self._sent}-{number}", "name": f"c{customer}"})
            for number, (partition, customer) in enumerate(messages)
        ]
        invoker = PlanInvoker(self.running.plane, _DATABASE, self.services)
        return await run_flow(flow, invoker, FlowRun(self.queue, wait_s), bodies, arrivals)

    async def drained(self, lookup: str, messages: int, batch: int) -> FlowRun:
        """Execute messages that all wait, in partitions of so many, as fast as possible."""
        rows = [
            (f"{number // (batch * _CUSTOMERS)}:{number % _CUSTOMERS}", number % _CUSTOMERS)
            for number in range(messages)
        ]
        return await self.run(self.flow(lookup), rows, 0.0)

    async def arriving(
        self, flow: Flow, arrivals: Sequence[float], wait_s: float | None = None
    ) -> FlowRun:
        customers = [self.chance.randrange(_CUSTOMERS) for _ in arrivals]
        return await self.run(flow, [(f"{c}", c) for c in customers], wait_s, arrivals)


class _SteppingClock(SystemClock):
    """A clock that goes on only when it is set, so that a rate is measured at once."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


async def run(options: Options) -> Measured:
    results = [_computation()]
    async with shared_service() as running:
        running.require("redis", "postgresql")
        service = running.service
        await service.set_schema(_DATABASE, _SCHEMA)
        names = [f"c{number}" for number in range(_CUSTOMERS)]
        await service.create(
            _DATABASE, {"credits": {name: {"customer": name, "amount": 1} for name in names}}
        )
        async with Redis.from_url(running.servers["redis"].url) as redis:
            results += [await _enqueuing(options, redis)]
            queue, chance = RedisMessageQueue(redis), Random(options.seed)
            with listening_process(serve_credits) as port:
                hosts = HttpHosts(frozenset({("127.0.0.1", port)}), private=True)
                services = HttpServices(hosts)
                orders = _Orders(running, queue, chance, services, port)
                for lookup in _LOOKUPS:
                    results += await _speedup(options, orders, lookup)
            rate = _LOAD * results[2].figure
            results.append(await _sweep(options, orders, rate))
            for kind in ("uniform", "Poisson"):
                results.append(await _beyond(options, orders, rate, kind))
            await services.close()
        return Measured(results, await service.versions())


async def _speedup(options: Options, orders: _Orders, lookup: str) -> list[Result]:
    messages, rounds = (200, 3) if options.quick else (600, 9)
    runs = await interleaved(
        rounds,
        {
            "single": partial(orders.drained, lookup, messages, 1),
            "batches": partial(orders.drained, lookup, messages, _BATCH),
        },
    )
    rates = {name: median(each.rate for each in of) for name, of in runs.items()}
    costs = Costs(
        median(each.costs.constant_s for each in runs["single"]),
        median(each.costs.linear_s for each in runs["single"]),
    )
    options.note(
        f"lookups by {lookup}, single messages: {rates['single']:,.0f}/s,"
        f" a {costs.constant_s * 1e3:.2f} ms, b {costs.linear_s * 1e3:.2f} ms;"
        f" batches of {_BATCH}: {rates['batches']:,.0f}/s"
    )
    name = f"orders in batches of {_BATCH} against single messages, lookups by {lookup}"
    reached, predicted = rates["batches"] / rates["single"], costs.speedup(_BATCH)
    return [
        Result(name, "messages/s", rates["batches"], rates["single"]),
        Result(f"speedup of batches, against the predicted, lookups by {lookup}", "times", reached,
               predicted, _BARS["speedup"]),
    ]  # fmt: skip


async def _sweep(options: Options, orders: _Orders, rate: float) -> Result:
    """Compare the mean latency at the computed wait with the best of fixed ones.

    Up to the computed wait batches are executed back to back, so these waits are equally good, and
    the best of the sweep is the one with the luckiest runs: it is about half the noise of one run
    below the others with five rounds, and a third with `_SWEEPS`.
    """
    flow = orders.flow()
    arrivals = _uniform(rate, 2.0 if options.quick else 5.0)
    first = await orders.arriving(flow, arrivals)
    wait_s = median(report["wait_s"] or 0.0 for report in first.reports)

    def latency(wait_s: float | None) -> Callable[[], Awaitable[float]]:
        async def measure() -> float:
            return fmean((await orders.arriving(flow, arrivals, wait_s)).latencies)

        return measure

    swept = {f"{factor:g}": latency(factor * wait_s) for factor in _FACTORS}
    found = await medians(1 if options.quick else _SWEEPS, {"computed": latency(None), **swept})
    computed = found.pop("computed")
    options.note(
        f"mean latency at {rate:,.0f} messages/s: computed wait ({wait_s * 1e3:.1f} ms)"
        f" {computed * 1e3:.1f} ms; "
        + ", ".join(f"{factor} of it {each * 1e3:.1f} ms" for factor, each in found.items())
    )
    return Result(
        "mean latency at the computed wait, against the best wait of a sweep", "ms",
        computed * 1e3, min(found.values()) * 1e3, _BARS["wait"], small_is_good=True,
    )  # fmt: skip


async def _beyond(options: Options, orders: _Orders, rate: float, kind: str) -> Result:
    """Measure the share beyond the bound at the longest valid wait."""
    seconds = 4.0 if options.quick else 30.0
    arrivals = _uniform(rate, seconds) if kind == "uniform" else _poisson(rate, seconds, orders)
    done = await orders.arriving(orders.flow(objective="work"), arrivals)
    share = done.late(_BOUND_S)
    options.note(f"{kind} arrivals, the longest wait: {share:.4f} beyond {_BOUND_S:g} s")
    name = f"messages beyond a bound of {_BOUND_S:g} s at the longest wait, {kind} arrivals"
    return Result(name, "share", share, small_is_good=True)


def _uniform(rate: float, seconds: float) -> list[float]:
    return [number / rate for number in range(int(rate * seconds))]


def _poisson(rate: float, seconds: float, orders: _Orders) -> list[float]:
    gaps = (orders.chance.expovariate(rate) for _ in range(int(rate * seconds)))
    return list(accumulate(gaps))


def _computation() -> Result:
    """Measure how long the waiting time of a plan of 25 operators takes."""
    attributes = {"op": "receive", "attributes": {"name": "string"}}
    operators = [{"op": "assign", "to": f"n{each}", "value": 1} for each in range(_OPERATORS - 1)]
    document = {"plan": [attributes, *operators], "latency_s": _BOUND_S}
    flow = parse_flow(document, parse_schema(_DATABASE, dict(_SCHEMA)))
    clock, times = _SteppingClock(), []
    measurement = Measurement(flow, clock)
    for number in range(1_000):
        clock.seconds += 1.0
        measurement.add_batch(Batch(number, 1, 10, number * 10, 0, False, ()))
        started = perf_counter()
        measurement.add_execution(0.01, 0.005, 10)
        times.append(perf_counter() - started)
    assert measurement.waiting is not None
    name = f"computation of the waiting time, plan of {_OPERATORS} operators"
    figure = median(times) * 1e3
    return Result(name, "ms", figure, bar=_BARS["compute_ms"], small_is_good=True)


async def _enqueuing(options: Options, redis: Redis) -> Result:
    """Measure the queue against RPUSH of the same messages, one by one in one pipeline."""
    messages = [
        NewMessage(uuid4().hex, f"{number % _CUSTOMERS:032x}", b'{"number":"m","name":"c"}')
        for number in range(MAX_QUEUED)
    ]
    measures = {
        "enqueue": partial(_enqueued, redis, messages),
        "bare": partial(_pushed, redis, messages),
    }
    await _enqueued(redis, messages)
    times = await medians(5 if options.quick else 15, measures)
    options.note(f"enqueues {times['enqueue']:.3f} s, RPUSH {times['bare']:.3f} s")
    name = f"{MAX_QUEUED:,} messages queued one by one in a pipeline, against RPUSH"
    return Result(name, "s", times["enqueue"], times["bare"], _BARS["enqueue"], small_is_good=True)


async def _enqueued(redis: Redis, messages: Sequence[NewMessage]) -> float:
    key, queue = FlowKey("bench", uuid4().hex), RedisMessageQueue(redis)
    await queue.put_flow(key, {}, _BOUND_S, 1_000_000)
    pipeline = redis.pipeline(transaction=False)
    pipelined = RedisMessageQueue(pipeline)
    started = perf_counter()
    for message in messages:
        await pipelined.enqueue(key, [message], None)
    replies = await pipeline.execute()
    took_s = perf_counter() - started
    assert replies == [1] * len(messages)
    await queue.drop_flow(key)
    return took_s


async def _pushed(redis: Redis, messages: Sequence[NewMessage]) -> float:
    name, pipeline = f"bench:{uuid4().hex}", redis.pipeline(transaction=False)
    started = perf_counter()
    for message in messages:
        pipeline.rpush(name, message.body)
    await pipeline.execute()
    took_s = perf_counter() - started
    await redis.delete(name)
    return took_s
