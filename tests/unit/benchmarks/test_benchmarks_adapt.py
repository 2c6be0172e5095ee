"""The simulated machines of the rebalancing benchmark."""

from __future__ import annotations

from random import Random

from benchmarks.harness.paced_cluster import Arrival, PacedCluster, arrivals
from mediator.relocation.cluster import make_cluster
from mediator.relocation.messages import Relocate
from tests.properties.relocation.scenario import workload_of

_RATES = {"A": 20.0, "B": 20.0}


def run(capacity: float, *, move: bool = False) -> PacedCluster:
    cluster = PacedCluster(make_cluster(workload_of("AB"), [0, 0, 0, 1], 2), capacity)
    all_arrivals = list(arrivals([(5.0, _RATES)], range(20), Random(1)))
    for number in range(200):
        if move and number == 30:
            cluster.request(Relocate("mslb"))
        cluster.tick(
            arrival for arrival in all_arrivals if number <= arrival.time_s * 10 < number + 1
        )
    return cluster


def test_rates_are_those_of_the_phase() -> None:
    phases = [(10.0, {"A": 50.0, "B": 10.0}), (20.0, {"A": 1.0, "B": 10.0})]
    generated = list(arrivals(phases, range(3), Random(1)))
    times = [arrival.time_s for arrival in generated]
    assert times == sorted(times)

    def count(relation: str, since_s: float) -> int:
        return sum(a.relation == relation and since_s <= a.time_s < since_s + 10 for a in generated)

    assert 400 < count("A", 0) < 600
    assert 3 < count("A", 10) < 25
    assert {arrival.key for arrival in generated} == {0, 1, 2}
    assert isinstance(generated[0], Arrival)


def test_a_slow_worker_has_the_same_results_later() -> None:
    fast, slow = run(1e9), run(120.0)
    assert max(delay_s for _, delay_s in fast.delays) < 0.2
    assert max(delay_s for _, delay_s in slow.delays) > 1.0
    assert slow.delays[-1][1] < 0.2
    assert fast.identified() == slow.identified()
    assert fast.spent == slow.spent


def test_a_relieved_worker_is_less_delayed() -> None:
    alone, relieved = run(120.0), run(120.0, move=True)
    assert [relocation.phase for relocation in relieved.manager.relocations.values()] == ["done"]
    assert sum(delay_s for _, delay_s in relieved.delays) < sum(
        delay_s for _, delay_s in alone.delays
    )
    assert relieved.identified() == alone.identified()
