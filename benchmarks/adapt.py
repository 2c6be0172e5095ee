"""Live rebalancing: recovery from a skewed start and from changed rates, and the cost of moving.

The workload is D-CAPE's: (A ⋈ B) ⋈ C, Poisson arrivals, 100 partitions of each stream, seven
workers, one of which starts with half of the load; at 30 s B and C fall to a twentieth. Rates are
two fifths of the paper's 100 tuples/s, and windows ten seconds. A worker's machine is simulated: it
does 2.5 times the work of an even share in a second of event time, where work is rows stored or
joined and messages. States, queues and protocols are the real ones, and figures do not depend on
the machine. Rebalancing starts when the first window is full. A run counts only if it has each
result of the run without relocations exactly once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from app.commands.demo.failed import Failed
from benchmarks.harness.paced_cluster import TICK_S, Arrival, PacedCluster, arrivals
from benchmarks.harness.report import Measured, Options, Result
from mediator.relocation.cluster import make_cluster, worker_address
from mediator.relocation.manager import Relocation
from mediator.relocation.messages import STRATEGIES, Relocate, Strategy
from mediator.standing.model import Workload
from mediator.standing.parser import parse_workload

__all__ = ["run"]

_WORKERS: Final = 7
_PARTITIONS: Final = 100
_RATE: Final = 40.0
_REDUCED_RATE: Final = _RATE / 20
_KEYS: Final = range(120)
_WINDOW_S: Final = 10.0
_CHANGE_S: Final = 30.0
_UNTIL_S: Final = 70.0
_CAPACITY: Final = 2.5
"""The capacity of a worker, in even shares of the initial load."""

_AMPLE_CAPACITY: Final = 1e9
_MAX_DELAY_S: Final = 1.0
"""After recovery no tuple waits longer for its worker."""

_BAR_WINDOWS: Final = 2.0
_EVERYTHING: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class _Adaptation:
    """The means of a cluster against its load."""

    name: str
    strategy: Strategy | None
    adaptive: bool


_STATIC: Final = _Adaptation("static", None, adaptive=False)
_ADAPTATIONS: Final = (
    _Adaptation("plans change", None, adaptive=True),
    _Adaptation("PTLB", "ptlb", adaptive=False),
    _Adaptation("MSLB", "mslb", adaptive=False),
    _Adaptation("PTLB, plans change", "ptlb", adaptive=True),
    _Adaptation("MSLB, plans change", "mslb", adaptive=True),
    _Adaptation("auto, plans change", "auto", adaptive=True),
)
_QUICK: Final = (_ADAPTATIONS[-1],)


async def run(options: Options) -> Measured:
    return Measured(await asyncio.to_thread(lambda: list(_results(options))))


def _results(options: Options) -> Iterator[Result]:
    yield from _recovery(options)
    for window_s in (5.0,) if options.quick else (5.0, 10.0, 20.0):
        yield from _durations(options, window_s)
    yield from _costs(options)


def _recovery(options: Options) -> Iterator[Result]:
    phases = [(_CHANGE_S, _rates(_RATE)), (_UNTIL_S, _rates(_REDUCED_RATE))]
    arriving = list(arrivals(phases, _KEYS, Random(options.seed)))
    static = _simulate(arriving, _STATIC)
    baseline = _recovery_windows(static)
    name = f"{_STATIC.name}: recovery, which takes longer than two windows"
    yield Result(name, "windows", baseline, bar=_BAR_WINDOWS)
    for adaptation in _QUICK if options.quick else _ADAPTATIONS:
        cluster = _simulate(arriving, adaptation)
        _check(cluster, static)
        windows = _recovery_windows(cluster)
        moves = [at for at in cluster.manager.relocations.values() if at.phase == "done"]
        options.note(
            f"{adaptation.name}: {len(moves)} relocations, recovered after {windows:.1f} windows"
        )
        is_claim = adaptation is _ADAPTATIONS[-1]
        bar = {"bar": _BAR_WINDOWS} if is_claim else {"baseline": baseline}
        yield Result(f"{adaptation.name}: recovery", "windows", windows, **bar, small_is_good=True)
        work, before = sum(cluster.spent.values()), sum(static.spent.values())
        yield Result(f"{adaptation.name}: work", "rows", work, before, small_is_good=True)


def _durations(options: Options, window_s: float) -> Iterator[Result]:
    """Move half of a worker's groups to one with another plan, without any lack of time."""
    arriving = _steady(options.seed, window_s)
    for strategy in ("ptlb", "mslb"):
        cluster, relocation, took_s = _run_with_move(arriving, window_s, strategy)
        name = f"{strategy.upper()}, window of {window_s:g} s: duration"
        bar = 1.1 if strategy == "ptlb" else 0.1
        yield Result(name, "windows", took_s / window_s, bar=bar, small_is_good=True)
        if strategy == "mslb":
            for counter in ("moved", "discarded", "recomputed"):
                count = getattr(relocation, counter)
                yield Result(f"MSLB, window of {window_s:g} s: rows {counter}", "rows", count)
        duplicates = sum(count - 1 for count in cluster.identified().values())
        yield Result(f"{strategy.upper()}, window of {window_s:g} s: duplicates", "1", duplicates)


def _costs(options: Options) -> Iterator[Result]:
    """Compare the work that the protocols add, at steady rates and when these have just fallen."""
    window_s = _WINDOW_S
    # A fifth of a window before the move: the fall cannot be known at once.
    falling_phases = [
        (1.8 * window_s, _rates(_RATE)),
        (5 * window_s, dict.fromkeys("ABC", _REDUCED_RATE)),
    ]
    cases = {
        "steady rates": _steady(options.seed, window_s),
        "rates that have fallen": list(arrivals(falling_phases, _KEYS, Random(options.seed))),
    }
    for name, arriving in cases.items():
        work_without_move = sum(_run_with_move(arriving, window_s, None)[0].spent.values())
        extra = {
            strategy: sum(_run_with_move(arriving, window_s, strategy)[0].spent.values())
            - work_without_move
            for strategy in STRATEGIES
        }
        options.note(f"{name}: {extra} rows more")
        ptlb, mslb = extra["ptlb"], extra["mslb"]
        # At falling rates waiting is cheap, which is the paper's reverse case.
        bar = 1.0 if name == "rates that have fallen" else None
        yield Result(f"{name}: work of PTLB", "rows", ptlb, mslb, bar, small_is_good=True)
        minimum = min(ptlb, mslb)
        yield Result(
            f"{name}: work of auto", "rows", extra["auto"], minimum, 1.0, small_is_good=True
        )


def _run_with_move(
    arriving: list[Arrival], window_s: float, strategy: Strategy | None
) -> tuple[PacedCluster, Relocation | None, float]:
    """Run with one relocation, after two windows; return it, and how long it took."""
    orders = {worker_address(0): {"q": "ABC"}, worker_address(1): {"q": "BCA"}}
    owners = [int(at >= _PARTITIONS // 2) for at in range(_PARTITIONS)]
    cluster_state = make_cluster(_workload(window_s), owners, 2, orders=orders)
    cluster = PacedCluster(cluster_state, _AMPLE_CAPACITY)
    began_s, ended_s = 2 * window_s, 0.0
    for now in _ticks(cluster, arriving, 5 * window_s):
        if strategy is not None and now == round(began_s / TICK_S):
            amount = sum(cluster.workers[worker_address(0)].rows().values()) // 2
            cluster.request(Relocate(strategy, worker_address(0), worker_address(1), amount))
        relocation = cluster.manager.relocations.get(1)
        if relocation is not None and relocation.phase == "done" and not ended_s:
            ended_s = cluster.now_s
    return cluster, cluster.manager.relocations.get(1), ended_s - began_s


def _simulate(arriving: list[Arrival], adaptation: _Adaptation) -> PacedCluster:
    workload = _workload(_WINDOW_S)
    half = _PARTITIONS // 2
    owners = [0 if at < half else 1 + at % (_WORKERS - 1) for at in range(_PARTITIONS)]
    orders = {worker_address(at): {"q": "ABC"} for at in range(_WORKERS)}
    cluster_state = make_cluster(
        workload, owners, _WORKERS, adaptive=adaptation.adaptive, orders=orders
    )
    cluster = PacedCluster(cluster_state, _CAPACITY * _even_share())
    for now in _ticks(cluster, arriving, _UNTIL_S):
        # Once a second the manager checks the state of the workers.
        due = now % round(1 / TICK_S) == 0 and cluster.now_s >= _WINDOW_S
        if adaptation.strategy is not None and due and cluster.manager.present is None:
            cluster.request(Relocate(adaptation.strategy))
    return cluster


def _ticks(cluster: PacedCluster, arriving: list[Arrival], until_s: float) -> Iterator[int]:
    """Feed a cluster tick by tick, and yield the number of each tick before it starts."""
    position = 0
    for number in range(round(until_s / TICK_S)):
        yield number
        first = position
        while position < len(arriving) and arriving[position].time_s < (number + 1) * TICK_S:
            position += 1
        cluster.tick(arriving[first:position])


def _even_share() -> float:
    """Return an estimate of the rows in a second of an even share of the initial load.

    Each tuple is a message and stored, is joined with one other stream or its intermediate result,
    and these rows are stored and joined once more.
    """
    matches = _RATE * _WINDOW_S / len(_KEYS)
    pairs = _RATE * matches
    per_second = 3 * _RATE * 2 + 2 * pairs * 2 + 3 * pairs * matches
    return per_second / _WORKERS


def _recovery_windows(cluster: PacedCluster) -> float:
    """Return the windows from the start of rebalancing until no tuple waits."""
    late_s = [now_s for now_s, delay_s in cluster.delays if delay_s > _MAX_DELAY_S]
    return max(0.0, max(late_s, default=0.0) - _WINDOW_S) / _WINDOW_S


def _check(cluster: PacedCluster, static: PacedCluster) -> None:
    # Both must have processed all arrivals.
    if max(at for _, at in (cluster.delays[-1], static.delays[-1])) > _MAX_DELAY_S:
        raise Failed("a cluster is still behind at the end")
    if cluster.identified() != static.identified():
        raise Failed("relocations have changed the results")


def _steady(seed: int, window_s: float) -> list[Arrival]:
    return list(arrivals([(5 * window_s, dict.fromkeys("ABC", _RATE))], _KEYS, Random(seed)))


def _rates(rate: float) -> dict[str, float]:
    return {"A": _RATE, "B": rate, "C": rate}


def _workload(window_s: float) -> Workload:
    return parse_workload(
        {
            "streams": {name: {"attributes": ["k"], "rate": _RATE} for name in "ABC"},
            "queries": {
                "q": {
                    "relations": ["A", "B", "C"],
                    "predicates": [["A.k", "B.k"], ["B.k", "C.k"]],
                    "window_s": window_s,
                }
            },
            "selectivities": [
                {"predicate": pair, "selectivity": 1 / len(_KEYS)}
                for pair in (["A.k", "B.k"], ["B.k", "C.k"])
            ],
        }
    )
