"""The tables of figures, a few of them in the README."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.readme import FIGURES, README, in_full, in_short, renewed, reports_in

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


def test_every_result_is_a_row_of_the_section_of_its_benchmark() -> None:
    section = in_full([REPORT]).partition("## ppm\n\n")[2].splitlines()
    assert section[0].startswith("`portolan bench ppm`: 2 cores, x86_64, Python 3.11.2;")
    assert section[0].endswith("redis 6.2.14; calibration 0.05 s.")
    assert section[4:] == [
        "| hits | 4,513 updates/s | 2,000 | 2.26 | 1.5 | met |",
        "| top ten | 12.5 ms |  |  | 10 ms, **missed** | missed |",
    ]


def test_a_missed_target_is_shown_for_its_benchmark() -> None:
    lines = in_short([REPORT]).splitlines()[2:]
    assert lines == ["| `ppm` | top ten | 12.5 ms |  |  | 10 ms, **missed** | 1 of 2 |"]


def test_without_a_missed_target_the_result_nearest_to_its_bar_is_shown() -> None:
    far = {**HITS, "name": "far beyond", "ratio": 30.0}
    lines = in_short([{**REPORT, "results": [far, HITS]}]).splitlines()[2:]
    assert lines == ["| `ppm` | hits | 4,513 updates/s | 2,000 | 2.26 | 1.5 | 2 of 2 |"]


def test_without_bars_the_first_result_is_shown() -> None:
    lines = in_short([{**REPORT, "results": [{**HITS, "bar": None, "met": None}]}]).splitlines()[2:]
    assert lines == ["| `ppm` | hits | 4,513 updates/s | 2,000 | 2.26 |  | none is set |"]


def test_new_figures_replace_the_old_ones() -> None:
    text = README.read_text()
    updated = renewed(text, [{**REPORT, "name": "join"}])
    assert "12.5 ms" in updated
    assert renewed(updated, []) == renewed(text, [])


def test_the_readme_names_every_benchmark_with_missed_bars() -> None:
    met = {**REPORT, "name": "feed", "results": [HITS]}
    text = renewed(README.read_text(), [REPORT, met])
    assert "| `ppm` |" not in text
    assert "2 of all 3 bars are met. Short of theirs: `ppm` (1 of 2)." in text


def test_a_readme_without_a_place_for_figures_is_refused() -> None:
    with pytest.raises(ValueError, match="no place"):
        renewed("# Portolan", [REPORT])
