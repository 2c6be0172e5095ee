"""Kernels of open linkage against their definitions."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.linkage.open.agreement import pattern_codes, pattern_levels
from spark_jobs.linkage.open.forest import components, spanning
from spark_jobs.linkage.open.pairs import BlockedRecords, candidates
from spark_jobs.linkage.open.refine import CERTAIN, Links, refine_components
from spark_jobs.linkage.open.spec import AgreementLevel, Clustering, FieldComparison
from spark_jobs.linkage.open.strings import Text, equal, jaccard, jaro_winkler, levenshtein

WORDS = st.text(alphabet="abcß é\U0001f600", max_size=8)
EDGES = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=30)


def similarity(kernel: object, left: str, right: str) -> float:
    column = Text.of(pa.array([left, right]))
    indices = np.array([0]), np.array([1])
    return float(kernel(column, column, *indices)[0])  # type: ignore[operator]  # one of the four


def distance(left: str, right: str) -> int:
    """Return the restricted Damerau-Levenshtein distance, by its definition."""
    rows = {(x, 0): x for x in range(len(left) + 1)} | {(0, y): y for y in range(len(right) + 1)}
    for x in range(1, len(left) + 1):
        for y in range(1, len(right) + 1):
            same = left[x - 1] == right[y - 1]
            rows[x, y] = min(
                rows[x - 1, y] + 1, rows[x, y - 1] + 1, rows[x - 1, y - 1] + (not same)
            )
            if x > 1 and y > 1 and left[x - 2 : x] == right[y - 2 : y][::-1]:
                rows[x, y] = min(rows[x, y], rows[x - 2, y - 2] + 1)
    return rows[len(left), len(right)]


@given(WORDS, WORDS)
def test_similarities_of_strings_are_as_defined(left: str, right: str) -> None:
    assert similarity(levenshtein, left, right) == distance(left, right)
    assert similarity(equal, left, right) == (left == right)
    a, b = {*left.split(" ")} - {""}, {*right.split(" ")} - {""}
    assert similarity(jaccard, left, right) == pytest.approx(
        len(a & b) / len(a | b) if a | b else 0
    )


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [  # Winkler 1990 and the usual published examples
        ("martha", "marhta", 0.9611),
        ("dwayne", "duane", 0.84),
        ("dixon", "dicksonx", 0.8133),
        ("jones", "johnson", 0.8324),
        ("abc", "xyz", 0.0),
        ("same", "same", 1.0),
    ],
)
def test_jaro_winkler_is_as_published(left: str, right: str, expected: float) -> None:
    assert similarity(jaro_winkler, left, right) == pytest.approx(expected, abs=5e-5)
    assert similarity(jaro_winkler, right, left) == pytest.approx(expected, abs=5e-5)


def test_slices_and_nulls_of_arrow_are_read_correctly() -> None:
    text = Text.of(pa.array(["away", "été", None, "ab"])[1:])
    assert text.valid.tolist() == [True, False, True]
    assert text.starts.tolist() == [0, 3, 3, 5]
    assert not len(Text.of(pa.array([], pa.string())).points)


@given(st.lists(st.lists(st.integers(1, 4), min_size=2, max_size=2), max_size=6))
def test_patterns_are_encoded_as_numbers_and_decoded(rows: list[list[int]]) -> None:
    comparisons = [
        FieldComparison(columns=(name,), levels=(AgreementLevel(exact=True),) * 3) for name in "ab"
    ]
    levels = np.array(rows, np.int8).reshape(-1, 2)
    codes = pattern_codes(comparisons, levels)
    assert pattern_levels(comparisons, codes).tolist() == levels.tolist()


KEYS = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), st.integers(0, 1), st.booleans()
    ),
    max_size=12,
)


@given(KEYS, st.booleans())
def test_blocks_give_each_pair_exactly_once(
    records: list[tuple[int, int, int, int, bool]], within: bool
) -> None:
    ordered = sorted(
        (rule, record[rule], row)
        for row, record in enumerate(records)
        for rule in range(3)
        if record[rule]
    )
    order = [row for _, _, row in ordered]
    pairs: dict[tuple[int, int], int] = {}
    blocked = BlockedRecords(
        rule=np.array([rule for rule, _, _ in ordered], np.int8),
        keys=np.array([records[row][:3] for row in order], np.int64).reshape(-1, 3),
        source=np.array([records[row][3] for row in order], np.int16),
        known=np.array([records[row][4] for row in order], np.bool_),
        within=within,
    )
    for batch in candidates(blocked):
        for i, j, rules in zip(batch.i, batch.j, batch.rules, strict=True):
            pair = (min(order[i], order[j]), max(order[i], order[j]))
            assert pair not in pairs
            pairs[pair] = int(rules)
    expected = {}
    for i, j in combinations(range(len(records)), 2):
        a, b = records[i], records[j]
        rules = sum(1 << rule for rule in range(3) if a[rule] and a[rule] == b[rule])
        if rules and (within or a[3] != b[3]) and not (a[4] and b[4]):
            expected[i, j] = rules
    assert pairs == expected


def test_a_block_beyond_the_buffer_is_complete() -> None:
    count = 1_200
    blocked = BlockedRecords(
        np.zeros(count, np.int8), np.ones((count, 1), np.int64), np.zeros(count, np.int16),
        np.zeros(count, np.bool_), within=True,
    )  # fmt: skip
    batches = list(candidates(blocked))
    pairs = {(int(i), int(j)) for batch in batches for i, j in zip(batch.i, batch.j, strict=True)}
    assert len(batches) > 1
    assert len(pairs) == sum(len(batch.i) for batch in batches) == count * (count - 1) // 2


def union_find(edges: list[tuple[int, int]]) -> dict[int, int]:
    """Return the smallest node of each node's component, naively."""
    label = {node: node for edge in edges for node in edge}
    for _ in label:
        for a, b in edges:
            label[a] = label[b] = min(label[a], label[b])
    return label


@given(EDGES, st.integers(1, 4))
def test_spanning_forests_of_partitions_have_the_same_components(
    edges: list[tuple[int, int]], partitions: int
) -> None:
    forest_edges = []
    for partition in range(partitions):
        part = np.array(edges[partition::partitions], np.int64).reshape(-1, 2)
        chosen = spanning(part[:, 0], part[:, 1])
        assert len(chosen) < max(1, len({*part.ravel().tolist()}))
        forest_edges += part[chosen].tolist()
    forest = np.array(forest_edges, np.int64).reshape(-1, 2)
    rows, labels = components(forest[:, 0], forest[:, 1])
    expected = union_find([edge for edge in edges if edge[0] != edge[1]])
    assert dict(zip(rows.tolist(), labels.tolist(), strict=True)) == expected


def links(pairs: list[tuple[int, int, float]], sources: dict[int, int] | None = None) -> Links:
    source = sources or {}
    left, right, bits = (np.array(side) for side in zip(*pairs, strict=True))
    sides = [np.array([source.get(int(row), 0) for row in side]) for side in (left, right)]
    return Links(left, right, bits.astype(float), sides[0], sides[1])


def clusters(refined: tuple[np.ndarray, np.ndarray]) -> set[frozenset[int]]:
    rows, roots = refined
    return {frozenset(rows[roots == root].tolist()) for root in np.unique(roots)}


def test_one_wrong_link_does_not_join_two_clusters() -> None:
    inside = [(a, b, 9.0) for group in ((1, 2, 3), (4, 5, 6)) for a, b in combinations(group, 2)]
    across = [(3, 4, 5.0), (2, 4, -8.0), (2, 5, -8.0)]
    refined = refine_components(links([*inside, *across]), Clustering.AVERAGE, 3.0)
    assert clusters(refined) == {frozenset({1, 2, 3}), frozenset({4, 5, 6})}


def test_known_clusters_stay_despite_contrary_evidence() -> None:
    pairs = [(1, 2, CERTAIN), (2, 3, 6.0), (1, 3, -20.0)]
    assert frozenset({1, 2}) in clusters(refine_components(links(pairs), Clustering.AVERAGE, 3.0))
    sources = {1: 0, 2: 0, 3: 0}
    refined = clusters(refine_components(links(pairs, sources), Clustering.ONE_PER_SOURCE, 3.0))
    assert refined == {frozenset({1, 2}), frozenset({3})}


def test_the_best_records_of_each_table_are_linked() -> None:
    pairs = [(1, 11, 9.0), (1, 12, 8.0), (2, 11, 7.0), (2, 12, 6.0)]
    sources = {1: 0, 2: 0, 11: 1, 12: 1}
    refined = clusters(refine_components(links(pairs, sources), Clustering.ONE_PER_SOURCE, 3.0))
    assert refined == {frozenset({1, 11}), frozenset({2, 12})}


def average_by_definition(pairs: dict[tuple[int, int], float], nodes: int) -> set[frozenset[int]]:
    groups = [frozenset({node}) for node in range(nodes)]
    while True:
        best, pick = -1.0, None
        for a, b in combinations(groups, 2):
            weights = [
                w for (x, y), w in pairs.items() if {x, y} & a and {x, y} & b and {x, y} <= a | b
            ]
            if weights and sum(weights) / len(weights) >= 0 and sum(weights) / len(weights) > best:
                best, pick = sum(weights) / len(weights), (a, b)
        if pick is None:
            return {*groups}
        groups = [group for group in groups if group not in pick] + [pick[0] | pick[1]]


@settings(max_examples=60)
@given(
    st.dictionaries(
        st.sampled_from([(a, b) for a, b in combinations(range(7), 2)]),
        st.floats(-19.0, 19.0).map(lambda bits: bits + 0.0),
        min_size=1,
    )
)
def test_average_linkage_is_as_defined(pairs: dict[tuple[int, int], float]) -> None:
    if len({*pairs.values()}) < len(pairs):
        return  # equal means may be joined in either order
    refined = refine_components(
        links([(a, b, w) for (a, b), w in pairs.items()]), Clustering.AVERAGE, -20.0
    )
    rows = refined[0].tolist()
    expected = average_by_definition(pairs, 7)
    assert clusters(refined) == {group for group in expected if group & {*rows}}
