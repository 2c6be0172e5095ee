"""Blocks of open linkage: the work follows the pairs that are compared, not the records."""

from __future__ import annotations

import numpy as np
import pytest

from spark_jobs.linkage.open.pairs import BlockedRecords, candidates

RECORDS = 600_000  # all of their pairs would take minutes


def one_block(source: np.ndarray, known: np.ndarray, *, within: bool) -> BlockedRecords:
    """Records of one block, in any order."""
    count = len(source)
    return BlockedRecords(
        rule=np.zeros(count, np.int8),
        keys=np.full((count, 1), 7, np.int64),
        source=source.astype(np.int16),
        known=known,
        within=within,
    )


def pairs_of(records: BlockedRecords) -> set[tuple[int, int]]:
    return {
        (int(i), int(j))
        for batch in candidates(records)
        for i, j in zip(batch.i, batch.j, strict=True)
    }


@pytest.mark.timeout(30)
@pytest.mark.parametrize("at", [0, RECORDS // 2, RECORDS - 1])
def test_one_record_meets_those_of_a_large_table_once(at: int) -> None:
    source = np.zeros(RECORDS)
    source[at] = 1
    found = pairs_of(one_block(source, np.zeros(RECORDS, np.bool_), within=False))
    assert found == {(min(at, other), max(at, other)) for other in range(RECORDS) if other != at}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("at", [0, RECORDS // 2, RECORDS - 1])
def test_one_new_record_meets_those_of_known_clusters_once(at: int) -> None:
    known = np.ones(RECORDS, np.bool_)
    known[at] = False
    found = pairs_of(one_block(np.zeros(RECORDS), known, within=True))
    assert found == {(min(at, other), max(at, other)) for other in range(RECORDS) if other != at}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("within", [False, True])
def test_a_block_without_pairs_costs_nothing(within: bool) -> None:
    known = np.full(RECORDS, within)
    assert pairs_of(one_block(np.zeros(RECORDS), known, within=within)) == set()
