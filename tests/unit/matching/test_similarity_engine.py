"""The engine: the sheet's examples (docs/papers/data_matching.md), and its invariants."""

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
DOCUMENT: Mapping[str, Any] = {
    "left": {"file": "left.csv"},
    "right": {"file": "right.csv"},
    "blocking": {"keys": [{"field": "key"}]},
    "references": [{"field": "near"}],
    "measures": [LENGTH],
    "threshold": 0.75,
}


def parsed(**changes: Any) -> SimilaritySpec:
    return SimilaritySpec.parse({**DOCUMENT, **changes})


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
UNDIVIDED = [{"id": "b", "length": 500}]


def test_m1_a_road_in_three_pieces_is_linked_with_one_road() -> None:
    matching = matched(parsed(), CHAIN, UNDIVIDED)
    assert links(matching) == {(("x1", "x2", "x3"), ("b",))}
    assert matching.links[0].similarity == 1


def test_m1_nothing_is_linked_without_aggregation() -> None:
    matching = matched(parsed(aggregation=False), CHAIN, UNDIVIDED)
    assert not matching.links


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


def test_m2_linked_neighbours_decide_between_similar_candidates() -> None:
    matching = m2(0.3)
    assert links(matching) == {(("a1",), ("b1",)), (("a2",), ("b2",)), (("a3",), ("b3",))}
    similarities = {link.left[0]: link.similarity for link in matching.links}
    assert similarities == {"a1": 0.7, "a2": pytest.approx(0.745), "a3": pytest.approx(1.0)}


def test_m2_without_the_relational_term_the_wrong_object_is_linked() -> None:
    assert (("a2",), ("c2",)) in links(m2(0.0))


@pytest.mark.parametrize(("length", "passes"), [(30, True), (19, False)])
def test_m3_a_minimum_removes_a_candidate_before_it_is_compared(length: int, passes: bool) -> None:
    spec = parsed(measures=[{**LENGTH, "minimum": 0.2}], threshold=0.0)
    matching = matched(spec, [{"id": "a", "length": length}], [{"id": "b", "length": 100}])
    assert matching.candidates == len(matching.links) == passes


def test_m6_candidates_that_share_no_key_are_not_stored() -> None:
    keys = ["p", "q", "r", None, None]
    left = [{"id": f"a{n}", "key": key, "length": 1} for n, key in enumerate(keys)]
    right = [{"id": f"b{n}", "key": "pqr"[n % 3] if n < 6 else None} for n in range(10)]
    assert matched(parsed(), left, [{**row, "length": 1} for row in right]).candidates == 6


def test_a_similarity_must_exceed_the_threshold() -> None:
    left, right = [{"id": "a", "length": 3}], [{"id": "b", "length": 4}]
    assert not matched(parsed(threshold=0.75), left, right).links
    assert matched(parsed(threshold=0.74), left, right).links


def test_an_aggregation_without_more_similarity_is_not_made() -> None:
    spec = parsed(measures=[{"measure": "text", "field": "name", "weight": 1.0}])
    left = [{"id": "a1", "name": "x"}, {"id": "a2", "name": "x", "near": "a1"}]
    matching = matched(spec, left, [{"id": "b", "name": "x"}])
    assert links(matching) == {(("a1",), ("b",))}
    assert matching.aggregations == 0


def test_ties_are_broken_by_ids() -> None:
    rows = [{"id": id_, "length": 1} for id_ in "cab"]
    matching = matched(parsed(aggregation=False), rows, rows)
    assert links(matching) == {((id_,), (id_,)) for id_ in "abc"}


def test_peoples_decisions_are_kept() -> None:
    left = [{"id": "a", "length": 1, "link": "m"}, {"id": "c", "length": 9, "not": ["d"]}]
    right = [{"id": "b", "length": 9, "link": "m"}, {"id": "d", "length": 9}]
    matching = matched(parsed(), left, right)
    assert [(link.left, link.right, link.decided) for link in matching.links] == [
        (("a",), ("b",), True)
    ]


def test_no_member_of_an_aggregation_has_a_forbidden_link() -> None:
    matching = matched(parsed(threshold=0.4), [*CHAIN[:2], CHAIN[2] | {"not": ["b"]}], UNDIVIDED)
    assert links(matching) == {(("x1", "x2"), ("b",))}


def test_incompatible_types_are_not_linked() -> None:
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
    for data, document in ((roads(800, 1), ROADS_SPEC), (households(800, 1), PEOPLE_SPEC)):
        matching = matched(parsed(**{"references": [], **document}), data.left, data.right)
        pairs = [(link.left, link.right) for link in matching.links]
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
def test_every_object_is_in_at_most_one_link_in_any_order(
    left: list[Row], right: list[Row], seed: Any, *, relational: bool
) -> None:
    weight = 0.3 if relational else 0.0
    spec = parsed(measures=[{**LENGTH, "weight": 1 - weight}], relational=weight, threshold=0.4)
    matching = matched(spec, left, right)
    for rows, ends in (
        (left, [link.left for link in matching.links]),
        (right, [link.right for link in matching.links]),
    ):
        linked = [*chain.from_iterable(ends)]
        assert len(linked) == len({*linked})
        assert {*linked} <= {row["id"] for row in rows}
    forbidden = {(row["id"], id_) for row in left for id_ in row["not"]}
    forbidden |= {(id_, row["id"]) for row in right for id_ in row["not"]}
    for link in matching.links:
        assert link.similarity > spec.threshold
        assert forbidden.isdisjoint(product(link.left, link.right))
    seed.shuffle(left)
    seed.shuffle(right)
    assert matched(spec, left, right) == matching
