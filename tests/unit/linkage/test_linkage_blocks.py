"""Blocks of open linkage: work is proportional to the compared pairs, not the records."""

from __future__ import annotations

import numpy as np
import pytest

from spark_jobs.linkage.open.pairs import BlockedRecords, candidates

RECORDS = 600_000  # comparing all pairs would take minutes


def one_block(source: np.ndarray, known: np.ndarray, *, within: bool) -> BlockedRecords:
    """Return unordered records of one block."""
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
@pytest.mark.parametrize("row", [0, RECORDS // 2, RECORDS - 1])
def test_one_record_is_compared_once_with_each_of_a_large_table(row: int) -> None:
    source = np.zeros(RECORDS)
    source[row] = 1
    pairs = pairs_of(one_block(source, np.zeros(RECORDS, np.bool_), within=False))
    assert pairs == {(min(row, other), max(row, other)) for other in range(RECORDS) if other != row}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("row", [0, RECORDS // 2, RECORDS - 1])
def test_one_new_record_is_compared_once_with_each_of_known_clusters(row: int) -> None:
    known = np.ones(RECORDS, np.bool_)
    known[row] = False
    pairs = pairs_of(one_block(np.zeros(RECORDS), known, within=True))
    assert pairs == {(min(row, other), max(row, other)) for other in range(RECORDS) if other != row}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("within", [False, True])
def test_a_block_without_pairs_costs_nothing(within: bool) -> None:
    known = np.full(RECORDS, within)
    assert pairs_of(one_block(np.zeros(RECORDS), known, within=within)) == set()
