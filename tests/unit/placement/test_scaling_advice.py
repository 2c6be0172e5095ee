"""Scaling advice: the rules of docs/papers/wattdb.md, section 2, and the trace of section 4."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mediator.placement.candidates import Candidate
from mediator.scaling.advisor import Advisor
from mediator.scaling.model import BAND, Sample, ScalingSubject, SystemFigures
from mediator.scaling.recommend import forecast, minutes, recommend
from mediator.schema.annotations import Metric

STORE = ScalingSubject("redis", 1800.0, 2.0, "more of it", "less of it")
HOUR = 3600
shares = st.floats(0.0, 2.0, allow_nan=False)


def history(used: Callable[[int], float], seconds: int = HOUR, every: int = 1) -> list[Sample]:
    return [Sample(float(at), used(at)) for at in range(0, seconds + 1, every)]


def recommendation_for(
    used: Callable[[int], float], seconds: int = HOUR, subject: ScalingSubject = STORE
) -> str:
    return recommend(subject, history(used, seconds), float(seconds)).recommendation


# --- the paper's rule trace (docs/papers/wattdb.md, section 4).


@pytest.mark.parametrize(
    ("for_s", "action"),
    [(59, "keep"), (61, "add")],
)
def test_high_load_counts_after_a_minute(for_s: int, action: str) -> None:
    assert recommendation_for(lambda at: 0.85 if at > HOUR - for_s else 0.5) == action


@pytest.mark.parametrize(("used", "action"), [(0.29, "remove"), (0.31, "keep")])
def test_a_mean_below_the_band_is_spare(used: float, action: str) -> None:
    assert recommendation_for(lambda _: used) == action


def test_a_load_that_stays_high_gets_the_same_advice_throughout() -> None:
    assert {recommendation_for(lambda _: 0.85, HOUR + later) for later in range(0, 300, 30)} == {
        "add"
    }


# --- Pitfalls (section 7).


def test_a_short_spike_changes_no_recommendation() -> None:
    assert recommendation_for(lambda at: 1.0 if at % 60 < 15 else 0.5) == "keep"


def test_a_square_wave_of_five_minutes_does_not_thrash() -> None:
    samples = history(lambda at: 0.75 if at // 300 % 2 else 0.1, 4 * HOUR, every=10)
    ends = range(200, len(samples), 3)
    actions = {recommend(STORE, samples[:end], samples[end - 1].at).recommendation for end in ends}
    assert actions == {"keep"}


def test_the_last_replica_is_never_removed() -> None:
    assert recommendation_for(lambda _: 0.0, subject=replace(STORE, growth=None)) == "keep"


def test_capacity_that_the_last_half_hour_needed_is_not_removed() -> None:
    assert recommendation_for(lambda at: 0.6 if at < HOUR - 1200 else 0.1) == "keep"


# --- Forecast.


def test_a_rising_load_is_forecast_before_it_exceeds_the_band() -> None:
    # 20 % at first, 60 % after an hour: 80 % in another half hour.
    rising = recommend(STORE, history(lambda at: 0.2 + 0.41 * at / HOUR), float(HOUR))
    assert rising.recommendation == "add"
    assert rising.forecast == pytest.approx(0.2 + 0.41 * 1.5, abs=0.01)
    assert "82%" in rising.why
    soon = replace(STORE, ahead_s=300.0)
    assert recommendation_for(lambda at: 0.2 + 0.41 * at / HOUR, subject=soon) == "keep"


@given(st.floats(-0.02, 0.02), st.floats(0.0, 1.0), st.integers(0, 3600))
def test_a_linear_trend_is_extrapolated(slope: float, start: float, ahead_s: int) -> None:
    means = [start + slope * (minute + 0.5) for minute in range(30)]
    expected = max(0.0, start + slope * (30 + ahead_s / 60))
    assert forecast(means, ahead_s) == pytest.approx(expected, abs=1e-9)


@given(
    st.lists(shares, min_size=8, max_size=8), st.sets(st.integers(0, 29), min_size=8, max_size=8)
)
def test_outliers_in_a_quarter_of_the_minutes_do_not_matter(
    outliers: list[float], positions: set[int]
) -> None:
    means = [0.5] * 30
    for minute, used in zip(positions, outliers, strict=True):
        means[minute] = used
    assert forecast(means, 1800.0) == pytest.approx(0.5, abs=1e-9)


def test_a_minute_without_samples_leaves_no_forecast() -> None:
    samples = [s for s in history(lambda _: 0.1) if not 3000 < s.at < 3130]
    assert minutes(samples, float(HOUR)) is None
    advice = recommend(STORE, samples, float(HOUR))
    assert (advice.recommendation, advice.forecast) == ("keep", None)


# --- Unknown loads.


@pytest.mark.parametrize("age", [31, 600])
def test_old_samples_give_no_recommendation(age: int) -> None:
    assert recommend(STORE, history(lambda _: 0.5), HOUR + float(age)).recommendation == "unknown"


def test_less_than_a_minute_gives_no_recommendation() -> None:
    assert recommendation_for(lambda _: 0.95, 59) == "unknown"
    assert recommendation_for(lambda _: 0.95, 61) == "add"
    assert recommend(STORE, [], 0.0).recommendation == "unknown"


# --- Laws.


def loads_of(count: int) -> st.SearchStrategy[list[float]]:
    """Return `count` shares below a drawn limit: low and high loads lead to different advice."""
    return st.floats(0.0, 2.0).flatmap(
        lambda limit: st.lists(st.floats(0.0, limit), min_size=count, max_size=count)
    )


@given(st.integers(8, 40).flatmap(loads_of) | loads_of(181), st.floats(0.0, 1.0))
@example([0.1] * 181, 0.3)
def test_more_load_never_leads_to_fewer_replicas(loads: list[float], increase: float) -> None:
    order = ["remove", "keep", "add"]
    end = 10.0 * (len(loads) - 1)
    before = [Sample(10.0 * n, used) for n, used in enumerate(loads)]
    after = [Sample(at, used + increase) for at, used in before]
    actions = [recommend(STORE, samples, end).recommendation for samples in (before, after)]
    assert "unknown" not in actions
    assert order.index(actions[0]) <= order.index(actions[1])


@given(loads_of(181))
@example([0.1] * 181)
def test_a_removal_keeps_the_load_within_the_band(loads: list[float]) -> None:
    advice = recommend(STORE, [Sample(10.0 * n, used) for n, used in enumerate(loads)], 1800.0)
    assert advice.peak is not None
    assert advice.recommendation != "remove" or advice.peak * 2 <= BAND.high
    assert advice.why.endswith(".")


# --- Utilisation.


def test_reads_and_writes_share_a_server() -> None:
    figures = SystemFigures(
        {"read": 500.0, "write": 100.0},
        {"read": 1000.0, "write": 400.0},
        {"read": 0.002, "write": 0.01},
    )
    assert figures.used == pytest.approx(0.75)
    assert figures.in_flight == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("rates", "capacities", "used"),
    [
        ({}, {}, None),
        ({"read": 1.0}, {"write": 10.0}, None),
        ({"read": 0.0}, {"write": 10.0}, 0.0),
        ({"read": 1.0}, {"read": 0.0}, None),
    ],
)
def test_utilisation_needs_a_known_capacity(
    rates: dict[str, float], capacities: dict[str, float], used: float | None
) -> None:
    assert SystemFigures(rates, capacities, {}).used == used


# --- The advisor.


class Simulation:
    """A clock, a processor and a system that the test controls."""

    def __init__(self) -> None:
        self.now = 0.0
        self.worked_s = 0.0
        self.rate = 0.0
        self.names = ["redis"]

    def advisor(self) -> Advisor:
        clock: Any = SimpleNamespace(monotonic=lambda: self.now)
        return Advisor(self.candidates, self.offered, clock, lambda: self.worked_s)

    def candidates(self) -> list[Candidate]:
        metrics = {Metric.WRITE_THROUGHPUT: 1000.0, Metric.WRITE_LATENCY: 0.002}
        return [Candidate(name, metrics=metrics) for name in self.names]

    def offered(self) -> dict[tuple[str, str], float]:
        return {("redis", "write"): self.rate}

    async def run(self, advisor: Advisor, seconds: int, busy: float) -> dict[str, Any]:
        for _ in range(0, seconds, 10):
            self.now += 10.0
            self.worked_s += 10.0 * busy
            await advisor.sample()
        return advisor.advise()


async def test_systems_and_the_service_are_advised_by_their_load() -> None:
    simulation = Simulation()
    advisor, simulation.rate = simulation.advisor(), 900.0
    advice = await simulation.run(advisor, 120, busy=0.2)
    redis, service = advice["systems"]["redis"], advice["service"]
    assert (redis["recommendation"], redis["utilisation"]) == ("add", pytest.approx(0.9))
    assert redis["in_flight"] == pytest.approx(1.8)
    assert (service["recommendation"], service["utilisation"]) == ("keep", pytest.approx(0.2))
    simulation.rate = 100.0
    advice = await simulation.run(advisor, 4000, busy=0.2)
    assert advice["systems"]["redis"]["recommendation"] == "remove"
    assert "nothing" in advice["service"]["why"], "it is the only replica"


async def test_replicas_are_advised_together() -> None:
    simulation = Simulation()
    advisor = simulation.advisor()
    advisor.merge([{"used": 0.1}, {"used": None}, {}])
    advice = (await simulation.run(advisor, 2000, busy=0.3))["service"]
    assert advice["utilisation"] == pytest.approx(0.2)
    assert (advice["replicas"], advice["highest"]) == (4, pytest.approx(0.3))
    assert advice["recommendation"] == "remove"
    assert advisor.shared() == {"used": pytest.approx(0.3)}


async def test_a_replica_that_has_ended_is_not_counted() -> None:
    simulation = Simulation()
    advisor = simulation.advisor()
    advisor.merge([{"used": 0.1, "age_s": 5.0}, {"used": 0.9, "age_s": 15.0}])
    advice = (await simulation.run(advisor, 2000, busy=0.3))["service"]
    assert (advice["replicas"], advice["highest"]) == (2, pytest.approx(0.3))


async def test_a_removed_system_is_forgotten() -> None:
    simulation = Simulation()
    advisor = simulation.advisor()
    await simulation.run(advisor, 120, busy=0.5)
    simulation.names = []
    assert (await simulation.run(advisor, 10, busy=0.5))["systems"] == {}
    simulation.names = ["redis"]
    advice = await simulation.run(advisor, 10, busy=0.5)
    assert advice["systems"]["redis"]["recommendation"] == "unknown"
