"""Two sources that describe the same objects in different ways, with the true pairs.

Roads are a grid of streets that are not straight: each source moves the crossings by its own error,
divides some roads into pieces, leaves some out, and writes some names differently. Records are
people of households, many of whom share their names: their households distinguish them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import isqrt
from random import Random
from typing import Any, Final, NamedTuple, TypeAlias

__all__ = ["PEOPLE_SPEC", "ROADS_SPEC", "TwoSources", "accuracy", "households", "roads"]

Row: TypeAlias = dict[str, Any]
Point: TypeAlias = tuple[float, float]

_SPACING: Final = 100.0
_OMITTED: Final = 0.05
_DIVIDED: Final = 0.15
_RENAMED: Final = 0.2
_UNKNOWN: Final = 0.4
_GIVEN: Final = (
    *("Ada", "Ben", "Cora", "Dan", "Eva", "Finn", "Gina", "Hans", "Ida", "Jan", "Kim", "Lea"),
    *("Max", "Nora", "Otto", "Pia"),
)
_SURNAMES: Final = ("Abel", "Berg", "Dorn", "Engel", "Fuchs", "Graf", "Horn", "Jung", "Kern")

ROADS_SPEC: Final[Mapping[str, Any]] = {
    "blocking": {"grid": {"field": "line"}, "buffer": 15.0},
    "measures": [
        {"measure": "length", "field": "line", "weight": 0.2},
        {"measure": "turn", "field": "line", "weight": 0.05},
        {"measure": "chord", "field": "line", "weight": 0.05, "minimum": 0.6},
        {"measure": "start", "field": "line", "weight": 0.15},
        {"measure": "end", "field": "line", "weight": 0.15},
        {"measure": "text", "field": "name", "weight": 0.1, "abbreviations": {"st.": "street"}},
    ],
    "relational": 0.3,
    "threshold": 0.65,
}

PEOPLE_SPEC: Final[Mapping[str, Any]] = {
    "blocking": {"keys": [{"field": "code"}]},
    "measures": [
        {"measure": "text", "field": "name", "weight": 0.5},
        {"measure": "number", "field": "born", "weight": 0.2, "scale": 10.0, "missing": 0.5},
    ],
    "references": [{"field": "household"}],
    "relational": 0.3,
    "threshold": 0.5,
    "aggregation": False,
}


class TwoSources(NamedTuple):
    """Two tables, and the pairs of records that denote the same object."""

    left: Sequence[Row]
    right: Sequence[Row]
    truth: frozenset[tuple[str, str]]


def roads(count: int, seed: int) -> TwoSources:
    """Return two networks of together about `count` roads."""
    random = Random(seed)
    size = max(3, isqrt(count // 4))
    corners = {
        (x, y): (x * _SPACING + random.uniform(-25, 25), y * _SPACING + random.uniform(-25, 25))
        for x, y in product(range(size), repeat=2)
    }
    streets = [*_streets(size)]
    sources = [_draw_source(random, corners, streets, side) for side in ("l", "r")]
    truth = {
        (left, right)
        for pieces, other_pieces in zip(*(pieces for _, pieces in sources), strict=True)
        for left, right in _pair_pieces(pieces, other_pieces)
    }
    return TwoSources(sources[0][0], sources[1][0], frozenset(truth))


def _pair_pieces(pieces: Sequence[str], other_pieces: Sequence[str]) -> Iterable[tuple[str, str]]:
    """Pair the pieces of a road; sources that both divide it do so at the same place."""
    is_same_count = len(pieces) == len(other_pieces)
    return (
        zip(pieces, other_pieces, strict=True) if is_same_count else product(pieces, other_pieces)
    )


def _streets(size: int) -> Iterator[tuple[str, tuple[int, int], tuple[int, int]]]:
    for x, y in product(range(size), repeat=2):
        if x + 1 < size:
            yield f"{y} Lake Street", (x, y), (x + 1, y)
        if y + 1 < size:
            yield f"{x} Hill Street", (x, y), (x, y + 1)


def _draw_source(
    random: Random,
    corners: Mapping[tuple[int, int], Point],
    streets: Iterable[tuple[str, tuple[int, int], tuple[int, int]]],
    side: str,
) -> tuple[list[Row], list[list[str]]]:
    """Return the roads of one source, and for each street the ids of its pieces."""
    points_of = {at: _move(random, point) for at, point in corners.items()}
    rows: list[Row] = []
    pieces: list[list[str]] = []
    for number, (name, start, end) in enumerate(streets):
        pieces.append([])
        if random.random() < _OMITTED:
            continue
        middle = _middle(corners[start], corners[end], bend=number % 7 - 3)
        points = [points_of[start], _move(random, middle), points_of[end]]
        label = name.replace("Street", "st.") if random.random() < _RENAMED else name
        is_divided = random.random() < _DIVIDED
        for piece, line in enumerate([points[:2], points[1:]] if is_divided else [points]):
            if random.random() < 0.5:  # noqa: PLR2004 - digitised in either direction
                line.reverse()
            id_ = f"{side}{number}-{piece}"
            pieces[-1].append(id_)
            rows.append({"id": id_, "line": [[*point] for point in line], "name": label})
    return rows, pieces


def _move(random: Random, point: Point) -> Point:
    x, y = (round(axis + random.gauss(0, 1.5), 3) for axis in point)
    return x, y


def _middle(start: Point, end: Point, bend: int) -> Point:
    """Return a point beside the middle of two."""
    (x0, y0), (x1, y1) = start, end
    share = bend / 30
    return (x0 + x1) / 2 + share * (y1 - y0), (y0 + y1) / 2 - share * (x1 - x0)


def households(count: int, seed: int) -> TwoSources:
    """Return two lists of together about `count` people, one in twenty of them in one list only."""
    random = Random(seed)
    left: list[Row] = []
    right: list[Row] = []
    truth: set[tuple[str, str]] = set()
    for home in range(count // 7):
        code = f"{home // 10}"  # a postcode has ten households
        surname = random.choice(_SURNAMES)
        for person in range(random.randint(2, 5)):
            name = f"{random.choice(_GIVEN)} {surname}"
            born = random.randint(1940, 2010)
            for side, rows in (("l", left), ("r", right)):
                if random.random() > _OMITTED:
                    rows.append(_person(random, side, home, person, code, name, born))
            truth.add((f"l{home}-{person}", f"r{home}-{person}"))
    ids = {row["id"] for row in (*left, *right)}
    known_truth = frozenset(pair for pair in truth if ids.issuperset(pair))
    random.shuffle(right)
    return TwoSources(left, right, known_truth)


def _person(
    random: Random, side: str, home: int, person: int, code: str, name: str, born: int
) -> Row:
    if random.random() < _RENAMED:
        at = random.randrange(len(name))
        name = name[:at] + name[at + 1 :]
    year = None if random.random() < _UNKNOWN else born
    return {
        "id": f"{side}{home}-{person}",
        "household": f"{side}{home}",
        "code": code,
        "name": name,
        "born": year,
    }


def accuracy(
    links: Iterable[tuple[Sequence[str], Sequence[str]]], truth: frozenset[tuple[str, str]]
) -> tuple[float, float]:
    """Return precision and recall of the pairs that links make."""
    pairs = {pair for left, right in links for pair in product(left, right)}
    correct = len(pairs & truth)
    return correct / max(1, len(pairs)), correct / max(1, len(truth))
