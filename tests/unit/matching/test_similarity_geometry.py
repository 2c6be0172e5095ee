"""Lines near each other, and the cost of finding them."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, product
from math import sin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.matching.similarity.candidates import candidates
from spark_jobs.matching.similarity.geometry import (
    MAX_POINTS,
    Point,
    Polyline,
    nearer_than,
    polyline,
)
from spark_jobs.matching.similarity.objects import Reader
from spark_jobs.matching.similarity.spec import SimilaritySpec
from spark_jobs.runner.port import InputUnfit

BUFFER = 10.0

coordinate = st.integers(-9, 9).map(float)
lines = st.lists(st.tuples(coordinate, coordinate), min_size=1, max_size=12).map(polyline)


@given(lines, lines, st.sampled_from([0.0, 0.5, 1.0, 3.0]))
def test_the_distance_of_lines_is_that_of_their_nearest_segments(
    left: Polyline, right: Polyline, distance: float
) -> None:
    segments = [
        [polyline(segment) for segment in pairwise(line.points)] or [line] for line in (left, right)
    ]
    expected = any(nearer_than(first, second, distance) for first, second in product(*segments))
    assert nearer_than(left, right, distance) == expected == nearer_than(right, left, distance)


def test_no_segment_is_lost_where_a_line_is_halved() -> None:
    line = polyline([(10.0 * n, 0.0) for n in range(10)])
    for middle in range(5, 90, 10):
        other = polyline([(middle + n / 10, 0.5) for n in range(4)])
        assert nearer_than(line, other, 1.0)
        assert nearer_than(other, line, 1.0)


def wave(height: float) -> list[Point]:
    return [(float(n), sin(n) / 9 + height) for n in range(MAX_POINTS)]


def test_long_lines_are_halved_only_where_they_are_near() -> None:
    halvings = Counter[float]()

    def near(height: float) -> bool:
        line, other = polyline(wave(0.0)), polyline(wave(height))
        return nearer_than(line, other, BUFFER, lambda: halvings.update([height]))

    assert not near(50.0)
    assert not near(10.3)
    assert near(9.5)
    assert not halvings[50.0], "their boxes are too far apart"
    assert halvings[10.3] < MAX_POINTS
    assert halvings[9.5] < 20


@pytest.mark.parametrize(("max_pairs", "refused"), [(10, True), (1_000_000, False)])
def test_pieces_of_lines_that_lie_close_are_bounded(max_pairs: int, refused: bool) -> None:
    """The boxes of the lines' pieces overlap, but the lines are too far apart."""
    spec = SimilaritySpec.parse(
        {
            "left": {"file": "left.csv"},
            "right": {"file": "right.csv"},
            "blocking": {"grid": {"field": "line"}, "buffer": BUFFER},
            "measures": [{"measure": "length", "field": "line", "weight": 1.0}],
            "threshold": 0.5,
            "limits": {"pairs": max_pairs},
        }
    )
    stripes = [[60.0 * (n % 2), 60.0 * (n % 2) + n / 20] for n in range(100)]
    left = Reader(spec, "left").read({"id": "a", "line": stripes})
    assert left.line
    right = Reader(spec, "right").read({"id": "b", "line": [[x, y - 20] for x, y in stripes]})
    if refused:
        with pytest.raises(InputUnfit, match=r"limits\.pairs"):
            list(candidates([left], [right], spec))
    else:
        assert list(candidates([left], [right], spec)) == []
