"""Known clusters of any size: each is one node, regardless of the evidence inside it."""

from __future__ import annotations

import numpy as np

from spark_jobs.linkage.open.refine import CERTAIN, MAX_MEMBERS, Links, refine_components
from spark_jobs.linkage.open.spec import Clustering


def links(pairs: list[tuple[int, int, float]]) -> Links:
    left, right, bits = (np.array(side) for side in zip(*pairs, strict=True))
    source = np.zeros(len(left), np.int64)
    return Links(left, right, bits.astype(float), source, source)


def clusters(pairs: list[tuple[int, int, float]]) -> list[set[int]]:
    rows, roots = refine_components(links(pairs), Clustering.AVERAGE, 3.0)
    return [{*rows[roots == root].tolist()} for root in np.unique(roots)]


def known(first: int, size: int) -> list[tuple[int, int, float]]:
    """Return the links of a known cluster: each record is linked to the smallest."""
    return [(first, row, CERTAIN) for row in range(first + 1, first + size)]


def test_new_records_join_a_known_cluster_that_is_larger_than_the_bound() -> None:
    new_links = [(5, -1, 8.0), (MAX_MEMBERS, -2, 9.0)]
    assert clusters([*known(0, 2 * MAX_MEMBERS), *new_links]) == [{*range(-2, 2 * MAX_MEMBERS)}]


def test_a_known_cluster_of_a_whole_table_is_one_node() -> None:
    """A matrix of its pairs would take 160 GB."""
    rows, roots = refine_components(
        links([*known(0, 100_000), (7, 100_000, 8.0)]), Clustering.AVERAGE, 3.0
    )
    assert (len(rows), {*roots.tolist()}) == (100_001, {0})


def test_known_clusters_are_joined_and_separated_as_units() -> None:
    pairs = [*known(0, 3), *known(10, 3), *known(20, 3)]
    joining = [(1, 11, 6.0), (2, 12, -2.0), (0, 10, 1.0)]
    separating = [(12, 20, 9.0), (11, 21, -15.0), (10, 22, -15.0)]
    refined = clusters([*pairs, *joining, *separating])
    assert refined == [{0, 1, 2, 10, 11, 12}, {20, 21, 22}]


def test_evidence_inside_a_known_cluster_is_ignored() -> None:
    assert clusters([*known(0, 3), (0, 2, -20.0), (1, 2, 5.0)]) == [{0, 1, 2}]
