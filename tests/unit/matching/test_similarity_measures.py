"""Measures, geometry, decisions and calibration, in isolation."""

from __future__ import annotations

import subprocess
import sys
from math import pi
from typing import Any

import numpy as np
import pytest

from spark_jobs.matching.similarity.calibration import (
    calibration_error,
    calibration_report,
    rank_correlation,
)
from spark_jobs.matching.similarity.geometry import (
    cells,
    chord_similarity,
    join_lines,
    length_similarity,
    nearer_than,
    parse_polyline,
    polyline,
    turn_similarity,
)
from spark_jobs.matching.similarity.lists import decisions
from spark_jobs.matching.similarity.measures import MEASURES, MeasureName, Parameters
from spark_jobs.matching.similarity.objects import Reader
from spark_jobs.matching.similarity.spec import SimilaritySpec
from spark_jobs.runner.port import InputUnfit
from spark_jobs.runner.specification import SpecInvalid

PLAIN = Parameters(None, {})
CORNER = polyline([(0, 0), (10, 0), (10, 10)])


def similarity(name: str, left: Any, right: Any, parameters: Parameters = PLAIN) -> float:
    measure = MEASURES[MeasureName(name)]
    values = [measure.read(value, parameters) for value in (left, right)]
    assert None not in values
    return measure.compare(values[0], values[1], parameters)


@pytest.mark.parametrize(
    ("name", "left", "right", "expected"),
    [
        ("text", "kitten", "sitting", 1 - 3 / 7),
        ("number", 30, 100, 0.3),
        ("number", "30", 100, 0.3),
        ("number", -1, 1, 0.0),
        ("number", 0, 0, 1.0),
        ("exact", " A  b", "a b", 1.0),
        ("set", ["a", "b"], '["b", "c"]', 1 / 3),
        ("set", "a b", "b a", 1.0),
    ],
)
def test_m4_values_are_compared(name: str, left: Any, right: Any, expected: float) -> None:
    assert similarity(name, left, right) == pytest.approx(expected)


def test_m4_abbreviations_are_expanded() -> None:
    assert similarity("text", "Main St.", "Main Street", Parameters(None, {"st.": "street"})) == 1


def test_similarity_is_zero_at_the_scale() -> None:
    scale = Parameters(10.0, {})
    assert similarity("number", 1, 6, scale) == 0.5
    assert similarity("date", "2020-01-01", "2020-01-03T10:00:00", scale) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("number", "much"),
        ("number", True),
        ("number", float("nan")),
        ("number", 10**400),
        ("date", "soon"),
        ("set", 7),
        ("set", "[" * 10_000),
        ("text", {"a": 1}),
        ("length", "LINESTRING (1 2)"),
        ("length", {"type": "Point", "coordinates": [1, 2]}),
        ("length", [[0, 0], [1, float("inf")]]),
        ("length", [[0, 0], [1, float("nan")]]),
        ("length", [[0, 0], [1, 1e300]]),
        ("length", [[0, 0]] * 3_000),
    ],
)
def test_a_value_of_another_type_is_missing(name: str, value: Any) -> None:
    assert MEASURES[MeasureName(name)].read(value, PLAIN) is None


def test_lines_are_parsed_from_three_formats() -> None:
    formats = [
        {"type": "LineString", "coordinates": [[0, 0], [3, 4]]},
        "[[0, 0], [3, 4]]",
        "LineString(0 0, 3 4)",
    ]
    assert [line and line.length for line in map(parse_polyline, formats)] == [5, 5, 5]


def test_lines_are_compared_in_either_direction() -> None:
    for other in (CORNER, CORNER.reversed):
        assert CORNER.turn == pytest.approx(pi / 2)
        assert turn_similarity(CORNER, other) == pytest.approx(1)
        assert chord_similarity(CORNER, other) == pytest.approx(1)
        assert length_similarity(CORNER, other) == 1
        assert similarity("start", [*map(list, CORNER.points)], [*map(list, other.points)]) == 1


def test_turns_of_straight_and_of_opposite_lines() -> None:
    straight, left = polyline([(0, 0), (9, 0)]), polyline([(0, 0), (5, 5), (10, 0)])
    right = polyline([(0, 0), (5, -5), (10, 0)])
    assert turn_similarity(straight, straight) == 1
    assert turn_similarity(left, right) == 0
    assert turn_similarity(straight, left) == 0


def test_chords_at_right_angles_are_not_alike() -> None:
    east, north = polyline([(0, 0), (1, 0)]), polyline([(0, 0), (0, 1)])
    assert chord_similarity(east, north) == pytest.approx(0)


def test_lines_are_joined_where_they_meet() -> None:
    line, other = polyline([(0, 0), (1, 0)]), polyline([(2, 0), (1, 0)])
    joined = polyline([(0, 0), (1, 0), (2, 0)])
    assert join_lines(line, other) == joined
    assert join_lines(other, line) == joined
    assert join_lines(line, polyline([(5, 5), (6, 6)])) is None


def test_distance_of_lines() -> None:
    line = polyline([(0, 0), (10, 0)])
    assert nearer_than(line, polyline([(5, -5), (5, 5)]), 0.0)
    assert nearer_than(line, polyline([(12, 0), (20, 0)]), 2.0)
    assert not nearer_than(line, polyline([(12, 1), (20, 0)]), 2.0)


def test_near_lines_share_a_cell() -> None:
    line, other = polyline([(0, 0), (10, 0)]), polyline([(12, 0), (20, 3)])
    grown, plain = cells(line, 4.0, 2.0, 100), cells(other, 4.0, 0.0, 100)
    assert grown is not None
    assert plain is not None
    assert grown & plain
    assert cells(line, 1e-3, 0.0, 100) is None
    assert cells(polyline([(-1e12, -1e12), (1e12, 1e12)]), 2e-6, 1e-6, 100) is None


@pytest.mark.parametrize(
    ("word", "code"),
    [
        ("Robert", "R163"),
        ("rupert b", "R163"),
        ("Ashcraft", "A261"),
        ("Müller", "M460"),
        ("O'Hara", "O600"),
        ("Pfister", "P236"),
        ("honeyman", "H555"),
        ("wu", "W000"),
        ("東", None),
    ],
)
def test_soundex_of_the_first_word_is_a_key(word: str, code: str | None) -> None:
    spec = SimilaritySpec.parse(
        {
            "left": {"file": "left.csv"},
            "right": {"file": "right.csv"},
            "blocking": {"keys": [{"field": "name", "take": "soundex"}]},
            "measures": [{"measure": "exact", "field": "name", "weight": 1.0}],
            "threshold": 0.5,
        }
    )
    object_ = Reader(spec, "left").read({"id": "1", "name": word})
    assert object_.keys == ({f"0:{code}"} if code else set())


def test_a_cycle_of_pairs_that_must_be_linked_is_one_group() -> None:
    must = [("a", "x"), ("b", "x"), ("b", "y"), ("a", "y")]
    present = {(0, "a"), (0, "b"), (1, "x"), (1, "y"), (1, "z")}
    decided = decisions(must, [("a", "z"), ("gone", "z")], present)
    assert {*decided.link.values()} == {"a"}
    assert len(decided.link) == 4
    assert decided.cannot == {(0, "a"): {"z"}, (1, "z"): {"a"}}
    assert decided.ignored == 1


def test_a_group_that_cannot_be_one_is_a_contradiction() -> None:
    must = [("a", "x"), ("b", "x"), ("b", "y")]
    present = {(0, "a"), (0, "b"), (1, "x"), (1, "y")}
    with pytest.raises(InputUnfit, match="a and y"):
        decisions(must, [("a", "y")], present)


@pytest.mark.parametrize(
    ("value", "other", "error"),
    [  # the sheet's table before and after calibration: docs/papers/data_matching.md
        (0.939, 0.454, 0.426),
        (0.963, 0.575, 0.314),
        (0.958, 0.169, 0.777),
        (0.928, 0.294, 0.61),
        (0.933, 0.344, 0.55),
        (0.757, 0.696, 0.053),
        (0.878, 0.866, 0.008),
        (0.701, 0.638, 0.060),
        (0.659, 0.667, -0.008),
        (0.66, 0.684, -0.023),
    ],
)
def test_calibration_error(value: float, other: float, error: float) -> None:
    assert calibration_error(value, other) == pytest.approx(error, abs=0.0015)
    assert calibration_error(value, value) == 0


def test_calibration_error_of_measures_without_influence() -> None:
    assert calibration_error(0.5, -0.2) == 1
    assert calibration_error(-0.2, 0.5) == -1
    assert calibration_error(0.0, -1.0) == 0


def test_rank_correlation_of_ties() -> None:
    values = np.array([1.0, 2.0, 2.0, 3.0])
    assert rank_correlation(values, values**3) == pytest.approx(1)
    assert rank_correlation(values, -values) == pytest.approx(-1)
    assert rank_correlation(values, np.ones(4)) == 0


def test_a_measure_with_a_wider_spread_dominates() -> None:
    random = np.random.default_rng(1)
    terms = np.stack([random.uniform(0, 1, 300), random.uniform(0.45, 0.5, 300)], axis=1)
    report = calibration_report(["wide", "narrow"], terms, [0.5, 0.5])
    assert report["wide"]["errors"]["narrow"] > 0.5
    assert report["narrow"]["errors"]["wide"] < 0


DOCUMENT: dict[str, Any] = {
    "left": {"file": "l.csv"},
    "right": {"file": "r.csv"},
    "blocking": {"keys": [{"field": "k"}]},
    "measures": [{"measure": "text", "field": "n", "weight": 1.0}],
    "threshold": 0.5,
}


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"measures": [{"measure": "text", "field": "n", "weight": 0.5}]}, "/measures"),
        ({"measures": [{"measure": "text", "field": "n", "weight": 0.5}] * 2}, "/measures"),
        ({"measures": [{"measure": "date", "field": "n", "weight": 1.0}]}, "/measures/0/scale"),
        (
            {"measures": [{"measure": "text", "field": "n", "weight": 1.0, "scale": 1.0}]},
            "/measures/0/scale",
        ),
        (
            {
                "measures": [{"measure": "text", "field": "n", "weight": 0.5}],
                "relational": 0.5,
                "threshold": 0.5,
            },
            "/threshold",
        ),
        ({"blocking": {"keys": [{"field": "k", "take": "prefix"}]}}, "/blocking/keys/0"),
        ({"blocking": {"grid": {"field": "k"}, "buffer": 0.0}}, "/blocking/buffer"),
    ],
)
def test_a_contradictory_specification_is_refused(changes: Any, pointer: str) -> None:
    with pytest.raises(SpecInvalid) as error:
        SimilaritySpec.parse({**DOCUMENT, **changes})
    assert error.value.pointer.startswith(pointer)


def test_a_specification_is_parsed_without_the_workers_packages() -> None:
    code = (
        "import sys; from spark_jobs.matching.similarity.kind import SimilarityMatching as Kind;"
        f"Kind().stages(Kind.specification.parse({DOCUMENT!r}));"
        "assert not {'pyspark', 'rapidfuzz', 'sklearn', 'pyarrow'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
