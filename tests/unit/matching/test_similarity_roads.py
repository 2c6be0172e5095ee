"""Prepared road networks: ends are snapped, lanes become one axis, lines split at crossings."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations, pairwise
from math import dist, remainder, tau
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_jobs.matching.similarity.geometry import Point, nearer_than, nearest, polyline
from spark_jobs.matching.similarity.grids import SegmentGrid
from spark_jobs.matching.similarity.lines import Road, RoadSettings
from spark_jobs.matching.similarity.roads import divide_roads
from spark_jobs.runner.port import InputUnfit

PLAIN = RoadSettings(snap=0.0)
SNAP = RoadSettings(snap=1.0)
Pieces = dict[tuple[str, int], tuple[tuple[float, float], ...]]


def pieces(settings: RoadSettings, *roads: Road) -> Pieces:
    return {(piece.id, piece.piece): piece.points for piece in divide_roads(roads, settings)}


def road(id_: str, *points: tuple[float, float], one_way: bool = False) -> Road:
    return Road(id_, points, one_way)


CROSSING = (road("a", (0, 0), (10, 0)), road("b", (5, -5), (5, 5)))


def test_m5_two_crossing_lines_become_four_pieces() -> None:
    divided = pieces(PLAIN, *CROSSING)
    assert divided == {
        ("a", 1): ((0, 0), (5, 0)),
        ("a", 2): ((5, 0), (10, 0)),
        ("b", 1): ((5, -5), (5, 0)),
        ("b", 2): ((5, 0), (5, 5)),
    }
    ends = Counter(end for points in divided.values() for end in (points[0], points[-1]))
    assert ends[5, 0] == 4, "each piece has three neighbours there"


def test_an_isolated_line_is_not_divided() -> None:
    line = ((0.0, 0.0), (5.0, 5.0), (9.0, 0.0))
    assert pieces(SNAP, road("a", *line)) == {("a", 0): line}
    assert pieces(SNAP) == {}


@pytest.mark.parametrize("height", [0.8, 0.0, -0.8])
def test_an_undershooting_or_overshooting_end_is_snapped_to_the_line(height: float) -> None:
    divided = pieces(SNAP, road("a", (0, 0), (10, 0)), road("b", (4, 5), (4, height)))
    assert divided == {
        ("a", 1): ((0, 0), (4, 0)),
        ("a", 2): ((4, 0), (10, 0)),
        ("b", 0): ((4, 5), (4, 0)),
    }


def test_an_end_beyond_the_snap_distance_is_kept() -> None:
    lines = road("a", (0, 0), (10, 0)), road("b", (4, 5), (4, 1.2))
    assert len(pieces(SNAP, *lines)) == 2


def test_an_end_that_meets_another_end_is_not_snapped_to_a_line() -> None:
    corner = road("b", (5, 0.5), (5, 9)), road("c", (5, 0.5), (9, 9))
    assert {*pieces(SNAP, road("a", (0, 0), (10, 0)), *corner)} == {("a", 0), ("b", 0), ("c", 0)}


@pytest.mark.parametrize("settings", [PLAIN, SNAP])
def test_a_through_road_is_divided_where_others_meet_on_it(settings: RoadSettings) -> None:
    north, south = road("n", (5, 9), (5, 0)), road("s", (5, -9), (5, 0))
    assert pieces(settings, road("main", (0, 0), (10, 0)), north, south) == {
        ("main", 1): ((0, 0), (5, 0)),
        ("main", 2): ((5, 0), (10, 0)),
        ("n", 0): north.points,
        ("s", 0): south.points,
    }


STRAIGHT = road("a", (0, 0), (10, 0))
BENT = road("a", (0, 0), (5, 0), (10, 0))


def through(id_: str, x: int, y: int) -> Road:
    """Return a line through one common midpoint, up to rounding."""
    return road(id_, ((55 - 7 * x) / 7, (25 - 7 * y) / 7), ((55 + 7 * x) / 7, (25 + 7 * y) / 7))


@pytest.mark.parametrize(
    ("roads", "count"),
    [
        ((through("a", 4, -8), through("b", 7, 6), through("c", 0, 6)), 6),
        ((through("a", 4, -8), through("b", 7, 6), road("c", (55 / 7, 25 / 7), (8, 23))), 5),
        (
            (
                road("a", (0, 0), (5, 1e-7), (10, 0)),
                *(road(str(y), (5, y), (5, 0)) for y in (9, -9)),
            ),
            4,
        ),
        ((STRAIGHT, *(road(f"{x}{y}", (x, 9), (5, y)) for x in (4, 6) for y in (0, 1e-7))), 6),
    ],
    ids=["three lines", "an end", "a corner", "pairs of ends"],
)
def test_lines_that_meet_up_to_rounding_meet_at_one_point(roads: list[Road], count: int) -> None:
    divided = pieces(PLAIN, *roads)
    assert len(divided) == count
    assert min(length(points) for points in divided.values()) > 1
    ends = Counter(end for points in divided.values() for end in (points[0], points[-1]))
    assert max(ends.values()) == count


@pytest.mark.parametrize(
    ("line", "other"),
    [
        (BENT, road("b", (5, -5), (5, 0), (5, 5))),
        (BENT, road("b", (5, -5), (5, 5))),
        (BENT, road("b", (5, -5), (5, 0), (6, -5))),
        (STRAIGHT, road("b", (5, -5), (5, 0), (5, 5))),
        (STRAIGHT, road("b", (4, -5), (5, 1e-7), (6, -5))),
    ],
)
def test_lines_are_divided_where_a_corner_of_one_is_on_the_other(line: Road, other: Road) -> None:
    divided = pieces(PLAIN, line, other)
    assert {*divided} == {("a", 1), ("a", 2), ("b", 1), ("b", 2)}
    ends = {end for points in divided.values() for end in (points[0], points[-1])}
    assert len(ends) == 5, "they meet at one point"


@pytest.mark.parametrize(
    "other",
    [
        ((0.0, 0.0), (5.0, 0.0), (5.0, 5.0), (9.0, 5.0)),
        ((9.0, 5.0), (5.0, 5.0), (5.0, 0.0), (0.0, 0.0)),
        ((5.0, -5.0), (5.0, 0.0), (5.0, 5.0), (9.0, 5.0)),
    ],
    ids=["the same", "reversed", "from another side"],
)
def test_lines_are_not_divided_where_they_overlap(other: tuple[Point, ...]) -> None:
    line = ((0.0, 0.0), (5.0, 0.0), (5.0, 5.0), (9.0, 5.0))
    assert pieces(PLAIN, road("a", *line), road("b", *other)) == {("a", 0): line, ("b", 0): other}


def test_an_end_divides_every_line_that_it_lies_on() -> None:
    crossing = road("a", (0, 0), (9, 3)), road("b", (0, 3), (9, 0))
    divided = pieces(PLAIN, *crossing, road("end", (4.5, 9), (4.5, 1.5)))
    assert {*divided} == {("a", 1), ("a", 2), ("b", 1), ("b", 2), ("end", 0)}


# a node that touches a corner of a line, and is before or behind it due to rounding
AT_A_CORNER = (
    ((-26.0, -33.0), (64.0, 27.0)),
    ((23.0, 25.0), (51.0, -7.0)),
    ((16.0, 21.0), (37.0, 9.0), (65.0, -7.0)),
)
AT_A_BEND = (*AT_A_CORNER[:2], ((16.0, 21.0), (37.0, 9.0), (37.0, 60.0)))
SHORT_OF_A_CORNER = (
    ((100 - 5e-7, 40.0), (100 - 5e-7, 0.0)),
    ((0.0, 0.0), (100.0, 0.0), (200.0, 0.0)),
)
OUTSIDE_A_CORNER = (((9.75, -5.1), (6.75, 0.9)), ((0.5, 3.4), (6.5, 1.2), (9.5, 7.5)))


@pytest.mark.parametrize(
    ("settings", "lines"),
    [
        (PLAIN, AT_A_CORNER),
        (PLAIN, AT_A_BEND),
        (SNAP, SHORT_OF_A_CORNER),
        (SNAP, OUTSIDE_A_CORNER),
    ],
)
def test_a_node_at_a_corner_replaces_it(settings: RoadSettings, lines: Any) -> None:
    divided = pieces(settings, *(road(str(n), *line) for n, line in enumerate(lines)))
    assert {len(points) for points in divided.values()} == {2}, "a corner remains"
    bent = len(lines) - 1
    assert divided[str(bent), 1][-1] == divided[str(bent), 2][0] == pytest.approx(lines[bent][1])


def test_a_node_replaces_all_corners_that_it_touches() -> None:
    corners = ((5, -4e-7), (5, 0), (5, 4e-7))
    divided = pieces(PLAIN, road("a", (0, 0), *corners, (5, 5)), road("b", (9, 0), (5, 0)))
    assert divided == {
        ("a", 1): ((0, 0), (5, 0)),
        ("a", 2): ((5, 0), (5, 5)),
        ("b", 0): ((9, 0), (5, 0)),
    }


def test_corners_that_no_node_touches_are_kept() -> None:
    line = ((0.0, 0.0), (5.0, 0.0), (5.0, 4e-7), (5.0, 5.0))
    assert pieces(PLAIN, road("a", *line)) == {("a", 0): line}


def test_a_line_is_divided_where_it_ends_on_itself() -> None:
    loop = ((0.0, 0.0), (10.0, 0.0), (10.0, 5.0), (5.0, 5.0), (5.0, 0.0))
    assert pieces(PLAIN, road("a", *loop)) == {
        ("a", 1): (loop[0], loop[-1]),
        ("a", 2): (loop[-1], *loop[1:]),
    }
    ring = (*loop[1:], loop[1])
    assert pieces(PLAIN, road("a", *ring)) == {("a", 0): ring}


def test_a_short_line_near_another_line_keeps_two_ends() -> None:
    divided = pieces(SNAP, road("a", (0, 0), (10, 0)), road("b", (5, 0.2), (5, 0.9)))
    assert divided["b", 0] == ((5, 0), (5, 0.9))


def test_ends_that_nearly_meet_become_one() -> None:
    divided = pieces(SNAP, road("a", (0, 0), (9.5, 0.5)), road("b", (10, 0), (20, 0)))
    assert divided["a", 0][-1] == divided["b", 0][0] == (9.5, 0.5)


def test_a_short_line_near_the_end_of_another_line_is_snapped_to_it() -> None:
    line = road("a", (1.7, 7.2), (9.7, 0.8))
    short = road("b", (9.78, 0.74), (10.09, 0.48))
    divided = pieces(SNAP, line, short)
    assert divided["a", 0][-1] == divided["b", 0][0]


def test_a_line_shorter_than_the_snap_is_kept() -> None:
    assert pieces(SNAP, road("a", (0, 0), (0.5, 0)))["a", 0] == ((0, 0), (0.5, 0))


LANES = (
    road("in", (0, 0), (50, 0), (100, 0), one_way=True),
    road("out", (100, 4), (0, 4), one_way=True),
)
AXES = RoadSettings(snap=1.0, axes=6.0)


def test_two_lanes_become_one_road_and_keep_their_junctions() -> None:
    divided = divide_roads(
        [*LANES, road("side", (30, 40), (30, 4)), road("on", (100, 0), (150, 0))], AXES
    )
    assert {(piece.id, piece.piece): piece.points for piece in divided} == {
        ("in", 1): ((0, 2), (30, 2)),
        ("in", 2): ((30, 2), (50, 2), (100, 2)),
        ("on", 0): ((100, 2), (150, 0)),
        ("side", 0): ((30, 40), (30, 2)),
    }
    assert {piece.other for piece in divided if piece.id == "in"} == {"out"}


@pytest.mark.parametrize(
    "other",
    [
        road("out", (0, 4), (100, 4), one_way=True),
        road("out", (100, 4), (0, 4)),
        road("out", (100, 9), (0, 9), one_way=True),
        road("out", (100, 4), (50, 60), (0, 4), one_way=True),
    ],
    ids=["the same direction", "both directions", "too far", "another way"],
)
def test_other_lines_are_not_a_second_lane(other: Road) -> None:
    assert len(pieces(AXES, LANES[0], other)) == 2


def test_each_lane_has_one_opposite_lane() -> None:
    divided = pieces(AXES, *LANES, road("next", (100, 5), (0, 5), one_way=True))
    assert {id_ for id_, _ in divided} == {"in", "next"}


def test_too_many_lines_at_one_location_are_refused() -> None:
    lines = [road(str(n), (0, n), (10, 9 - n)) for n in range(9)]
    with pytest.raises(InputUnfit, match=r"where 0 does.*limits\.block_pairs"):
        divide_roads(lines, RoadSettings(snap=0.0, max_pairs=20))


def test_comparisons_of_ends_and_crossings_at_one_location_are_limited() -> None:
    lines = [road(str(n), (0, n), (10, -n * n / 4)) for n in range(12)]
    assert len(pieces(RoadSettings(snap=0.0, max_pairs=1_000), *lines)) == 12 + 2 * 66
    with pytest.raises(InputUnfit, match=r"crossings lie where 0 does.*\.block_pairs"):
        divide_roads(lines, RoadSettings(snap=0.0, max_pairs=900))


def test_pairs_of_segments_are_unique_and_ordered() -> None:
    random = Random(5)
    lines = [[(random.random() * 9, random.random() * 9) for _ in range(4)] for _ in range(12)]
    roads = [road(str(n), *line) for n, line in enumerate(lines)]
    pairs = [*SegmentGrid(roads, lines, SNAP).pairs()]
    assert pairs == sorted({*pairs})
    segments = [(number, n) for number in range(12) for n in range(3)]
    near = {
        ((n, i), (m, j))
        for (n, i), (m, j) in combinations(segments, 2)
        if n != m and nearer_than(polyline(lines[n][i : i + 2]), polyline(lines[m][j : j + 2]), 1.0)
    }
    assert near <= {*pairs}
    assert all(segment[0] < other[0] for segment, other in pairs)


def scattered(areas: int) -> list[Road]:
    """Return areas with three lines each, which cross in pairs and end near each other."""
    return [
        road(f"{area}.{n}", (100 * area, n), (100 * area + 10, 2 - n))
        for area in range(areas)
        for n in range(3)
    ]


def test_segments_of_a_whole_network_are_bounded() -> None:
    """The limit covers all areas together: each has only a few pairs."""
    settings = RoadSettings(snap=0.0, max_pairs=100, all_pairs=500)
    assert len(divide_roads(scattered(10), settings)) == 60
    with pytest.raises(InputUnfit, match=r"pairs of segments are near.*limits\.pairs"):
        divide_roads(scattered(200), settings)
    with pytest.raises(InputUnfit, match=r"pairs of an end or a crossing and .*limits\.pairs"):
        divide_roads(scattered(30), settings)


def test_lanes_of_a_whole_network_are_bounded() -> None:
    lanes = [
        road(f"{lane.id}.{area}", *((x + 1_000 * area, y) for x, y in lane.points), one_way=True)
        for area in range(30)
        for lane in LANES[:2]
    ]
    assert len(divide_roads(lanes, RoadSettings(snap=1.0, axes=6.0, all_pairs=1_000))) == 30
    with pytest.raises(InputUnfit, match=r"pairs of a lane and one where it ends.*limits\.pairs"):
        divide_roads(lanes, RoadSettings(snap=1.0, axes=6.0, all_pairs=20))


@pytest.mark.timeout(60)  # minutes, if the shares of a line were computed for each of its points
def test_an_axis_of_two_lanes_of_many_points() -> None:
    count = 20_000
    points = [(float(n), (n % 2) * 0.01) for n in range(count)]
    lanes = (
        road("in", *points, one_way=True),
        road("out", *((x + 0.5, y + 4) for x, y in reversed(points)), one_way=True),
    )
    (axis,) = divide_roads(lanes, RoadSettings(snap=0.0, axes=6.0))
    assert len(axis.points) == count


def bundle(count: int, end: float) -> list[Road]:
    """Return close lanes of one direction: no two form an axis."""
    return [road(str(n), (n * 1e-3, 0), (n * 1e-3, end), one_way=True) for n in range(count)]


@pytest.mark.timeout(60)  # four million pairs of lanes would be compared
def test_lanes_that_begin_where_many_end_are_refused() -> None:
    lanes = bundle(2_000, 9.0)
    with pytest.raises(InputUnfit, match=r"2,000 lanes begin where 0 ends.*limits\.block_pairs"):
        divide_roads(lanes, RoadSettings(snap=0.0, axes=100.0))


def test_as_many_lanes_as_the_limit_are_compared() -> None:
    lanes = bundle(4, 9.0)
    assert len(divide_roads(lanes, RoadSettings(snap=0.0, axes=100.0, max_pairs=16))) == 4
    with pytest.raises(InputUnfit, match="lanes begin"):
        divide_roads(lanes, RoadSettings(snap=0.0, axes=100.0, max_pairs=15))


def test_comparisons_of_lines_that_end_at_lanes_are_limited() -> None:
    sides = [road(f"side{n}", (3 * n, 40 + n), (3 * n, 4)) for n in range(9)]
    assert len(divide_roads([*LANES, *sides], replace(AXES, max_pairs=1_000))) > len(sides)
    with pytest.raises(InputUnfit, match=r"18 ends and crossings lie where in.*\.block_pairs"):
        divide_roads([*LANES, *sides], replace(AXES, max_pairs=10))


coordinate = st.integers(0, 12).map(float)
networks = st.lists(
    st.lists(st.tuples(coordinate, coordinate), min_size=2, max_size=4, unique=True), max_size=8
)


@example([[*line] for line in AT_A_CORNER], 0.0, Random(0))
@example([[*line] for line in AT_A_BEND], 0.0, Random(0))
@given(networks, st.sampled_from([0.0, 1.0]), st.randoms(use_true_random=False))
def test_lines_keep_their_length_and_meet_at_ends_in_any_order(
    lines: list[list[tuple[float, float]]], snap: float, random: Random
) -> None:
    roads = [Road(str(number), tuple(line)) for number, line in enumerate(lines)]
    divided = divide_roads(roads, RoadSettings(snap))
    random.shuffle(roads)
    assert divide_roads(roads, RoadSettings(snap)) == divided
    for line in roads:
        parts = [piece for piece in divided if piece.id == line.id]
        numbers = [0] if len(parts) == 1 else [*range(1, len(parts) + 1)]
        assert [piece.piece for piece in parts] == numbers
        for piece, next_piece in pairwise(parts):
            assert piece.points[-1] == next_piece.points[0]
        if not snap:
            assert length(line.points) == pytest.approx(sum(length(p.points) for p in parts))
            turned = sum(polyline(piece.points).turn for piece in parts)
            assert remainder(turned - turn_between(parts, line), tau) == pytest.approx(0, abs=1e-6)
    if not snap:
        assert not [
            (piece, other)
            for piece in divided
            for other in divided
            if any(lies_inside(end, other.points) for end in (piece.points[0], piece.points[-1]))
        ]


def lies_inside(point: Point, line: tuple[Point, ...]) -> bool:
    """Return whether a point is on a line but not at its ends."""
    if min(dist(point, line[0]), dist(point, line[-1])) < 1e-5:
        return False
    return any(dist(point, nearest(point, *segment)) < 1e-7 for segment in pairwise(line))


def turn_between(parts: list[Road], line: Road) -> float:
    """Return the sum of a line's turns at the corners where it is not cut."""
    cuts = [end for part in parts for end in (part.points[0], part.points[-1])]
    corners = zip(line.points, line.points[1:], line.points[2:], strict=False)
    return sum(
        polyline(corner).turn
        for corner in corners
        if min(dist(corner[1], cut) for cut in cuts) > 1e-6
    )


def length(points: tuple[tuple[float, float], ...]) -> float:
    return sum(dist(*ends) for ends in pairwise(points))
