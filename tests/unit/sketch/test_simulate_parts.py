"""The simulator's components: latencies, workloads, hill climbing."""

from __future__ import annotations

import math
from statistics import fmean

import numpy as np
import pytest

from sketch.instruments.simulate.comparison import hill_climbing
from sketch.instruments.simulate.latency import Latency, parse, stream
from sketch.instruments.simulate.workload import (
    WORKLOADS,
    Mix,
    Schedule,
    YcsbWorkload,
    schedule,
    zipf,
)
from sketch.instruments.simulate.world import layers_of


@pytest.mark.parametrize(
    ("text", "latency", "mean_s"),
    [
        ("constant(2)", Latency("constant", (0.002,)), 0.002),
        ("normal(86.5, 5)", Latency("normal", (0.0865, 0.005)), 0.0865),
        (" lognormal(20, 0.5) ", Latency("lognormal", (0.020, 0.5)), 0.020 * np.exp(0.125)),
        ("exponential(3,1)", Latency("exponential", (0.003, 0.001)), 0.004),
    ],
)
def test_latencies(text: str, latency: Latency, mean_s: float) -> None:
    assert parse(text) == latency
    times = latency.sample(np.random.default_rng(1), 20_000)
    assert times.min() >= 0
    assert times.mean() == pytest.approx(mean_s, rel=0.03)


def test_streams_draw_one_by_one() -> None:
    draw = stream(parse("exponential(2000, 1000)"), np.random.default_rng(1))
    times = [draw() for _ in range(10_000)]
    assert min(times) >= 1.0
    assert fmean(times) == pytest.approx(3, rel=0.05)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2",
        "constant",
        "constant()",
        "constant(-1)",
        "normal(1)",
        "uniform(1,2)",
        "constant(inf)",
    ],
)
def test_invalid_latencies(text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)


def draw_schedule(letter: str) -> Schedule:
    work = YcsbWorkload(WORKLOADS[letter], operations=20_000, records=500, max_scan_length=10)
    return schedule(work, np.random.default_rng(1))


@pytest.mark.parametrize(
    ("letter", "accesses", "writes"),
    [
        ("a", 20_000, 0.5),
        ("b", 20_000, 0.05),
        ("c", 20_000, 0.0),
        ("d", 20_000, 0.05),
        ("f", 30_000, 1 / 3),
    ],
)
def test_workloads(letter: str, accesses: int, writes: float) -> None:
    result = draw_schedule(letter)
    assert len(result.key) == pytest.approx(accesses, rel=0.02)
    assert result.write.mean() == pytest.approx(writes, abs=0.01)
    assert (np.diff(result.begin_s) >= 0).all()
    assert result.key.min() >= 0
    assert result.key.max() < result.records
    assert set(result.client) == set(range(10))


def test_scans_read_records_in_a_row() -> None:
    result = draw_schedule("e")
    assert result.operations == 20_000
    reads = ~result.write
    assert reads.sum() == pytest.approx(5.5 * 19_000, rel=0.03)
    same = result.begin_s[1:] == result.begin_s[:-1]
    assert (np.diff(result.key)[same] == 1).all()


def test_inserts_make_records_that_are_then_read() -> None:
    result = draw_schedule("d")
    inserted = result.key[result.write]
    assert inserted.tolist() == list(range(500, 500 + len(inserted)))
    assert result.records == 500 + len(inserted)
    first = dict(zip(inserted, result.begin_s[result.write], strict=True))
    reads = zip(result.key[~result.write], result.begin_s[~result.write], strict=True)
    assert all(key < 500 or at >= first[key] for key, at in reads)


def test_popularity() -> None:
    counts = np.bincount(zipf(100, 200_000, np.random.default_rng(1)), minlength=100)
    assert counts[0] / counts[9] == pytest.approx(10**0.99, rel=0.1)


def test_seasons_change_the_popular_keys() -> None:
    work = YcsbWorkload(Mix("", read=1.0, seasons=4), operations=8_000)
    keys = schedule(work, np.random.default_rng(1)).key.reshape(4, -1)
    favourites = [int(np.bincount(season).argmax()) for season in keys]
    assert len(set(favourites)) == 4


def test_layers() -> None:
    has_client, layers = layers_of("cdn, client,proxy")
    assert has_client
    assert [layer.name for layer in layers] == ["proxy", "cdn"]
    assert layers_of("") == (False, ())
    with pytest.raises(ValueError, match="squid"):
        layers_of("client,squid")


def test_hill_climbing_finds_the_optimum() -> None:
    points: list[tuple[float, float]] = []

    def cost(slope: float, max_ttl_s: float) -> float:
        points.append((slope, max_ttl_s))
        return abs(slope + 0.1) + abs(math.log(max_ttl_s / 37.5))

    summit = hill_climbing(cost, starts=3, seed=1)
    assert (summit.slope, summit.max_ttl_s) == pytest.approx((-0.1, 37.5))
    assert summit.cost == pytest.approx(0, abs=1e-9)
    assert len(points) == len(set(points)) == summit.evaluations


def test_an_optimum_with_slope_zero_is_found() -> None:
    summit = hill_climbing(
        lambda slope, max_ttl_s: abs(slope - 0.8) if slope else abs(max_ttl_s - 37.5) - 1,
        starts=3,
        seed=1,
    )
    assert (summit.slope, summit.max_ttl_s) == (0, 37.5)


def test_the_number_of_steps_is_bounded() -> None:
    """A cost that falls for ever."""
    summit = hill_climbing(lambda slope, _: slope, starts=1, seed=1)
    assert summit.evaluations < 250
