"""The framework of the benchmarks: results, reports and the list of benchmarks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

import benchmarks
from app.commands.demo.rounds import interleaved
from app.commands.demo.workload import draw
from benchmarks.harness.report import Options, Result, rounded
from benchmarks.harness.runner import (
    UnknownBenchmark,
    available,
    calibration_s,
    describe_machine,
    lines,
    measure,
)

REPORT = {"name", "results", "seed", "machine", "calibration", "versions"}
RESULT = {"name", "unit", "figure", "baseline", "ratio", "bar", "met"}


@pytest.mark.parametrize(
    ("result", "ratio", "met"),
    [
        (Result("x", "ops/s", 30, 10, 3.0), 3.0, True),
        (Result("x", "ops/s", 29, 10, 3.0), 2.9, False),
        (Result("x", "ops/s", 30, 10), 3.0, None),
        (Result("x", "ms", 9, bar=10, small_is_good=True), None, True),
        (Result("x", "ms", 11, bar=10, small_is_good=True), None, False),
        (Result("x", "ops/s", 11, bar=10), None, True),
    ],
)
def test_a_bar_applies_to_the_ratio_or_else_to_the_figure(
    result: Result, ratio: float | None, met: bool | None
) -> None:
    assert (result.ratio, result.met) == (ratio, met)
    assert result.to_json().keys() == RESULT


@given(st.floats(min_value=1e-9, max_value=1e9))
def test_rounding_keeps_four_digits(value: float) -> None:
    result = rounded(value)
    assert result is not None
    assert result == pytest.approx(value, rel=1e-3)
    assert rounded(result) == result


def test_draws_follow_zipf_and_the_seed() -> None:
    items = list("abcdefgh")
    draws = draw(items, 20_000, seed=3)
    counts = Counter(draws)
    assert draws == draw(items, 20_000, seed=3)
    assert draws != draw(items, 20_000, seed=4)
    assert counts["a"] / counts["b"] == pytest.approx(2, rel=0.1)
    assert counts["a"] / counts["d"] == pytest.approx(4, rel=0.1)


async def test_variants_are_measured_alternately_in_changing_order() -> None:
    order: list[str] = []

    async def variant(name: str) -> int:
        order.append(name)
        return len(order)

    measured = await interleaved(3, {"a": lambda: variant("a"), "b": lambda: variant("b")})
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert measured == {"a": [1, 4, 5], "b": [2, 3, 6]}


STAND_IN = '''"""Nothing, measured quickly.

More.
"""

from benchmarks.harness.report import Measured, Result


async def run(options):
    options.log("working")
    results = [Result("a", "ops/s", 3, 1, 2), Result("b", "ms", 3), Result("c", "s", 3, bar=4)]
    return Measured(results, {"redis": "redis 6"})
'''


async def test_a_report_has_its_form(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A report of a stand-in benchmark has the form of docs/benchmarks.md."""
    (tmp_path / "stands_in.py").write_text(STAND_IN)
    monkeypatch.setattr(benchmarks, "__path__", [str(tmp_path)])
    printed: list[str] = []
    report = await measure("stands-in", Options(seed=7, log=printed.append))
    assert printed == ["working"]
    assert orjson.loads(orjson.dumps(report)).keys() == REPORT
    assert [result["met"] for result in report["results"]] == [True, None, False]
    assert report["seed"] == 7
    assert report["versions"] == {"redis": "redis 6"}
    assert available()["stands_in"] == "Nothing, measured quickly."
    assert lines(report) == [
        "a: 3 ops/s against 1, ratio 3.00 (bar 2: met)",
        "b: 3 ms",
        "c: 3 s (bar 4: missed)",
    ]


async def test_an_unknown_name_is_refused() -> None:
    assert "ppm" in available()
    assert "runner" not in available()
    with pytest.raises(UnknownBenchmark, match="ppm"):
        await measure("no_such_thing", Options())


def test_the_machine_is_described() -> None:
    assert calibration_s() > 0
    assert describe_machine()["cores"]
