"""The simulated machines of the benchmark of rebalancing."""

from __future__ import annotations

from random import Random

from benchmarks.harness.paced_cluster import Arrival, PacedCluster, arrivals
from mediator.relocation.cluster import make_cluster
from mediator.relocation.messages import Relocate
from tests.properties.relocation.scenario import workload_of

_RATES = {"A": 20.0, "B": 20.0}


def run(capacity: float, *, move: bool = False) -> PacedCluster:
    cluster = PacedCluster(make_cluster(workload_of("AB"), [0, 0, 0, 1], 2), capacity)
    arriving = list(arrivals([(5.0, _RATES)], range(20), Random(1)))
    for number in range(200):
        if move and number == 30:
            cluster.request(Relocate("mslb"))
        cluster.tick(each for each in arriving if number <= each.time_s * 10 < number + 1)
    return cluster


def test_rates_are_those_of_the_phase() -> None:
    phases = [(10.0, {"A": 50.0, "B": 10.0}), (20.0, {"A": 1.0, "B": 10.0})]
    found = list(arrivals(phases, range(3), Random(1)))
    times = [each.time_s for each in found]
    assert times == sorted(times)

    def count(relation: str, since_s: float) -> int:
        return sum(at.relation == relation and since_s <= at.time_s < since_s + 10 for at in found)

    assert 400 < count("A", 0) < 600
    assert 3 < count("A", 10) < 25
    assert {each.key for each in found} == {0, 1, 2}
    assert isinstance(found[0], Arrival)


def test_a_slow_worker_has_the_same_results_later() -> None:
    fast, slow = run(1e9), run(120.0)
    assert max(delay_s for _, delay_s in fast.delays) < 0.2
    assert max(delay_s for _, delay_s in slow.delays) > 1.0
    assert slow.delays[-1][1] < 0.2
    assert fast.identified() == slow.identified()
    assert fast.spent == slow.spent


def test_a_worker_that_is_relieved_is_less_behind() -> None:
    alone, relieved = run(120.0), run(120.0, move=True)
    assert [each.phase for each in relieved.manager.relocations.values()] == ["done"]
    assert sum(at for _, at in relieved.delays) < sum(at for _, at in alone.delays)
    assert relieved.identified() == alone.identified()
