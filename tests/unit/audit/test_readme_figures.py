"""The tables of figures, in short in the README."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.readme import FIGURES, README, renewed, reports_in, summary, table

HITS = {
    "name": "hits",
    "unit": "updates/s",
    "figure": 4513.0,
    "baseline": 2000.0,
    "ratio": 2.256,
    "bar": 1.5,
    "met": True,
}
TOP_TEN = {
    "name": "top ten",
    "unit": "ms",
    "figure": 12.5,
    "baseline": None,
    "ratio": None,
    "bar": 10.0,
    "met": False,
}
REPORT: dict[str, Any] = {
    "name": "ppm",
    "results": [HITS, TOP_TEN],
    "machine": {"cores": 2, "processor": "x86_64", "system": "Linux", "python": "3.11.2"},
    "calibration": 0.05,
    "versions": {"redis": "redis 6.2.14"},
}


def test_the_readme_has_the_figures_that_were_recorded() -> None:
    text = README.read_text()
    assert renewed(text, reports_in(FIGURES)) == text


def test_every_result_is_a_row() -> None:
    told = table([REPORT]).splitlines()
    assert told[2] == "| hits | 4,513 updates/s | 2,000 | 2.26 | 1.5 | met |"
    assert told[3] == "| top ten | 12.5 ms |  |  | 10 ms, **missed** | missed |"


def test_what_missed_its_bar_stands_for_its_benchmark() -> None:
    told = summary([REPORT]).splitlines()[2:]
    assert told == ["| `ppm` | top ten | 12.5 ms |  |  | 10 ms, **missed** | 1 of 2 |"]


def test_else_what_comes_nearest_to_its_bar_does() -> None:
    far = {**HITS, "name": "far beyond", "ratio": 30.0}
    told = summary([{**REPORT, "results": [far, HITS]}]).splitlines()[2:]
    assert told == ["| `ppm` | hits | 4,513 updates/s | 2,000 | 2.26 | 1.5 | 2 of 2 |"]


def test_without_bars_the_first_result_does() -> None:
    told = summary([{**REPORT, "results": [{**HITS, "bar": None, "met": None}]}]).splitlines()[2:]
    assert told == ["| `ppm` | hits | 4,513 updates/s | 2,000 | 2.26 |  | none is set |"]


def test_figures_are_told_with_what_they_were_measured_on() -> None:
    told = table([REPORT]).splitlines()[5]
    assert told.startswith("- `portolan bench ppm`: 2 cores, x86_64, Python 3.11.2;")
    assert told.endswith("redis 6.2.14; calibration 0.05 s.")


def test_a_new_table_takes_the_place_of_the_old_one() -> None:
    text = README.read_text()
    once = renewed(text, [REPORT])
    assert "12.5 ms" in once
    assert renewed(once, []) == renewed(text, [])


def test_a_readme_without_a_place_for_figures_is_refused() -> None:
    with pytest.raises(ValueError, match="no place"):
        renewed("# Portolan", [REPORT])
