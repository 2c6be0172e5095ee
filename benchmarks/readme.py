"""The tables of figures, rendered from the reports in `docs/figures`.

`portolan bench NAME --json docs/figures/NAME.json` records a report; `python -m benchmarks.readme`
updates the README, which has the figures for every reader and the missed bars, and `make reference`
the page with all figures. Tests compare them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

__all__ = ["FIGURES", "README", "bars_met", "in_full", "in_short", "renewed", "reports_in"]

_ROOT: Final = Path(__file__).parent.parent
README: Final = _ROOT / "README.md"
FIGURES: Final = _ROOT / "docs" / "figures"

_BEGIN: Final = "<!-- figures: made by `python -m benchmarks.readme`, not by hand -->\n"
_END: Final = "<!-- end of figures -->\n"
_FOR_EVERYONE: Final = ("overhead", "coherence", "query", "join", "split", "feed", "linkage")
"""The benchmarks in the README: what a request, a cached read, a query, a write over two systems,
the change feed and a job cost or yield."""

_HEAD: Final = "| what | figure | compared with | ratio | bar | |\n|---|---|---|---|---|---|\n"
_SUMMARY_HEAD: Final = (
    "| `portolan bench` | its worst result | figure | against | ratio | bar |"
    " bars met |\n|---|---|---|---|---|---|---|\n"
)
_NO_FIGURES: Final = "No figures have been recorded yet.\n"
_THOUSAND: Final = 1000


def reports_in(directory: Path) -> list[dict[str, Any]]:
    """Read the reports of a directory in the order of their names; none if it does not exist."""
    return [orjson.loads(file.read_bytes()) for file in sorted(directory.glob("*.json"))]


def in_full(reports: Sequence[Mapping[str, Any]]) -> str:
    """Render reports as Markdown: a summary, then a section with every result of each."""
    return in_short(reports) + "".join(map(_section, reports))


def in_short(reports: Sequence[Mapping[str, Any]]) -> str:
    """Render the worst result of each report: the furthest short of its bar, or nearest to it."""
    if not reports:
        return _NO_FIGURES
    return _SUMMARY_HEAD + "".join(map(_worst, reports))


def renewed(readme: str, reports: Sequence[Mapping[str, Any]]) -> str:
    """Return a README with its figures rendered again.

    Raises:
        ValueError: The comments around the table are missing.
    """
    before, begin, rest = readme.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise ValueError(f"the README has no place for figures: {_BEGIN.strip()}")
    main_reports = [report for report in reports if report["name"] in _FOR_EVERYONE]
    return f"{before}{begin}\n{in_short(main_reports)}\n{_missed(reports)}\n{end}{after}"


def _missed(reports: Sequence[Mapping[str, Any]]) -> str:
    """Render the number of bars, and the benchmarks that miss some of theirs."""
    counts_by_name = {report["name"]: _count_bars(report) for report in reports}
    met, bars = (sum(counts) for counts in zip((0, 0), *counts_by_name.values(), strict=True))
    short = [
        f"`{name}` ({met} of {bars})" for name, (met, bars) in counts_by_name.items() if met < bars
    ]
    return f"{met} of all {bars} bars are met. Short of theirs: {', '.join(short) or 'none'}.\n"


def _section(report: Mapping[str, Any]) -> str:
    rows = "".join(map(_row, report["results"]))
    return f"\n## {report['name']}\n\n{_measured_on(report)}\n{_HEAD}{rows}"


def _worst(report: Mapping[str, Any]) -> str:
    with_bar = [result for result in report["results"] if result["bar"] is not None]
    missed = [result for result in with_bar if not result["met"]]
    worst = min(missed, key=_nearness, default=None) or max(with_bar, key=_nearness, default=None)
    return _line(f"`{report['name']}`", *_cells(worst or report["results"][0]), bars_met(report))


def bars_met(report: Mapping[str, Any]) -> str:
    """Describe how many bars of a report are met."""
    met, bars = _count_bars(report)
    return f"{met} of {bars}" if bars else "none is set"


def _count_bars(report: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many bars of a report are met, and their number."""
    outcomes = [result["met"] for result in report["results"] if result["bar"] is not None]
    return sum(outcomes), len(outcomes)


def _nearness(result: Mapping[str, Any]) -> float:
    """Return 1 for a result at its bar, and less for a result far from it on either side."""
    reached, bar = result["figure"] if result["ratio"] is None else result["ratio"], result["bar"]
    return min(reached / bar, bar / reached) if reached and bar else 0.0


def _row(result: Mapping[str, Any]) -> str:
    outcome = "" if result["bar"] is None else "met" if result["met"] else "missed"
    return _line(*_cells(result), outcome)


def _cells(result: Mapping[str, Any]) -> tuple[str, ...]:
    unit, bar, ratio = result["unit"], result["bar"], result["ratio"]
    goal = "" if bar is None else f"{bar:g}" + (f" {unit}" if ratio is None else "")
    return (
        result["name"],
        f"{_number(result['figure'])} {unit}",
        "" if result["baseline"] is None else _number(result["baseline"]),
        "" if ratio is None else f"{ratio:.2f}",
        f"{goal}, **missed**" if bar is not None and not result["met"] else goal,
    )


def _line(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |\n"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= _THOUSAND else f"{value:g}"


def _measured_on(report: Mapping[str, Any]) -> str:
    machine = report["machine"]
    servers = ", ".join(sorted(set(report["versions"].values()))) or "no server"
    return (
        f"`portolan bench {report['name']}`: {machine['cores']} cores, {machine['processor']},"
        f" Python {machine['python']}; {servers}; calibration {report['calibration']:g} s.\n"
    )


def main() -> None:
    README.write_text(renewed(README.read_text(), reports_in(FIGURES)))


if __name__ == "__main__":
    main()
