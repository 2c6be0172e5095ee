"""Message flows: batches against single messages, the computed wait, and the cost of the queue.

See docs/papers/mpo.md. The flow of orders looks up the credit of one of ten customers (selectivity
0.1) and writes the order to PostgreSQL; credits are also there, or with an HTTP service.
Instance-based execution is the same worker with the same operators on the same queue, but every
partition has one message. The speedup of batches is compared with (a + b) k' / (a + b k'), with the
costs a and b of single messages that the worker itself measured. One worker executes; messages
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
"""The rate of arrivals, as a share of the rate of batches, where not all messages are queued."""

_FACTORS: Final = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
"""The waits of the sweep, as factors of the computed wait."""

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
"""Where credits are: in a class, or with a service in a separate process."""

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
    """The flow of orders, on the data plane of a service; ids of orders are unique."""

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

    async def run_queued(self, lookup: str, messages: int, batch: int) -> FlowRun:
        """Execute queued messages, in partitions of `batch` messages, as fast as possible."""
        rows = [
            (f"{number // (batch * _CUSTOMERS)}:{number % _CUSTOMERS}", number % _CUSTOMERS)
            for number in range(messages)
        ]
        return await self.run(self.flow(lookup), rows, 0.0)

    async def run_arriving(
        self, flow: Flow, arrivals: Sequence[float], wait_s: float | None = None
    ) -> FlowRun:
        customers = [self.chance.randrange(_CUSTOMERS) for _ in arrivals]
        return await self.run(flow, [(f"{c}", c) for c in customers], wait_s, arrivals)


class _SteppingClock(SystemClock):
    """A clock that advances only when it is set, so that a rate is measured at once."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


async def run(options: Options) -> Measured:
    results = [_computation_cost()]
    async with shared_service() as running:
        running.require("redis", "postgresql")
        service = running.service
        await service.set_schema(_DATABASE, _SCHEMA)
        names = [f"c{number}" for number in range(_CUSTOMERS)]
        await service.create(
            _DATABASE, {"credits": {name: {"customer": name, "amount": 1} for name in names}}
        )
        async with Redis.from_url(running.servers["redis"].url) as redis:
            results += [await _enqueue_cost(options, redis)]
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
                results.append(await _share_beyond(options, orders, rate, kind))
            await services.close()
        return Measured(results, await service.versions())


async def _speedup(options: Options, orders: _Orders, lookup: str) -> list[Result]:
    messages, rounds = (200, 3) if options.quick else (600, 9)
    runs = await interleaved(
        rounds,
        {
            "single": partial(orders.run_queued, lookup, messages, 1),
            "batches": partial(orders.run_queued, lookup, messages, _BATCH),
        },
    )
    rates = {name: median(sample.rate for sample in samples) for name, samples in runs.items()}
    costs = Costs(
        median(sample.costs.constant_s for sample in runs["single"]),
        median(sample.costs.linear_s for sample in runs["single"]),
    )
    options.note(
        f"lookups by {lookup}, single messages: {rates['single']:,.0f}/s,"
        f" a {costs.constant_s * 1e3:.2f} ms, b {costs.linear_s * 1e3:.2f} ms;"
        f" batches of {_BATCH}: {rates['batches']:,.0f}/s"
    )
    name = f"orders in batches of {_BATCH} against single messages, lookups by {lookup}"
    speedup, predicted = rates["batches"] / rates["single"], costs.speedup(_BATCH)
    return [
        Result(name, "messages/s", rates["batches"], rates["single"]),
        Result(f"speedup of batches, against the predicted, lookups by {lookup}", "times", speedup,
               predicted, _BARS["speedup"]),
    ]  # fmt: skip


async def _sweep(options: Options, orders: _Orders, rate: float) -> Result:
    """Compare the mean latency at the computed wait with the best of fixed ones.

    Up to the computed wait batches are executed back to back, so these waits are equally good, and
    the best of the sweep has the luckiest runs: with five rounds it is below the others by about
    half the noise of one run, and with `_SWEEPS` by a third.
    """
    flow = orders.flow()
    arrivals = _uniform(rate, 2.0 if options.quick else 5.0)
    first = await orders.run_arriving(flow, arrivals)
    wait_s = median(report["wait_s"] or 0.0 for report in first.reports)

    def latency(wait_s: float | None) -> Callable[[], Awaitable[float]]:
        async def measure() -> float:
            return fmean((await orders.run_arriving(flow, arrivals, wait_s)).latencies)

        return measure

    sweep = {f"{factor:g}": latency(factor * wait_s) for factor in _FACTORS}
    latencies = await medians(1 if options.quick else _SWEEPS, {"computed": latency(None), **sweep})
    computed = latencies.pop("computed")
    options.note(
        f"mean latency at {rate:,.0f} messages/s: computed wait ({wait_s * 1e3:.1f} ms)"
        f" {computed * 1e3:.1f} ms; "
        + ", ".join(
            f"{factor} of it {latency_s * 1e3:.1f} ms" for factor, latency_s in latencies.items()
        )
    )
    return Result(
        "mean latency at the computed wait, against the best wait of a sweep", "ms",
        computed * 1e3, min(latencies.values()) * 1e3, _BARS["wait"], small_is_good=True,
    )  # fmt: skip


async def _share_beyond(options: Options, orders: _Orders, rate: float, kind: str) -> Result:
    """Measure the share beyond the bound at the longest valid wait."""
    seconds = 4.0 if options.quick else 30.0
    arrivals = _uniform(rate, seconds) if kind == "uniform" else _poisson(rate, seconds, orders)
    flow_run = await orders.run_arriving(orders.flow(objective="work"), arrivals)
    share = flow_run.late_share(_BOUND_S)
    options.note(f"{kind} arrivals, the longest wait: {share:.4f} beyond {_BOUND_S:g} s")
    name = f"messages beyond a bound of {_BOUND_S:g} s at the longest wait, {kind} arrivals"
    return Result(name, "share", share, small_is_good=True)


def _uniform(rate: float, seconds: float) -> list[float]:
    return [number / rate for number in range(int(rate * seconds))]


def _poisson(rate: float, seconds: float, orders: _Orders) -> list[float]:
    gaps = (orders.chance.expovariate(rate) for _ in range(int(rate * seconds)))
    return list(accumulate(gaps))


def _computation_cost() -> Result:
    """Measure how long the waiting time of a plan of 25 operators takes."""
    attributes = {"op": "receive", "attributes": {"name": "string"}}
    operators = [
        {"op": "assign", "to": f"n{number}", "value": 1} for number in range(_OPERATORS - 1)
    ]
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


async def _enqueue_cost(options: Options, redis: Redis) -> Result:
    """Measure the queue against RPUSH of the same messages, one by one in one pipeline."""
    messages = [
        NewMessage(uuid4().hex, f"{number % _CUSTOMERS:032x}", b'{"number":"m","name":"c"}')
        for number in range(MAX_QUEUED)
    ]
    measures = {
        "enqueue": partial(_enqueue, redis, messages),
        "bare": partial(_push, redis, messages),
    }
    await _enqueue(redis, messages)
    times = await medians(5 if options.quick else 15, measures)
    options.note(f"enqueues {times['enqueue']:.3f} s, RPUSH {times['bare']:.3f} s")
    name = f"{MAX_QUEUED:,} messages queued one by one in a pipeline, against RPUSH"
    return Result(name, "s", times["enqueue"], times["bare"], _BARS["enqueue"], small_is_good=True)


async def _enqueue(redis: Redis, messages: Sequence[NewMessage]) -> float:
    key, queue = FlowKey("bench", uuid4().hex), RedisMessageQueue(redis)
    await queue.put_flow(key, {}, _BOUND_S, 1_000_000)
    pipeline = redis.pipeline(transaction=False)
    pipelined = RedisMessageQueue(pipeline)
    started = perf_counter()
    for message in messages:
        await pipelined.enqueue(key, [message], None)
    replies = await pipeline.execute()
    elapsed_s = perf_counter() - started
    assert replies == [1] * len(messages)
    await queue.drop_flow(key)
    return elapsed_s


async def _push(redis: Redis, messages: Sequence[NewMessage]) -> float:
    name, pipeline = f"bench:{uuid4().hex}", redis.pipeline(transaction=False)
    started = perf_counter()
    for message in messages:
        pipeline.rpush(name, message.body)
    await pipeline.execute()
    elapsed_s = perf_counter() - started
    await redis.delete(name)
    return elapsed_s
