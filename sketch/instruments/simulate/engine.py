"""The simulation in virtual time: accesses start as scheduled, events happen in order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from time import process_time
from typing import Any, Final, NamedTuple

import numpy as np

from sketch.filter.bloom import BloomFilter
from sketch.instruments.simulate.latency import stream
from sketch.instruments.simulate.origin import Origin
from sketch.instruments.simulate.tally import SimulationCounts
from sketch.instruments.simulate.workload import Schedule, schedule
from sketch.instruments.simulate.world import World
from sketch.ttl.port import TtlEstimator

__all__ = ["Prepared", "SimulationRun", "simulate"]

_REFRESH_SHARE: Final = 0.8
"""Clients fetch a new filter after this share of Δ, so that it arrives in time."""

_NEVER: Final = float("-inf")


class _Copy(NamedTuple):
    """A copy of a record in a cache: its version, its end, when the origin was requested."""

    version: int
    end_s: float
    checked_s: float = _NEVER


class _Client:
    __slots__ = ("contains", "copies", "filter_s", "generated_s")

    def __init__(self) -> None:
        self.copies: dict[int, _Copy] = {}
        self.contains: Callable[[str], bool] = lambda _: True
        self.filter_s = self.generated_s = _NEVER


class _Read(NamedTuple):
    """A read that is under way: its client, its key, and when it began."""

    client: _Client
    key: int
    start_s: float
    revalidates: bool


class Simulation:
    """One run; `arrivals` are the times when those accesses that are writes reach the origin."""

    def __init__(
        self,
        world: World,
        accesses: Schedule,
        arrivals: list[float],
        estimator: TtlEstimator,
        random: np.random.Generator,
    ) -> None:
        self._world = world
        self._accesses = accesses
        self._arrivals = arrivals
        self.tally = SimulationCounts()
        self._names = [(f"records/{key}#all",) for key in range(accesses.records)]
        self._origin = Origin(world, self._names, estimator, self.tally)
        self._clients = [_Client() for _ in range(world.workload.clients)]
        self._copies: list[dict[int, _Copy]] = [{} for _ in world.layers]
        self._hops = [stream(layer.one_way, random) for layer in world.layers]
        self._hops.append(stream(world.origin_one_way, random))
        self._store, self._purge = stream(world.store, random), stream(world.purge, random)
        self._acknowledged: list[list[float]] = [[] for _ in range(accesses.records)]
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        # Breaks ties in the heap: events of one instant happen in the order of their scheduling.
        self._order = count()

    def run(self) -> SimulationCounts:
        self._start_clients()
        accesses, clients, events = self._accesses, self._clients, self._events
        lists = (accesses.begin_s.tolist(), accesses.key.tolist(), accesses.client.tolist())
        now = count_start_s = 0.0
        for number, (now, key, client, write) in enumerate(
            zip(*lists, accesses.write.tolist(), strict=True)
        ):
            # Never empty: refreshing clients, and the measurement, reschedule themselves.
            while events[0][0] <= now:
                at, _, handler, arguments = heappop(events)
                handler(at, *arguments)
            if number == accesses.first:
                self.tally.restart()
                count_start_s = now
            if write:
                self._at(self._arrivals[number], self._write, key)
            else:
                self._read(now, key, clients[client])
        self._finish()
        self.tally.virtual_s = now - count_start_s
        self.tally.operations = self._world.workload.operations
        return self.tally

    def _start_clients(self) -> None:
        period = self._world.bound_s * _REFRESH_SHARE
        for number, client in enumerate(self._clients):
            # Spread over a period, so that clients do not fetch at the same instant.
            self._at(period * number / len(self._clients), self._refresh, client)
        self._at(period, self._measure)

    def _finish(self) -> None:
        """Process all pending events, except those that repeat for ever."""
        endless = (self._refresh, self._measure)
        while self._events:
            at, _, handler, arguments = heappop(self._events)
            if handler not in endless:
                handler(at, *arguments)

    def _at(self, time: float, handler: Callable[..., None], *arguments: Any) -> None:
        heappush(self._events, (time, next(self._order), handler, arguments))

    def _one_way_s(self) -> float:
        """Draw the time from a client to the origin, or back."""
        time = 0.0
        for hop in self._hops:
            time += hop()
        return time

    def _read(self, now: float, key: int, client: _Client) -> None:
        self.tally.reads += 1
        copy = client.copies.get(key)
        revalidates = self._is_suspect(now, key, client)
        if copy is not None and self._may_use(now, copy, client, revalidates=revalidates):
            self.tally.client_hits += 1
            self._finish_read(now, copy.version, _Read(client, key, now, revalidates=False))
            return
        read = _Read(client, key, now, revalidates)
        if revalidates:
            self._at(now + self._one_way_s(), self._at_origin, read)
        else:
            self._at(now + self._hops[0](), self._at_layer, 0, read)

    def _may_use(self, now: float, copy: _Copy, client: _Client, *, revalidates: bool) -> bool:
        """Whether a client may use its own copy.

        A copy that was revalidated since the filter was generated is as fresh as the filter, and
        may be used as long.
        """
        if now >= copy.end_s:
            return False
        fresh = now - client.filter_s <= self._world.bound_s
        return not revalidates or (fresh and copy.checked_s >= client.generated_s)

    def _is_suspect(self, now: float, key: int, client: _Client) -> bool:
        if now - client.filter_s > self._world.bound_s:
            self.tally.old_filters += 1
            return True
        if not client.contains(self._names[key][0]):
            return False
        if not self._origin.was_in_filter(key, client.generated_s):
            self.tally.false_positives += 1
        return True

    def _at_layer(self, now: float, level: int, read: _Read) -> None:
        """A read reaches a shared cache, or the origin behind the last one."""
        if level == len(self._copies):
            self._at_origin(now, read)
            return
        copy = self._copies[level].get(read.key)
        if copy is not None and now < copy.end_s:
            self.tally.shared_hits += 1
            self._answer(now, level, copy, read)
        else:
            self._at(now + self._hops[level + 1](), self._at_layer, level + 1, read)

    def _at_origin(self, now: float, read: _Read) -> None:
        version, end_s = self._origin.read(now, read.key)
        if read.revalidates:
            self.tally.revalidations += 1
            cached = read.client.copies.get(read.key)
            self.tally.needless += cached is not None and cached.version == version
        else:
            self.tally.misses += 1
        copy = _Copy(version, end_s, read.start_s)
        self._answer(now + self._store(), len(self._copies), copy, read)

    def _answer(self, now: float, level: int, copy: _Copy, read: _Read) -> None:
        self._at(now + self._hops[level](), self._arrive, level - 1, copy, read)

    def _arrive(self, now: float, level: int, copy: _Copy, read: _Read) -> None:
        """A response reaches a cache, which stores it, or the client."""
        fresh = now < copy.end_s
        if level >= 0:
            if fresh:
                self._copies[level][read.key] = _Copy(copy.version, copy.end_s)
            self._answer(now, level, copy, read)
            return
        if fresh and self._world.client_caches:
            read.client.copies[read.key] = copy
        self._finish_read(now, copy.version, read)

    def _finish_read(self, now: float, version: int, read: _Read) -> None:
        self.tally.latencies.append(now - read.start_s)
        acknowledged = self._acknowledged[read.key]
        if version >= len(acknowledged):
            return
        overwritten_s = acknowledged[version]
        if overwritten_s < read.start_s:
            self.tally.stale += 1
            age_s = read.start_s - overwritten_s
            self.tally.stalest_s = max(self.tally.stalest_s, age_s)
            self.tally.beyond_bound += age_s > self._world.bound_s

    def _write(self, now: float, key: int) -> None:
        self.tally.writes += 1
        token, is_cached = self._origin.begin(now, key)
        self._at(now + self._store(), self._finish_write, key, token, is_cached)

    def _finish_write(self, now: float, key: int, token: str, is_cached: bool) -> None:
        self._origin.end(now, key, token)
        self._acknowledged[key].append(now)
        if is_cached:
            for layer, copies in zip(self._world.layers, self._copies, strict=True):
                if layer.purged:
                    self._at(now + self._purge(), self._forget, copies, key)

    def _forget(self, _: float, copies: dict[int, _Copy], key: int) -> None:
        copies.pop(key, None)

    def _refresh(self, now: float, client: _Client) -> None:
        self._at(now + self._one_way_s(), self._send_filter, client, now)
        self._at(now + self._world.bound_s * _REFRESH_SHARE, self._refresh, client)

    def _send_filter(self, now: float, client: _Client, sent_s: float) -> None:
        filter_ = self._origin.filter(now)
        self._at(now + self._one_way_s(), self._receive_filter, client, (sent_s, now), filter_)

    def _receive_filter(
        self, _: float, client: _Client, times_s: tuple[float, float], filter_: BloomFilter
    ) -> None:
        if times_s[0] > client.filter_s:
            client.filter_s, client.generated_s = times_s
            client.contains = filter_.contains

    def _measure(self, now: float) -> None:
        self._origin.measure(now)
        self._at(now + self._world.bound_s * _REFRESH_SHARE, self._measure)


Estimators = Callable[["Prepared"], TtlEstimator]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A world with randomly drawn accesses and arrivals of writes at the origin."""

    world: World
    accesses: Schedule
    arrivals_s: list[float]

    @classmethod
    def of(cls, world: World) -> Prepared:
        random = np.random.default_rng(world.seed)
        accesses = schedule(world.workload, random)
        hops = [*(layer.one_way for layer in world.layers), world.origin_one_way]
        arrivals = accesses.begin_s + sum(hop.sample(random, len(accesses.key)) for hop in hops)
        return cls(world, accesses, arrivals.tolist())

    def writes_s(self) -> Mapping[str, Sequence[float]]:
        """Return when the writes of each key reach the origin, in order."""
        times: defaultdict[str, list[float]] = defaultdict(list)
        rows = zip(
            self.arrivals_s, self.accesses.key.tolist(), self.accesses.write.tolist(), strict=True
        )
        for time, key, write in rows:
            if write:
                times[f"records/{key}#all"].append(time)
        return {key: sorted(of_key) for key, of_key in times.items()}


@dataclass(frozen=True, slots=True)
class SimulationRun:
    """The outcome of one estimator; `operations` include those of the warm-up."""

    tally: SimulationCounts
    estimator: TtlEstimator
    operations: int
    processor_s: float

    @property
    def operations_per_s(self) -> float:
        """Simulated operations in a second of processor time."""
        return self.operations / self.processor_s


def simulate(prepared: Prepared, estimators: Estimators) -> SimulationRun:
    estimator = estimators(prepared)
    # A new generator: a run does not depend on the runs before it.
    random = np.random.default_rng((prepared.world.seed, 1))
    engine = Simulation(prepared.world, prepared.accesses, prepared.arrivals_s, estimator, random)
    started = process_time()
    tally = engine.run()
    seconds = process_time() - started
    return SimulationRun(tally, estimator, prepared.accesses.operations, seconds)
