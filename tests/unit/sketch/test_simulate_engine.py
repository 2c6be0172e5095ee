"""The simulator: its counts add up, and the bound holds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import pytest

from sketch.filter.bloom import BloomFilter
from sketch.filter.shape import FilterShape
from sketch.instruments.simulate.comparison import Oracle
from sketch.instruments.simulate.engine import Estimators, Prepared, SimulationRun, simulate
from sketch.instruments.simulate.latency import parse
from sketch.instruments.simulate.origin import PARTITION
from sketch.instruments.simulate.workload import WORKLOADS, Mix, YcsbWorkload
from sketch.instruments.simulate.world import CACHES, World
from sketch.protocol.port import Partition
from sketch.ttl import Cate, Learner, Memory, Static, TtlEstimator, Weights

SLOW = parse("lognormal(80, 0.8)")
ESTIMATORS: dict[str, Estimators] = {
    "static": lambda _: Static(20),
    "cate": lambda _: Cate(),
    "learner": lambda _: Learner(),
}


def world(letter: str = "a", **members: Any) -> World:
    work = YcsbWorkload(WORKLOADS[letter], operations=4_000, records=100, max_scan_length=5)
    return World(work, **members)


def simulate_with(world_: World, estimator: TtlEstimator) -> SimulationRun:
    return simulate(Prepared.of(world_), lambda _: estimator)


def check(run: SimulationRun) -> None:
    tally = run.tally
    answers = tally.client_hits + tally.shared_hits + tally.misses + tally.revalidations
    assert answers == tally.reads == len(tally.latencies)
    assert tally.invalidations <= tally.writes
    assert tally.beyond_bound == 0
    assert tally.hit_ratio == pytest.approx((tally.client_hits + tally.shared_hits) / tally.reads)


@pytest.mark.parametrize("letter", WORKLOADS)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_everything_adds_up_and_the_bound_holds(letter: str, name: str) -> None:
    run = simulate(Prepared.of(world(letter)), ESTIMATORS[name])
    check(run)
    assert run.tally.hit_ratio > 0.03


@pytest.mark.parametrize("letter", ["d", "f"])
def test_the_warm_up_is_not_counted(letter: str) -> None:
    """All events are the same, but counting starts later."""

    class Recording(Static):
        def __init__(self) -> None:
            super().__init__(20)
            self.missed_s: list[float] = []

        def missed(
            self,
            partition: Partition,
            keys: Sequence[str],
            now_s: float,
            ttl_s: float | None = None,
        ) -> None:
            self.missed_s.append(now_s)

    full, later = Recording(), Recording()
    work = world(letter).workload
    full_run = simulate_with(World(work), full)
    prepared = Prepared.of(World(replace(work, operations=1_500, warm_up=2_500)))
    run, accesses = simulate(prepared, lambda _: later), prepared.accesses
    assert later.missed_s == full.missed_s
    begin_s = accesses.begin_s[accesses.first]
    tally = run.tally
    assert tally.operations == 1_500
    assert run.operations == full_run.operations == 4_000
    assert tally.reads == (~accesses.write[accesses.first :]).sum()
    assert tally.origin_reads == sum(at >= begin_s for at in later.missed_s)
    assert tally.virtual_s == pytest.approx(accesses.begin_s[-1] - begin_s)
    assert tally.beyond_bound == 0


def test_the_estimator_is_notified_of_creations() -> None:
    class Recording(Static):
        def __init__(self) -> None:
            super().__init__()
            self.created: list[str] = []
            self.changed: list[str] = []

        def wrote(
            self,
            partition: Partition,
            keys: Sequence[str],
            now_s: float,
            created: Collection[str] = (),
        ) -> None:
            (self.created if keys[0] in created else self.changed).append(keys[0])

    inserts, updates = Recording(), Recording()
    run = simulate_with(world("d"), inserts)
    assert inserts.created == [f"records/{100 + number}#all" for number in range(run.tally.writes)]
    assert not inserts.changed
    work = YcsbWorkload(Mix("", read=0.4, insert=0.3, update=0.3, latest=True), 4_000, 100)
    simulate_with(World(work), updates)
    assert len(updates.created) == len(set(updates.created)) > 1_000
    assert len(updates.changed) > 1_000


@pytest.mark.parametrize("letter", ["a", "b"])
def test_a_margin_is_learned_with(letter: str) -> None:
    """Keys stay in the filter beyond their copies; these static TTLs cost more."""
    prepared = Prepared.of(World(YcsbWorkload(WORKLOADS[letter], operations=15_000), margin_s=5.0))
    learned = simulate(prepared, lambda _: Learner(memory=Memory(margin_s=5.0)))
    check(learned)
    for ttl_s in (5.0, 20.0, 60.0):
        static = simulate(prepared, lambda _: Static(ttl_s))  # noqa: B023 - called at once
        assert learned.tally.cost(Weights()) < static.tally.cost(Weights())


@pytest.mark.parametrize("layers", ["", "proxy", "cdn", "proxy,cdn"])
@pytest.mark.parametrize("client", [False, True])
def test_the_bound_holds_over_slow_and_uneven_links(layers: str, client: bool) -> None:
    shared = tuple(
        replace(layer, one_way=parse("exponential(10, 0)"))
        for name, layer in CACHES.items()
        if name in layers
    )
    slow = world(
        client_caches=client,
        layers=shared,
        origin_one_way=SLOW,
        store=parse("exponential(20, 0)"),
        purge=parse("exponential(300, 0)"),
        bound_s=2.0,
    )
    run = simulate_with(slow, Static(30))
    check(run)
    assert bool(run.tally.shared_hits) == bool(layers)
    assert bool(run.tally.client_hits) == client


def test_without_the_filter_the_bound_would_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail: copies that outlive a write by up to 20 s are found."""
    monkeypatch.setattr(BloomFilter, "contains", lambda *_: False)
    tally = simulate_with(world(), Static(20)).tally
    assert tally.beyond_bound > 0
    assert tally.stalest_s > 1


def test_without_a_ttl_nothing_is_cached() -> None:
    tally = simulate_with(world(), Static(0)).tally
    assert tally.hit_ratio == 0
    assert tally.invalidations == tally.stale == tally.filter_keys == 0
    assert tally.cost(Weights()) == pytest.approx(tally.reads / (tally.reads + tally.writes))


def test_keys_that_are_never_written_are_missed_once() -> None:
    tally = simulate_with(world("c", layers=(CACHES["cdn"],)), Static(600)).tally
    assert tally.invalidations == tally.stale == 0
    assert tally.misses < 400
    assert tally.hit_ratio > 0.85


def test_an_oracle_causes_neither_stale_reads_nor_invalidations() -> None:
    prepared = Prepared.of(world("a"))
    oracle = simulate(prepared, lambda accesses: Oracle(accesses.writes_s())).tally
    assert oracle.invalidations == oracle.stale == oracle.filter_keys == 0
    for estimator in ESTIMATORS.values():
        other = simulate(prepared, estimator).tally
        assert oracle.cost(Weights()) < other.cost(Weights())


def test_the_oracle() -> None:
    oracle = Oracle({"x": [1.0, 5.0], "y": [3.0]})
    assert oracle.ttl_s(PARTITION, ("x",), 1.0) == pytest.approx(4, abs=1e-3)
    assert oracle.ttl_s(PARTITION, ("x", "y"), 2.0) == pytest.approx(1, abs=1e-3)
    assert oracle.ttl_s(PARTITION, ("z",), 2.0) == float("inf")


def test_the_same_seed_does_the_same() -> None:
    runs = [simulate(Prepared.of(world("f")), ESTIMATORS["learner"]).tally for _ in range(2)]
    assert runs[0] == runs[1]
    other = simulate(Prepared.of(world("f", seed=2)), ESTIMATORS["learner"]).tally
    assert other != runs[0]


def test_a_small_filter_has_false_positives() -> None:
    small = simulate_with(world(shape=FilterShape(64, 1)), Static(60)).tally
    large = simulate_with(world(), Static(60)).tally
    assert small.filter_rate > 0.1
    assert large.filter_rate < 0.001
    assert small.false_positives > 10 * max(1, large.false_positives)
    assert small.beyond_bound == 0


def test_latencies_are_those_of_the_path() -> None:
    near = world("c", layers=(), client_caches=False, origin_one_way=parse("constant(100)"))
    latency = simulate_with(near, Static(1)).tally.to_json()["latency_ms"]
    assert [latency["p50"], latency["p99"]] == pytest.approx([201, 201])
