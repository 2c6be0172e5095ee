"""Energy and delay from stated powers (docs/papers/wattdb.md, sections 2 to 4)."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.settings.main import MediatorSettings
from mediator.placement.candidates import Candidate
from mediator.scaling.advisor import Advisor
from mediator.scaling.energy import (
    Energy,
    OperationCost,
    StatedPowers,
    SystemLoad,
    best_size,
    energy_report,
    operation_cost,
)
from mediator.scaling.model import BAND
from mediator.schema.annotations import Metric

NODE, SWITCH, STANDBY = (
    StatedPowers(idle_w=22.0, peak_w=26.0),
    StatedPowers(idle_w=20.0, peak_w=20.0),
    StatedPowers(idle_w=2.5, peak_w=2.5),
)
SERVER = StatedPowers(idle_w=200.0, peak_w=430.0)
ALL_OR_HALF = {1.0: "All of it", 0.5: "Half of it"}
DOCUMENTATION = (Path(__file__).parents[3] / "docs" / "scaling.md").read_text()

watts = st.floats(0.1, 1000.0)
loads = st.builds(
    SystemLoad,
    used=st.floats(0.01, 0.79),
    rate=st.floats(0.1, 1e6),
    delay_s=st.floats(1e-5, 10.0),
    size=st.integers(1, 8).map(float),
    peak=st.floats(0.01, 0.79),
)


# --- the paper's oracles (section 4).


@pytest.mark.parametrize(("used", "watt"), [(0.0, 64.5), (1.0, 68.5)])
def test_a_cluster_with_one_node_awake(used: float, watt: float) -> None:
    assert NODE.power_w(used) + SWITCH.power_w(0) + 9 * STANDBY.power_w(0) == watt


def test_moving_a_gigabyte_takes_ten_seconds_and_250_joules() -> None:
    """The documentation states this cost, which is not counted."""
    assert StatedPowers(idle_w=25.0, peak_w=25.0).power_w(1.0) * 10.0 == 250.0
    assert "at 25 W and 1 Gbit/s, 1 GB takes about 10 s\nand 250 J" in DOCUMENTATION


def test_twice_the_energy_in_half_the_time_is_the_same_product() -> None:
    assert OperationCost(2.0, 0.5).relative_to(OperationCost(1.0, 1.0)) == 1.0


def test_twice_the_power_in_half_the_time_halves_it() -> None:
    """The paper says it is unchanged, but must mean twice the energy (section 2, Errors)."""
    slow = OperationCost(energy_j=10.0 * 4.0, delay_s=4.0)
    fast = OperationCost(energy_j=20.0 * 2.0, delay_s=2.0)
    assert fast.relative_to(slow) == 0.5


def test_an_idle_server_draws_about_half_and_never_more_than_its_peak() -> None:
    assert SERVER.power_w(0.0) == 200.0
    assert SERVER.power_w(0.5) == 315.0
    assert SERVER.power_w(7.0) == SERVER.power_w(1.0) == 430.0


# --- The cost of another size.


def test_half_the_replicas_idle_less_and_delay_operations() -> None:
    load = SystemLoad(used=0.2, rate=100.0, delay_s=0.008, size=4.0, peak=0.2)
    assert operation_cost(StatedPowers(idle_w=20.0, peak_w=60.0), load, 4.0) == OperationCost(
        4 * 28.0 / 100, 0.008
    )
    halved = operation_cost(StatedPowers(idle_w=20.0, peak_w=60.0), load, 2.0)
    assert halved is not None
    assert halved.energy_j == pytest.approx(2 * 36.0 / 100)
    assert halved.delay_s == pytest.approx(0.008 * 0.8 / 0.6)


def test_the_best_number_of_replicas_depends_on_idle_power() -> None:
    load = SystemLoad(used=0.4, rate=100.0, delay_s=0.01, size=4.0, peak=0.4)
    sizes = [float(n) for n in range(1, 9)]
    assert [
        optimum[0]
        for idle in (0.0, 60.0)
        if (optimum := best_size(StatedPowers(idle_w=idle, peak_w=60.0), load, sizes))
    ] == [
        5.0,  # six would each be used less than the band requires
        3.0,
    ]


@given(watts, watts, loads)
def test_the_optimum_is_the_cheapest_size_within_the_band(
    one: float, other: float, load: SystemLoad
) -> None:
    stated = StatedPowers(idle_w=min(one, other), peak_w=max(one, other))
    sizes = [float(n) for n in range(1, 2 * int(load.size) + 1)]
    optimum = best_size(stated, load, sizes)
    assert load.peak is not None
    for size in sizes:
        factor = load.size / size
        is_within_band = load.peak * factor <= BAND.high and (
            load.used * factor >= BAND.low or size == 1
        )
        candidate = operation_cost(stated, load, size)
        if is_within_band and candidate is not None:
            assert optimum is not None
            assert optimum[1].edp_js <= candidate.edp_js
        elif optimum is not None:
            assert size != optimum[0]


@given(watts, loads)
def test_fewer_replicas_never_take_more_energy_nor_less_time(idle: float, load: SystemLoad) -> None:
    stated = StatedPowers(idle_w=idle, peak_w=idle * 2)
    costs = [operation_cost(stated, load, float(n)) for n in range(1, 2 * int(load.size) + 1)]
    finite = [cost for cost in costs if cost is not None]
    for fewer, more in pairwise(finite):
        assert fewer.energy_j <= more.energy_j * (1 + 1e-9)
        assert fewer.delay_s >= more.delay_s * (1 - 1e-9)


def test_an_overloaded_system_has_a_cost_but_no_better_size() -> None:
    load = SystemLoad(used=1.5, rate=100.0, delay_s=0.1, size=1.0, peak=1.5)
    assert operation_cost(NODE, load, 1.0) == OperationCost(0.26, 0.1)
    assert operation_cost(NODE, load, 0.5) is None
    assert best_size(NODE, load, (1.0, 0.5)) is None
    assert "No size that was compared" in energy_report(NODE, load, ALL_OR_HALF)["why"]


# --- The report.


def test_the_report_is_the_one_that_the_documentation_prints() -> None:
    [printed] = re.findall(r'^"energy": (\{.*?\})\n```', DOCUMENTATION, re.DOTALL | re.MULTILINE)
    load = SystemLoad(used=0.2, rate=2000.0, delay_s=0.0011, size=1.0, peak=0.3)
    report = energy_report(
        StatedPowers(idle_w=22.0, peak_w=26.0, edp_goal_js=1e-5), load, ALL_OR_HALF
    )
    expected = orjson.loads(printed)
    assert report.keys() == expected.keys()
    for name, figure in expected.items():
        if name == "least":
            assert report[name] == pytest.approx(figure, rel=1e-2)
        elif isinstance(figure, float):
            assert report[name] == pytest.approx(figure)
        else:
            assert report[name] == figure


def test_sizes_are_compared_once_half_an_hour_was_seen() -> None:
    report = energy_report(NODE, SystemLoad(0.2, 100.0, 0.01, 1.0, None), ALL_OR_HALF)
    assert report["least"] is None
    assert "Half an hour has to be seen" in report["why"]
    assert report["goal_met"] is None


# --- The advisor.


class Simulation:
    """A clock, a processor and two systems, of which one has its powers stated."""

    def __init__(self, energy: Energy) -> None:
        self.now = 0.0
        self.rate = 100.0
        clock: Any = SimpleNamespace(monotonic=lambda: self.now)
        offered = lambda: {("redis", "write"): self.rate, ("other", "write"): 0.0}  # noqa: E731
        self.advisor = Advisor(
            self.candidates, offered, clock, lambda: self.now * 0.2, energy=energy
        )

    def candidates(self) -> list[Candidate]:
        metrics = {Metric.WRITE_THROUGHPUT: 1000.0, Metric.WRITE_LATENCY: 0.002}
        return [Candidate(name, metrics=metrics) for name in ("redis", "other")]

    async def run(self, seconds: int) -> dict[str, Any]:
        for _ in range(0, seconds, 10):
            self.now += 10.0
            await self.advisor.sample()
        return self.advisor.advise()


async def test_only_what_has_stated_powers_has_a_report() -> None:
    advice = await Simulation(Energy()).run(2400)
    assert "energy" not in advice["service"]
    assert all("energy" not in system for system in advice["systems"].values())
    advice = await Simulation(Energy(systems={"redis": NODE, "gone": NODE})).run(10)
    assert [name for name, system in advice["systems"].items() if "energy" in system] == ["redis"]


async def test_stated_powers_change_no_recommendation() -> None:
    stated = Energy(service=NODE, systems={"redis": NODE, "other": NODE})
    plain, with_energy = await Simulation(Energy()).run(2400), await Simulation(stated).run(2400)
    for report in (with_energy["service"], *with_energy["systems"].values()):
        del report["energy"]
    assert with_energy == plain


async def test_a_system_and_the_service_are_reported_by_their_load() -> None:
    simulation = Simulation(
        Energy(
            service=StatedPowers(idle_w=20.0, peak_w=60.0),
            systems={"redis": StatedPowers(idle_w=22.0, peak_w=26.0, edp_goal_js=1e-5)},
        )
    )
    advice = await simulation.run(2400)
    redis, service = advice["systems"]["redis"]["energy"], advice["service"]["energy"]
    assert redis["power_w"] == pytest.approx(22.4)  # a tenth of it is used
    assert redis["energy_j"] == pytest.approx(0.224)
    assert redis["delay_s"] == pytest.approx(0.002)
    assert redis["goal_met"] is False
    assert redis["least"]["size"] == 0.5
    # A hundred operations take a fifth of a core, of which four fifths are free.
    assert service["power_w"] == pytest.approx(28.0)
    assert service["delay_s"] == pytest.approx(0.002 / 0.8)
    assert service["least"]["size"] == 1.0
    simulation.rate = 0.0
    advice = await simulation.run(10)
    assert "It has no known load" in advice["systems"]["redis"]["energy"]["why"]
    assert "It has no known load" in advice["service"]["energy"]["why"]


async def test_replicas_add_up() -> None:
    simulation = Simulation(Energy(service=StatedPowers(idle_w=20.0, peak_w=60.0)))
    simulation.advisor.merge([{"used": 0.26}, {"used": 0.26}])
    report = (await simulation.run(2400))["service"]["energy"]
    assert report["power_w"] == pytest.approx(3 * 29.6)
    assert report["energy_j"] == pytest.approx(0.888)
    assert report["least"] == {
        "size": 2.0,
        "edp_js": pytest.approx(0.688 * report["delay_s"] * 0.76 / 0.64),
        "relative": pytest.approx(0.688 / 0.888 * 0.76 / 0.64),
    }
    assert report["why"].endswith("2 replicas would stay within the band with 0.92 of that.")


# --- The setting.


@pytest.mark.parametrize(
    "wrong",
    [
        {"service": {"idle_w": -1, "peak_w": 2}},
        {"service": {"idle_w": 3, "peak_w": 2}},
        {"service": {"idle_w": 0, "peak_w": 0}},
        {"service": {"idle_w": 1, "peak_w": "inf"}},
        {"service": {"idle_w": 1, "peak_w": 2e6}},
        {"service": {"idle_w": 1}},
        {"service": {"idle_w": 1, "peak_w": 2, "edp_goal_js": 0}},
        {"service": {"idle_w": 1, "peak_w": 2, "colour": "green"}},
        {"systems": {"No name": {"idle_w": 1, "peak_w": 2}}},
        {"stores": {}},
    ],
)
def test_impossible_powers_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Energy.model_validate(wrong)


def test_the_setting_is_json_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MediatorSettings().energy is None
    [_, printed] = re.findall(r"```json\n(\{.*?\})\n```", DOCUMENTATION, re.DOTALL)
    monkeypatch.setenv("PORTOLAN_ENERGY", printed)
    energy = MediatorSettings().energy
    assert energy is not None
    assert energy == Energy(
        service=StatedPowers(idle_w=20.0, peak_w=60.0),
        systems={"redis": StatedPowers(idle_w=22.0, peak_w=26.0, edp_goal_js=1e-5)},
    )
