"""The worked example of an estimator: its TTLs, and the figures that its page prints."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from examples.age_estimator import ByAge
from sketch.instruments.simulate.engine import Estimators, Prepared, SimulationRun, simulate
from sketch.instruments.simulate.workload import WORKLOADS, YcsbWorkload
from sketch.instruments.simulate.world import World
from sketch.protocol.port import Partition
from sketch.ttl import Learner, Static, TtlEstimator, Weights

PAGE = Path(__file__).parents[3] / "docs" / "add-estimator.md"
PARTITION = Partition("news", "articles")
ESTIMATORS: dict[str, Estimators] = {
    "static, 0 s": lambda _: Static(0),
    "static, 10 s": lambda _: Static(10),
    "static, 600 s": lambda _: Static(600),
    "by age": lambda _: ByAge(),
    "learner": lambda _: Learner(),
}


@pytest.fixture(scope="module")
def runs() -> dict[str, SimulationRun]:
    prepared = Prepared.of(World(YcsbWorkload(WORKLOADS["b"], operations=8_000, records=200)))
    return {name: simulate(prepared, estimator) for name, estimator in ESTIMATORS.items()}


def test_a_ttl_is_a_share_of_the_age_of_the_youngest() -> None:
    estimator: TtlEstimator = ByAge(share=0.5)
    assert estimator.ttl_s(PARTITION, ["a"], 100) == 0
    estimator.missed(PARTITION, ["a", "b"], 100)
    assert estimator.ttl_s(PARTITION, ["a"], 110) == 5
    estimator.wrote(PARTITION, ["b"], 108)
    assert estimator.ttl_s(PARTITION, ["a", "b"], 110) == 1
    assert estimator.ttl_s(Partition("news", "people"), ["a"], 110) == 0


def test_the_memory_of_the_estimator_is_bounded() -> None:
    estimator = ByAge(share=1, keys=2)
    for second, key in enumerate("aba"):
        estimator.missed(PARTITION, [key], second)
    estimator.missed(PARTITION, ["c"], 3)
    assert [estimator.ttl_s(PARTITION, [key], 10) for key in "abc"] == [10, 0, 7]


def test_the_bound_holds_for_any_ttls(runs: dict[str, SimulationRun]) -> None:
    assert [run.tally.beyond_bound for run in runs.values()] == [0] * len(runs)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_page_prints_the_figures_of_the_simulator(
    runs: dict[str, SimulationRun], name: str
) -> None:
    tally = runs[name].tally
    row = (
        f"| {name} | {tally.cost(Weights()):.3f} | {tally.hit_ratio:.0%} | {tally.invalidations} |"
    )
    assert row in PAGE.read_text(), row


def test_the_estimator_costs_less_than_any_static_ttl_of_the_page(
    runs: dict[str, SimulationRun],
) -> None:
    cost = {name: run.tally.cost(Weights()) for name, run in runs.items()}
    assert cost["by age"] < min(value for name, value in cost.items() if name.startswith("static"))
    assert cost["learner"] < cost["by age"]


def test_the_page_prints_how_it_was_measured() -> None:
    [block] = re.findall(r"```python\n(prepared = .*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {
        "Prepared": Prepared,
        "World": World,
        "YcsbWorkload": YcsbWorkload,
        "WORKLOADS": WORKLOADS,
        "simulate": simulate,
        "ByAge": ByAge,
        "Weights": Weights,
    }
    exec(block, names)
    assert names["tally"].cost(Weights()) > 0
