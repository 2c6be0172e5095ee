"""The worked example of an estimator: what it does, and the figures that its page prints."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from examples.age_estimator import ByAge
from sketch.instruments.simulate.run import Estimators, Prepared, Run, simulate
from sketch.instruments.simulate.workload import WORKLOADS, Workload
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
def runs() -> dict[str, Run]:
    prepared = Prepared.of(World(Workload(WORKLOADS["b"], operations=8_000, records=200)))
    return {name: simulate(prepared, made) for name, made in ESTIMATORS.items()}


def test_a_life_is_a_share_of_the_age_of_the_youngest() -> None:
    estimator: TtlEstimator = ByAge(share=0.5)
    assert estimator.ttl_s(PARTITION, ["a"], 100) == 0
    estimator.missed(PARTITION, ["a", "b"], 100)
    assert estimator.ttl_s(PARTITION, ["a"], 110) == 5
    estimator.wrote(PARTITION, ["b"], 108)
    assert estimator.ttl_s(PARTITION, ["a", "b"], 110) == 1
    assert estimator.ttl_s(Partition("news", "people"), ["a"], 110) == 0


def test_what_is_remembered_is_bounded() -> None:
    estimator = ByAge(share=1, keys=2)
    for second, key in enumerate("aba"):
        estimator.missed(PARTITION, [key], second)
    estimator.missed(PARTITION, ["c"], 3)
    assert [estimator.ttl_s(PARTITION, [key], 10) for key in "abc"] == [10, 0, 7]


def test_the_bound_holds_whatever_lives_are(runs: dict[str, Run]) -> None:
    assert [run.tally.beyond_bound for run in runs.values()] == [0] * len(runs)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_page_prints_what_the_simulator_counted(runs: dict[str, Run], name: str) -> None:
    tally = runs[name].tally
    row = (
        f"| {name} | {tally.cost(Weights()):.3f} | {tally.hit_ratio:.0%} | {tally.invalidations} |"
    )
    assert row in PAGE.read_text(), row


def test_it_costs_less_than_any_static_life_of_the_page(runs: dict[str, Run]) -> None:
    cost = {name: run.tally.cost(Weights()) for name, run in runs.items()}
    assert cost["by age"] < min(each for name, each in cost.items() if name.startswith("static"))
    assert cost["learner"] < cost["by age"]


def test_the_page_prints_how_it_was_measured() -> None:
    [block] = re.findall(r"```python\n(prepared = .*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {
        "Prepared": Prepared,
        "World": World,
        "Workload": Workload,
        "WORKLOADS": WORKLOADS,
        "simulate": simulate,
        "ByAge": ByAge,
        "Weights": Weights,
    }
    exec(block, names)
    assert names["tally"].cost(Weights()) > 0
