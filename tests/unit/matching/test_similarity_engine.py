"""The engine alone: the sheet's examples (docs/papers/data_matching.md), and what always holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.harness.matching_data import PEOPLE_SPEC, ROADS_SPEC, accuracy, households, roads
from spark_jobs.matching.similarity.engine import Matching, match
from spark_jobs.matching.similarity.objects import MatchObject, Reader
from spark_jobs.matching.similarity.spec import Side, SimilaritySpec
from spark_jobs.runner.port import InputUnfit

Row = dict[str, Any]
LENGTH = {"measure": "number", "field": "length", "weight": 1.0}
GIVEN: Mapping[str, Any] = {
    "left": {"file": "left.csv"},
    "right": {"file": "right.csv"},
    "blocking": {"keys": [{"field": "key"}]},
    "references": [{"field": "near"}],
    "measures": [LENGTH],
    "threshold": 0.75,
}


def parsed(**changes: Any) -> SimilaritySpec:
    return SimilaritySpec.parse({**GIVEN, **changes})


def read(spec: SimilaritySpec, side: Side, rows: Sequence[Row]) -> list[MatchObject]:
    reader = Reader(spec, side)
    return [reader.read({"key": "k", **row}, row.get("link"), row.get("not", ())) for row in rows]


def matched(spec: SimilaritySpec, left: Sequence[Row], right: Sequence[Row]) -> Matching:
    return match(read(spec, "left", left), read(spec, "right", right), spec)


def links(matching: Matching) -> set[tuple[tuple[str, ...], tuple[str, ...]]]:
    return {(link.left, link.right) for link in matching.links}


CHAIN = [
    {"id": "x1", "length": 100},
    {"id": "x2", "length": 150, "near": "x1"},
    {"id": "x3", "length": 250, "near": "x2"},
]
WHOLE = [{"id": "b", "length": 500}]


def test_m1_a_road_in_three_pieces_is_one_in_the_other_source() -> None:
    found = matched(parsed(), CHAIN, WHOLE)
    assert links(found) == {(("x1", "x2", "x3"), ("b",))}
    assert found.links[0].similarity == 1


def test_m1_nothing_is_linked_without_aggregation() -> None:
    found = matched(parsed(aggregation=False), CHAIN, WHOLE)
    assert not found.links


M2_LEFT = [
    {"id": "a1", "key": ["1"], "v": 0.0},
    {"id": "a2", "key": ["2"], "v": 10.0, "near": "a1"},
    {"id": "a3", "key": ["3"], "v": 20.0, "near": "a2"},
]
M2_RIGHT = [
    {"id": "b1", "v": 0.0},
    {"id": "b2", "v": 11.5, "near": "b1"},
    {"id": "b3", "v": 20.0, "near": "b2"},
    {"id": "c2", "v": 10.5},
]


def m2(relational: float) -> Matching:
    value = {
        "measure": "number",
        "field": "v",
        "weight": 1 - relational,
        "scale": 10.0,
        "minimum": 0.5,
    }
    spec = parsed(measures=[value], relational=relational, threshold=0.55, aggregation=False)
    return matched(spec, [{**row, "key": "k"} for row in M2_LEFT], M2_RIGHT)


def test_m2_linked_neighbours_decide_between_two_that_are_alike() -> None:
    found = m2(0.3)
    assert links(found) == {(("a1",), ("b1",)), (("a2",), ("b2",)), (("a3",), ("b3",))}
    similarities = {link.left[0]: link.similarity for link in found.links}
    assert similarities == {"a1": 0.7, "a2": pytest.approx(0.745), "a3": pytest.approx(1.0)}


def test_m2_without_the_relational_part_the_wrong_one_is_linked() -> None:
    assert (("a2",), ("c2",)) in links(m2(0.0))


@pytest.mark.parametrize(("length", "kept"), [(30, True), (19, False)])
def test_m3_a_minimum_removes_a_candidate_before_it_is_compared(length: int, kept: bool) -> None:
    spec = parsed(measures=[{**LENGTH, "minimum": 0.2}], threshold=0.0)
    found = matched(spec, [{"id": "a", "length": length}], [{"id": "b", "length": 100}])
    assert found.candidates == len(found.links) == kept


def test_m6_candidates_that_share_no_key_are_not_stored() -> None:
    keys = ["p", "q", "r", None, None]
    left = [{"id": f"a{n}", "key": key, "length": 1} for n, key in enumerate(keys)]
    right = [{"id": f"b{n}", "key": "pqr"[n % 3] if n < 6 else None} for n in range(10)]
    assert matched(parsed(), left, [{**row, "length": 1} for row in right]).candidates == 6


def test_a_threshold_is_exceeded_and_not_reached() -> None:
    left, right = [{"id": "a", "length": 3}], [{"id": "b", "length": 4}]
    assert not matched(parsed(threshold=0.75), left, right).links
    assert matched(parsed(threshold=0.74), left, right).links


def test_an_aggregation_that_is_as_similar_is_not_made() -> None:
    spec = parsed(measures=[{"measure": "text", "field": "name", "weight": 1.0}])
    left = [{"id": "a1", "name": "x"}, {"id": "a2", "name": "x", "near": "a1"}]
    found = matched(spec, left, [{"id": "b", "name": "x"}])
    assert links(found) == {(("a1",), ("b",))}
    assert found.aggregations == 0


def test_ties_follow_by_ids() -> None:
    rows = [{"id": id_, "length": 1} for id_ in "cab"]
    found = matched(parsed(aggregation=False), rows, rows)
    assert links(found) == {((id_,), (id_,)) for id_ in "abc"}


def test_what_a_person_decided_is_kept() -> None:
    left = [{"id": "a", "length": 1, "link": "m"}, {"id": "c", "length": 9, "not": ["d"]}]
    right = [{"id": "b", "length": 9, "link": "m"}, {"id": "d", "length": 9}]
    found = matched(parsed(), left, right)
    assert [(link.left, link.right, link.decided) for link in found.links] == [
        (("a",), ("b",), True)
    ]


def test_no_part_of_an_aggregation_is_linked_with_what_it_cannot_be() -> None:
    found = matched(parsed(threshold=0.4), [*CHAIN[:2], CHAIN[2] | {"not": ["b"]}], WHOLE)
    assert links(found) == {(("x1", "x2"), ("b",))}


def test_types_exclude_each_other() -> None:
    spec = parsed(types={"field": "type", "cannot": [["road", "path"]]})
    left = [{"id": "a", "length": 1, "type": "road"}]
    assert not matched(spec, left, [{"id": "b", "length": 1, "type": "path"}]).links
    assert matched(spec, left, [{"id": "b", "length": 1, "type": "road"}]).links


def test_a_line_that_is_too_long_for_the_grid_is_refused() -> None:
    spec = parsed(**ROADS_SPEC)
    with pytest.raises(InputUnfit, match="left a"):
        Reader(spec, "left").read({"id": "a", "line": [[0, 0], [1e9, 1e9]]})


def test_objects_without_a_line_are_unmatched() -> None:
    spec = parsed(**ROADS_SPEC)
    rows: list[Row] = [
        {"id": "a", "line": None},
        {"id": "b", "line": "no"},
        {"id": "c", "line": [[1, 1]]},
    ]
    assert not matched(spec, rows, rows).links


def test_roads_and_households_are_matched() -> None:
    for data, given_ in ((roads(800, 1), ROADS_SPEC), (households(800, 1), PEOPLE_SPEC)):
        found = matched(parsed(**{"references": [], **given_}), data.left, data.right)
        pairs = [(link.left, link.right) for link in found.links]
        assert min(accuracy(pairs, data.truth)) >= 0.95


names = st.sampled_from([f"n{n}" for n in range(6)])
objects = st.lists(
    st.fixed_dictionaries(
        {
            "id": names,
            "key": st.sampled_from(["k", "m", None]),
            "length": st.one_of(st.none(), st.integers(1, 6), st.just("much")),
            "near": st.one_of(st.none(), names),
            "not": st.lists(names, max_size=2),
        }
    ),
    max_size=6,
    unique_by=lambda row: str(row["id"]),
)


@given(
    left=objects, right=objects, seed=st.randoms(use_true_random=False), relational=st.booleans()
)
def test_every_object_is_in_one_link_at_most_in_any_order(
    left: list[Row], right: list[Row], seed: Any, *, relational: bool
) -> None:
    weight = 0.3 if relational else 0.0
    spec = parsed(measures=[{**LENGTH, "weight": 1 - weight}], relational=weight, threshold=0.4)
    found = matched(spec, left, right)
    for rows, ends in (
        (left, [link.left for link in found.links]),
        (right, [link.right for link in found.links]),
    ):
        linked = [*chain.from_iterable(ends)]
        assert len(linked) == len({*linked})
        assert {*linked} <= {row["id"] for row in rows}
    barred = {(row["id"], id_) for row in left for id_ in row["not"]}
    barred |= {(id_, row["id"]) for row in right for id_ in row["not"]}
    for link in found.links:
        assert link.similarity > spec.threshold
        assert barred.isdisjoint(product(link.left, link.right))
    seed.shuffle(left)
    seed.shuffle(right)
    assert matched(spec, left, right) == found
