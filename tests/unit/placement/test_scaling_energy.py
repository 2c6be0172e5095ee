"""Energy and delay by stated powers (docs/papers/wattdb.md, sections 2 to 4)."""

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

from app.settings.energy import EnergySettings
from app.settings.main import MediatorSettings
from mediator.placement.candidates import Candidate
from mediator.scaling.advisor import Advisor
from mediator.scaling.energy import Cost, Energy, Load, Stated, cost, energy_report, least
from mediator.scaling.model import BAND
from mediator.schema.annotations import Metric

NODE, SWITCH, STANDBY = Stated(22.0, 26.0), Stated(20.0, 20.0), Stated(2.5, 2.5)
SERVER = Stated(200.0, 430.0)
ALL_OR_HALF = {1.0: "All of it", 0.5: "Half of it"}
DOCUMENTED = (Path(__file__).parents[3] / "docs" / "scaling.md").read_text()

watts = st.floats(0.1, 1000.0)
loads = st.builds(
    Load,
    used=st.floats(0.01, 0.79),
    rate=st.floats(0.1, 1e6),
    delay_s=st.floats(1e-5, 10.0),
    size=st.integers(1, 8).map(float),
    most=st.floats(0.01, 0.79),
)


# --- the paper's oracles (section 4).


@pytest.mark.parametrize(("used", "watt"), [(0.0, 64.5), (1.0, 68.5)])
def test_a_cluster_with_one_node_awake(used: float, watt: float) -> None:
    assert NODE.power_w(used) + SWITCH.power_w(0) + 9 * STANDBY.power_w(0) == watt


def test_moving_a_gigabyte_takes_ten_seconds_and_250_joules() -> None:
    """As the documentation says of what is not counted."""
    assert Stated(25.0, 25.0).power_w(1.0) * 10.0 == 250.0
    assert "at 25 W and 1 Gbit/s, 1 GB takes about 10 s\nand 250 J" in DOCUMENTED


def test_twice_the_energy_in_half_the_time_is_the_same_product() -> None:
    assert Cost(2.0, 0.5).relative_to(Cost(1.0, 1.0)) == 1.0


def test_twice_the_power_in_half_the_time_halves_it() -> None:
    """The paper says that it stays: it must mean twice the energy (section 2, Errors)."""
    slow = Cost(energy_j=10.0 * 4.0, delay_s=4.0)
    fast = Cost(energy_j=20.0 * 2.0, delay_s=2.0)
    assert fast.relative_to(slow) == 0.5


def test_an_idle_server_draws_about_half_and_never_more_than_its_peak() -> None:
    assert SERVER.power_w(0.0) == 200.0
    assert SERVER.power_w(0.5) == 315.0
    assert SERVER.power_w(7.0) == SERVER.power_w(1.0) == 430.0


# --- What another size would take.


def test_half_as_many_replicas_idle_less_and_let_operations_wait() -> None:
    load = Load(used=0.2, rate=100.0, delay_s=0.008, size=4.0, most=0.2)
    assert cost(Stated(20.0, 60.0), load, 4.0) == Cost(4 * 28.0 / 100, 0.008)
    halved = cost(Stated(20.0, 60.0), load, 2.0)
    assert halved is not None
    assert halved.energy_j == pytest.approx(2 * 36.0 / 100)
    assert halved.delay_s == pytest.approx(0.008 * 0.8 / 0.6)


def test_what_draws_nothing_idle_had_better_be_many_and_what_draws_most_idle_few() -> None:
    load = Load(used=0.4, rate=100.0, delay_s=0.01, size=4.0, most=0.4)
    sizes = [float(n) for n in range(1, 9)]
    assert [
        found[0] for idle in (0.0, 60.0) if (found := least(Stated(idle, 60.0), load, sizes))
    ] == [
        5.0,  # of six, each would be used less than the band asks for
        3.0,
    ]


@given(watts, watts, loads)
def test_the_least_keeps_the_band_and_nothing_that_keeps_it_has_less(
    one: float, other: float, load: Load
) -> None:
    stated = Stated(min(one, other), max(one, other))
    sizes = [float(n) for n in range(1, 2 * int(load.size) + 1)]
    found = least(stated, load, sizes)
    assert load.most is not None
    for size in sizes:
        grown = load.size / size
        keeps = load.most * grown <= BAND.high and (load.used * grown >= BAND.low or size == 1)
        told = cost(stated, load, size)
        if keeps and told is not None:
            assert found is not None
            assert found[1].edp_js <= told.edp_js
        elif found is not None:
            assert size != found[0]


@given(watts, loads)
def test_fewer_replicas_never_take_more_energy_nor_less_time(idle: float, load: Load) -> None:
    stated = Stated(idle, idle * 2)
    told = [cost(stated, load, float(n)) for n in range(1, 2 * int(load.size) + 1)]
    known = [each for each in told if each is not None]
    for fewer, more in pairwise(known):
        assert fewer.energy_j <= more.energy_j * (1 + 1e-9)
        assert fewer.delay_s >= more.delay_s * (1 - 1e-9)


def test_what_is_overrun_has_a_cost_but_no_other_size() -> None:
    load = Load(used=1.5, rate=100.0, delay_s=0.1, size=1.0, most=1.5)
    assert cost(NODE, load, 1.0) == Cost(0.26, 0.1)
    assert cost(NODE, load, 0.5) is None
    assert least(NODE, load, (1.0, 0.5)) is None
    assert "No size that was compared" in energy_report(NODE, load, ALL_OR_HALF)["why"]


# --- In words.


def test_what_the_documentation_prints_is_what_is_told() -> None:
    [printed] = re.findall(r'^"energy": (\{.*?\})\n```', DOCUMENTED, re.DOTALL | re.MULTILINE)
    load = Load(used=0.2, rate=2000.0, delay_s=0.0011, size=1.0, most=0.3)
    told = energy_report(Stated(22.0, 26.0, 1e-5), load, ALL_OR_HALF)
    wanted = orjson.loads(printed)
    assert told.keys() == wanted.keys()
    for name, figure in wanted.items():
        if name == "least":
            assert told[name] == pytest.approx(figure, rel=1e-2)
        elif isinstance(figure, float):
            assert told[name] == pytest.approx(figure)
        else:
            assert told[name] == figure


def test_sizes_are_compared_once_half_an_hour_was_seen() -> None:
    told = energy_report(NODE, Load(0.2, 100.0, 0.01, 1.0, None), ALL_OR_HALF)
    assert told["least"] is None
    assert "Half an hour has to be seen" in told["why"]
    assert told["goal_met"] is None


# --- The advisor.


class Played:
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


async def test_of_what_nothing_is_stated_nothing_is_told() -> None:
    told = await Played(Energy()).run(2400)
    assert "energy" not in told["service"]
    assert all("energy" not in each for each in told["systems"].values())
    told = await Played(Energy(systems={"redis": NODE, "gone": NODE})).run(10)
    assert [name for name, each in told["systems"].items() if "energy" in each] == ["redis"]


async def test_what_is_stated_changes_no_recommendation() -> None:
    stated = Energy(NODE, {"redis": NODE, "other": NODE})
    plain, told = await Played(Energy()).run(2400), await Played(stated).run(2400)
    for each in (told["service"], *told["systems"].values()):
        del each["energy"]
    assert told == plain


async def test_a_system_and_the_service_are_told_by_their_load() -> None:
    played = Played(Energy(Stated(20.0, 60.0), {"redis": Stated(22.0, 26.0, 1e-5)}))
    told = await played.run(2400)
    redis, service = told["systems"]["redis"]["energy"], told["service"]["energy"]
    assert redis["power_w"] == pytest.approx(22.4)  # a tenth of it is used
    assert redis["energy_j"] == pytest.approx(0.224)
    assert redis["delay_s"] == pytest.approx(0.002)
    assert redis["goal_met"] is False
    assert redis["least"]["size"] == 0.5
    # A hundred operations take a fifth of a core, of which four fifths are free.
    assert service["power_w"] == pytest.approx(28.0)
    assert service["delay_s"] == pytest.approx(0.002 / 0.8)
    assert service["least"]["size"] == 1.0
    played.rate = 0.0
    told = await played.run(10)
    assert "It has no known load" in told["systems"]["redis"]["energy"]["why"]
    assert "It has no known load" in told["service"]["energy"]["why"]


async def test_replicas_add_up() -> None:
    played = Played(Energy(Stated(20.0, 60.0)))
    played.advisor.merge([{"used": 0.26}, {"used": 0.26}])
    told = (await played.run(2400))["service"]["energy"]
    assert told["power_w"] == pytest.approx(3 * 29.6)
    assert told["energy_j"] == pytest.approx(0.888)
    assert told["least"] == {
        "size": 2.0,
        "edp_js": pytest.approx(0.688 * told["delay_s"] * 0.76 / 0.64),
        "relative": pytest.approx(0.688 / 0.888 * 0.76 / 0.64),
    }
    assert told["why"].endswith("2 replicas would stay within the band with 0.92 of that.")


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
def test_powers_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        EnergySettings.model_validate(wrong)


def test_the_setting_is_json_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MediatorSettings().energy is None
    [_, printed] = re.findall(r"```json\n(\{.*?\})\n```", DOCUMENTED, re.DOTALL)
    monkeypatch.setenv("PORTOLAN_ENERGY", printed)
    told = MediatorSettings().energy
    assert told is not None
    assert told.stated() == Energy(Stated(20.0, 60.0), {"redis": Stated(22.0, 26.0, 1e-5)})
