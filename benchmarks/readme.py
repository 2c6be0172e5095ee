"""The table of figures in the README, made from the reports in `docs/figures`.

`portolan bench NAME --json docs/figures/NAME.json` records a report; `python -m benchmarks.readme`
brings the README up to date. A test holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

__all__ = ["FIGURES", "README", "renewed", "reports_in", "table"]

_ROOT: Final = Path(__file__).parent.parent
README: Final = _ROOT / "README.md"
FIGURES: Final = _ROOT / "docs" / "figures"

_BEGIN: Final = "<!-- figures: made by `python -m benchmarks.readme`, not by hand -->\n"
_END: Final = "<!-- end of figures -->\n"
_HEAD: Final = "| what | figure | compared with | ratio | bar | |\n|---|---|---|---|---|---|\n"
_NOTHING: Final = "No figures have been recorded yet.\n"
_THOUSAND: Final = 1000


def reports_in(directory: Path) -> list[dict[str, Any]]:
    """Read the reports of a directory in the order of their names; none if it is not there."""
    return [orjson.loads(file.read_bytes()) for file in sorted(directory.glob("*.json"))]


def table(reports: Sequence[Mapping[str, Any]]) -> str:
    """Render reports (DESIGN, section 10) as Markdown: a table, and what each was measured on."""
    if not reports:
        return _NOTHING
    rows = [_row(result) for report in reports for result in report["results"]]
    return _HEAD + "".join(rows) + "\n" + "".join(_measured_on(report) for report in reports)


def renewed(readme: str, reports: Sequence[Mapping[str, Any]]) -> str:
    """Return a README with its table made anew.

    Raises:
        ValueError: The marks between which the table stands are not there.
    """
    before, begin, rest = readme.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise ValueError(f"the README has no place for figures: {_BEGIN.strip()}")
    return before + begin + "\n" + table(reports) + "\n" + end + after


def _row(result: Mapping[str, Any]) -> str:
    unit, bar, ratio = result["unit"], result["bar"], result["ratio"]
    compared = "" if result["baseline"] is None else _number(result["baseline"])
    cells = (
        result["name"],
        f"{_number(result['figure'])} {unit}",
        compared,
        "" if ratio is None else f"{ratio:.2f}",
        "" if bar is None else f"{bar:g}" + (f" {unit}" if ratio is None else ""),
        "" if bar is None else ("met" if result["met"] else "**missed**"),
    )
    return "| " + " | ".join(cells) + " |\n"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= _THOUSAND else f"{value:g}"


def _measured_on(report: Mapping[str, Any]) -> str:
    machine = report["machine"]
    servers = ", ".join(sorted(set(report["versions"].values()))) or "no server"
    return (
        f"- `portolan bench {report['name']}`: {machine['cores']} cores, {machine['processor']},"
        f" Python {machine['python']}; {servers}; calibration {report['calibration']:g} s.\n"
    )


def main() -> None:
    """Bring the README up to date."""
    README.write_text(renewed(README.read_text(), reports_in(FIGURES)))


if __name__ == "__main__":
    main()
