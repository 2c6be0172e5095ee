"""Live rebalancing: recovery from a skewed start and from changed rates, and what moving takes.

The workload is D-CAPE's: (A ⋈ B) ⋈ C, Poisson arrivals, 100 partitions of each stream, seven
workers, of which one begins with half of the load; at 30 s B and C fall to a twentieth. Rates are
two fifths of the paper's 100 tuples/s, and windows ten seconds. A worker's machine is simulated: it
does 2.5 times the work of an even share in a second of event time, where work is rows kept or
joined and messages. States, queues and protocols are the real ones, and figures do not depend on
the machine. Rebalancing begins when the first window is full. A run counts only if its results are
those of the run without any relocation, each once.
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
_FALLEN: Final = _RATE / 20
_KEYS: Final = range(120)
_WINDOW_S: Final = 10.0
_CHANGE_S: Final = 30.0
_UNTIL_S: Final = 70.0
_CAPACITY: Final = 2.5
"""What a worker can do, in even shares of the load at the beginning."""

_AMPLE: Final = 1e9
_RECOVERED_S: Final = 1.0
"""No tuple waits longer for its worker."""

_BAR_WINDOWS: Final = 2.0
_EVERYTHING: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class _Adaptation:
    """What a cluster may do about its load."""

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
    phases = [(_CHANGE_S, _rates(_RATE)), (_UNTIL_S, _rates(_FALLEN))]
    arriving = list(arrivals(phases, _KEYS, Random(options.seed)))
    static = _simulate(arriving, _STATIC)
    baseline = _recovered_after(static)
    name = f"{_STATIC.name}: recovery, which takes longer than two windows"
    yield Result(name, "windows", baseline, bar=_BAR_WINDOWS)
    for each in _QUICK if options.quick else _ADAPTATIONS:
        cluster = _simulate(arriving, each)
        _check(cluster, static)
        took = _recovered_after(cluster)
        moves = [at for at in cluster.manager.relocations.values() if at.phase == "done"]
        options.note(f"{each.name}: {len(moves)} relocations, recovered after {took:.1f} windows")
        is_claim = each is _ADAPTATIONS[-1]
        bar = {"bar": _BAR_WINDOWS} if is_claim else {"baseline": baseline}
        yield Result(f"{each.name}: recovery", "windows", took, **bar, small_is_good=True)
        work, before = sum(cluster.spent.values()), sum(static.spent.values())
        yield Result(f"{each.name}: work", "rows", work, before, small_is_good=True)


def _durations(options: Options, window_s: float) -> Iterator[Result]:
    """Move half of a worker's groups to one with another plan, without any lack of time."""
    arriving = _steady(options.seed, window_s)
    for strategy in ("ptlb", "mslb"):
        cluster, relocation, took_s = _moved(arriving, window_s, strategy)
        name = f"{strategy.upper()}, window of {window_s:g} s: duration"
        bar = 1.1 if strategy == "ptlb" else 0.1
        yield Result(name, "windows", took_s / window_s, bar=bar, small_is_good=True)
        if strategy == "mslb":
            for what in ("moved", "discarded", "recomputed"):
                count = getattr(relocation, what)
                yield Result(f"MSLB, window of {window_s:g} s: rows {what}", "rows", count)
        duplicates = sum(count - 1 for count in cluster.identified().values())
        yield Result(f"{strategy.upper()}, window of {window_s:g} s: duplicates", "1", duplicates)


def _costs(options: Options) -> Iterator[Result]:
    """Compare the work that the protocols add, at steady rates and when these have just fallen."""
    window_s = _WINDOW_S
    # A fifth of a window before the move: nobody could know it at once.
    fallen = [(1.8 * window_s, _rates(_RATE)), (5 * window_s, dict.fromkeys("ABC", _FALLEN))]
    cases = {
        "steady rates": _steady(options.seed, window_s),
        "rates that have fallen": list(arrivals(fallen, _KEYS, Random(options.seed))),
    }
    for name, arriving in cases.items():
        stays = sum(_moved(arriving, window_s, None)[0].spent.values())
        extra = {
            strategy: sum(_moved(arriving, window_s, strategy)[0].spent.values()) - stays
            for strategy in STRATEGIES
        }
        options.note(f"{name}: {extra} rows more")
        ptlb, mslb = extra["ptlb"], extra["mslb"]
        # At falling rates waiting is cheap, which is the paper's reverse case.
        bar = 1.0 if name == "rates that have fallen" else None
        yield Result(f"{name}: work of PTLB", "rows", ptlb, mslb, bar, small_is_good=True)
        least = min(ptlb, mslb)
        yield Result(f"{name}: work of auto", "rows", extra["auto"], least, 1.0, small_is_good=True)


def _moved(
    arriving: list[Arrival], window_s: float, strategy: Strategy | None
) -> tuple[PacedCluster, Relocation | None, float]:
    """Run with one relocation, after two windows; return it, and how long it took."""
    orders = {worker_address(0): {"q": "ABC"}, worker_address(1): {"q": "BCA"}}
    owners = [int(at >= _PARTITIONS // 2) for at in range(_PARTITIONS)]
    agreed = make_cluster(_workload(window_s), owners, 2, orders=orders)
    cluster = PacedCluster(agreed, _AMPLE)
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
    agreed = make_cluster(workload, owners, _WORKERS, adaptive=adaptation.adaptive, orders=orders)
    cluster = PacedCluster(agreed, _CAPACITY * _even_share())
    for now in _ticks(cluster, arriving, _UNTIL_S):
        # Once in a second the manager looks at what workers hold.
        due = now % round(1 / TICK_S) == 0 and cluster.now_s >= _WINDOW_S
        if adaptation.strategy is not None and due and cluster.manager.present is None:
            cluster.request(Relocate(adaptation.strategy))
    return cluster


def _ticks(cluster: PacedCluster, arriving: list[Arrival], until_s: float) -> Iterator[int]:
    """Feed a cluster tick by tick, and yield the number of each that is about to begin."""
    position = 0
    for number in range(round(until_s / TICK_S)):
        yield number
        first = position
        while position < len(arriving) and arriving[position].time_s < (number + 1) * TICK_S:
            position += 1
        cluster.tick(arriving[first:position])


def _even_share() -> float:
    """Return the rows that an even share of the first load makes in a second, by estimate.

    Each tuple is a message and kept, is joined with one other stream or its intermediate result,
    and these rows are kept and joined once more.
    """
    matches = _RATE * _WINDOW_S / len(_KEYS)
    pairs = _RATE * matches
    per_second = 3 * _RATE * 2 + 2 * pairs * 2 + 3 * pairs * matches
    return per_second / _WORKERS


def _recovered_after(cluster: PacedCluster) -> float:
    """Return the windows from the beginning of rebalancing until no tuple waits any more."""
    late = [now_s for now_s, delay_s in cluster.delays if delay_s > _RECOVERED_S]
    return max(0.0, max(late, default=0.0) - _WINDOW_S) / _WINDOW_S


def _check(cluster: PacedCluster, static: PacedCluster) -> None:
    # Both have to be through with what arrived.
    if max(at for _, at in (cluster.delays[-1], static.delays[-1])) > _RECOVERED_S:
        raise Failed("a cluster is still behind at the end")
    if cluster.identified() != static.identified():
        raise Failed("relocations have changed the results")


def _steady(seed: int, window_s: float) -> list[Arrival]:
    return list(arrivals([(5 * window_s, dict.fromkeys("ABC", _RATE))], _KEYS, Random(seed)))


def _rates(others: float) -> dict[str, float]:
    return {"A": _RATE, "B": others, "C": others}


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
