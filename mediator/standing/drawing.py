"""Drawings of standing queries' plans: their probe trees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

__all__ = ["drawing"]

_COLUMN: Final = 190
_ROW: Final = 56
_BOX: Final = (120, 32)
_MARGIN: Final = 24

_STYLE: Final = (
    "text{font:13px sans-serif;text-anchor:middle;fill:#222}"
    ".heading{font-weight:bold;text-anchor:start}"
    "rect{fill:#eef3fa;stroke:#456}"
    ".start{fill:#fff}"
    "path{fill:none;stroke:#456;stroke-width:1.5}"
    ".shared{stroke:#b3541e;stroke-width:3.5}"
)


def drawing(report: Mapping[str, Any], names: Mapping[str, str] | None = None) -> str:
    """Return the probe trees of plans as SVG; steps that several joins share are thicker.

    `names` maps the queries' identifiers in the report to names.
    """
    names = names or {}
    shapes: list[str] = []
    row = 0
    for plan in report["plans"]:
        queries = ", ".join(names.get(query) or query for query in plan["queries"])
        shapes.append(_heading(row, f"{queries}: {plan['cost']:,.6g} tuples/s"))
        row += 1
        for tree in _trees(plan["hops"]):
            tree_shapes, row = _draw_tree(tree, row)
            shapes += tree_shapes
    depth = max(len(_steps(hop)) for plan in report["plans"] for hop in plan["hops"])
    width = _COLUMN * depth + 2 * _MARGIN
    height = _ROW * row + 2 * _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        f' width="{width}" height="{height}" role="img">'
        f"<title>Probe trees: {report['cost']:,.6g} tuples a second</title>"
        f"<style>{_STYLE}</style>{''.join(shapes)}</svg>\n"
    )


def _trees(hops: Sequence[Mapping[str, Any]]) -> Iterator[dict[tuple[str, ...], Any]]:
    """Group hops by their first relation, and by path."""
    by_path = {tuple(_steps(hop)): hop for hop in hops}
    for start in dict.fromkeys(path[0] for path in by_path):
        yield {path: hop for path, hop in by_path.items() if path[0] == start}


def _steps(hop: Mapping[str, Any]) -> list[str]:
    return str(hop["order"]).strip("⟨⟩").split(", ")


def _draw_tree(tree: Mapping[tuple[str, ...], Any], row: int) -> tuple[list[str], int]:
    """Draw a tree from a row on; return the shapes and the first row below it."""
    root = next(iter(tree))[:1]
    shapes: list[str] = []

    def draw(path: tuple[str, ...], at: int) -> int:
        shapes.append(_box(len(path) - 1, at, path[-1], is_start=path == root))
        below = at
        children = [other for other in tree if other[:-1] == path]
        for child in children:
            shapes.append(_edge(len(path) - 1, at, below, tree[child]))
            below = draw(child, below)
        return max(below, at + 1)

    return shapes, draw(root, row)


def _heading(row: int, text: str) -> str:
    return f'<text class="heading" x="{_MARGIN}" y="{_middle(row)}">{escape(text)}</text>'


def _box(column: int, row: int, text: str, *, is_start: bool) -> str:
    width, height = _BOX
    left, top = _MARGIN + column * _COLUMN, _middle(row) - height // 2
    kind = ' class="start"' if is_start else ""
    return (
        f'<rect{kind} x="{left}" y="{top}" width="{width}" height="{height}" rx="5"/>'
        f'<text x="{left + width // 2}" y="{_middle(row) + 5}">{escape(text)}</text>'
    )


def _edge(column: int, row: int, to_row: int, hop: Mapping[str, Any]) -> str:
    left = _MARGIN + column * _COLUMN + _BOX[0]
    right = _MARGIN + (column + 1) * _COLUMN
    turn = left + 14
    middle = (turn + right) // 2
    kind = ' class="shared"' if len(hop["joins"]) > 1 else ""
    line = f"M{left} {_middle(row)}H{turn}V{_middle(to_row)}H{right}"
    label = f'<text x="{middle}" y="{_middle(to_row) - 8}">{hop["cost"]:,.6g}</text>'
    return f'<path{kind} d="{line}"/>{label}'


def _middle(row: int) -> int:
    return _MARGIN + row * _ROW + _ROW // 2
