"""Plans of continuous queries as drawings: a tree, and costs over rates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise
from math import log10
from typing import Any, Final

from app.commands.continuous_view import summary

__all__ = ["plan_drawing", "sweep_drawing"]

_COLUMN, _ROW = 190, 64
_BOX: Final = (160, 44)
_MARGIN: Final = 24
_PLOT: Final = (720, 320)
_LEFT: Final = 64
_DECADES: Final = 4

_STYLE: Final = (
    "text{font:12px sans-serif;text-anchor:middle;fill:#222}"
    ".left{text-anchor:start}.right{text-anchor:end}"
    "rect{fill:#eef3fa;stroke:#456}"
    ".database{fill:#fbeee3;stroke:#b3541e}"
    "path{fill:none;stroke:#456;stroke-width:1.5}"
    ".grid{stroke:#ccc;stroke-width:1}.limit{stroke:#a00;stroke-dasharray:6 4}"
    ".switch{stroke:#888;stroke-dasharray:2 4}"
    ".best{stroke:#222;stroke-width:3}.all_spark{stroke:#456}.all_database{stroke:#b3541e}"
)
_CURVES: Final = {
    "all_spark": "all on Spark",
    "all_database": "all in the database",
    "cost": "best",
}


def plan_drawing(report: Mapping[str, Any]) -> str:
    """Draw the tree of a plan, root on the left; operators in the database are coloured."""
    operators = {operator["name"]: operator for operator in report["operators"]}
    positions: dict[str, tuple[int, int]] = {}
    rows = 0

    def arrange(name: str, column: int) -> None:
        nonlocal rows
        positions[name] = column, rows
        for index, child in enumerate(operators[name]["of"]):
            rows += index > 0
            arrange(child, column + 1)

    arrange(report["operators"][-1]["name"], 0)
    shapes = [
        _edge(positions[name], positions[child])
        for name, operator in operators.items()
        for child in operator["of"]
    ]
    shapes += [_box(operator, positions[name]) for name, operator in operators.items()]
    width = _COLUMN * (1 + max(column for column, _ in positions.values())) + 2 * _MARGIN
    return _svg(width, _ROW * (rows + 1) + 2 * _MARGIN, summary(report["cost"]), shapes)


def sweep_drawing(report: Mapping[str, Any]) -> str:
    """Draw the bottleneck of the best plan and of each engine alone, over rates."""
    rates = report["rates"]
    factors = [rate["factor"] for rate in rates]
    values = [rate[plan]["bottleneck"] for rate in rates for plan in _CURVES]
    top = max(1.0, *values)
    bottom = max(min(0.1, *values), top / 10**_DECADES)
    x = _scale(factors[0], factors[-1], _LEFT, _LEFT + _PLOT[0])
    y = _scale(bottom, top, _MARGIN + _PLOT[1], _MARGIN)
    shapes = [*_axes(x, y, factors, bottom, top)]
    for switch in report["switches"]:
        label = f"in the database: {', '.join(switch['to']) or 'nothing'}"
        switch_x = f"{x(switch['factor']):.1f}"
        line = f"M{switch_x} {_MARGIN}V{_MARGIN + _PLOT[1]}"
        shapes.append(f'<path class="switch" d="{line}"><title>{escape(label)}</title></path>')
    for number, (plan, label) in enumerate(_CURVES.items()):
        kind = "best" if plan == "cost" else plan
        points = [(x(rate["factor"]), y(max(bottom, rate[plan]["bottleneck"]))) for rate in rates]
        shapes.append(_line(kind, points))
        row = _MARGIN + 16 + 18 * number
        shapes.append(f'<path class="{kind}" d="M{_LEFT + 12} {row - 4}h24"/>')
        shapes.append(f'<text class="left" x="{_LEFT + 42}" y="{row}">{label}</text>')
    height = _PLOT[1] + 2 * _MARGIN + 24
    return _svg(_LEFT + _PLOT[0] + _MARGIN, height, "Bottleneck by rate", shapes)


def _axes(
    x: Callable[[float], float],
    y: Callable[[float], float],
    factors: Sequence[float],
    bottom: float,
    top: float,
) -> Iterator[str]:
    for power in range(-9, 10):
        value = 10.0**power
        if bottom <= value <= top:
            kind = "limit" if power == 0 else "grid"
            yield f'<path class="{kind}" d="M{_LEFT} {y(value):.1f}h{_PLOT[0]}"/>'
            yield f'<text class="right" x="{_LEFT - 6}" y="{y(value) + 4:.1f}">{value:g}</text>'
    low = _MARGIN + _PLOT[1] + 18
    for factor in (factors[0], factors[len(factors) // 2], factors[-1]):
        yield f'<text x="{x(factor):.1f}" y="{low}">{factor:.3g}</text>'


def _scale(first: float, last: float, start: float, end: float) -> Callable[[float], float]:
    """Return a logarithmic scale."""
    span = log10(last) - log10(first) or 1.0
    return lambda value: start + (end - start) * (log10(value) - log10(first)) / span


def _line(kind: str, points: Sequence[tuple[float, float]]) -> str:
    steps = "".join(f"L{right:.1f} {low:.1f}" for _, (right, low) in pairwise(points))
    return f'<path class="{kind}" d="M{points[0][0]:.1f} {points[0][1]:.1f}{steps}"/>'


def _box(operator: Mapping[str, Any], position: tuple[int, int]) -> str:
    left, top = _corner(position)
    width, height = _BOX
    utilisation = operator["utilisation"]
    cost = "" if utilisation is None else f", {utilisation:.3f}"
    middle = left + width // 2
    return (
        f'<rect class="{operator["engine"]}" x="{left}" y="{top}" width="{width}"'
        f' height="{height}" rx="5"/>'
        f'<text x="{middle}" y="{top + 18}">{escape(operator["name"][:24])}</text>'
        f'<text x="{middle}" y="{top + 35}">{operator["kind"]}{cost}</text>'
    )


def _edge(position: tuple[int, int], child: tuple[int, int]) -> str:
    (left, top), (right, low) = _corner(position), _corner(child)
    start, half = left + _BOX[0], _BOX[1] // 2
    turn = start + (right - start) // 2
    return f'<path d="M{start} {top + half}H{turn}V{low + half}H{right}"/>'


def _corner(position: tuple[int, int]) -> tuple[int, int]:
    column, row = position
    return _MARGIN + column * _COLUMN, _MARGIN + row * _ROW


def _svg(width: int, height: int, title: str, shapes: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        f' width="{width}" height="{height}" role="img"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style>{''.join(shapes)}</svg>\n"
    )
