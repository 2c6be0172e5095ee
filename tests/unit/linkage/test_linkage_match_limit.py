"""Private linkage with a low threshold: too many matches are counted, but not held in memory."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from spark_jobs.linkage.private.blocks import (
    BY_LENGTH,
    MATCHES,
    PAIRS_AT_ONCE,
    RESULT,
    BlockComparison,
    MatchLimit,
    NamedBlock,
    RecordBlock,
    to_record_batches,
)
from spark_jobs.linkage.private.gpu.hybrid import compare_batch
from spark_jobs.linkage.private.limits import ThresholdTables
from spark_jobs.linkage.private.spec import Filters
from spark_jobs.linkage.private.vectors import GROUP

RECORDS = 700  # per block: the pairs of two blocks take several batches of a kernel
PAIRS = RECORDS * RECORDS
LIMITS = ThresholdTables.of(Fraction(1, 10), GROUP * 64)


def named(party: int, name: str) -> NamedBlock:
    """Return a block whose records all match those of every other block."""
    words = np.full((RECORDS, GROUP), 0xFF, np.uint64)
    words[:, 0] = np.arange(RECORDS)
    block, order = RecordBlock.of(words)
    return NamedBlock(block, party, pa.array([f"{name}{row}" for row in order.tolist()]))


def comparison(
    max_matches: int, filters: Filters = BY_LENGTH, top: int | None = None
) -> BlockComparison:
    return BlockComparison(LIMITS, np.arange(GROUP), filters, top, max_matches)


@pytest.fixture
def pair() -> tuple[RecordBlock, RecordBlock]:
    return named(0, "a").block, named(1, "b").block


@pytest.mark.parametrize("filters", [BY_LENGTH, Filters()])
def test_a_comparison_ends_at_too_many_matches(
    pair: tuple[RecordBlock, RecordBlock], filters: Filters
) -> None:
    complete = comparison(PAIRS, filters).compare(*pair)
    assert len(complete.pairs) == complete.tally.matches == PAIRS
    ended = comparison(PAIRS_AT_ONCE // 2, filters).compare(*pair)
    assert len(ended.pairs) == 0
    assert PAIRS_AT_ONCE // 2 < ended.tally.matches <= 2 * PAIRS_AT_ONCE


def test_only_the_best_pairs_are_matches(pair: tuple[RecordBlock, RecordBlock]) -> None:
    """Thus other pairs do not count towards the limit, with either kernel."""
    results = [
        comparison(RECORDS, filters, top=1).compare(*pair) for filters in (BY_LENGTH, Filters())
    ]
    assert results[0].pairs.tolist() == results[1].pairs.tolist()
    assert [result.tally.matches for result in results] == [RECORDS, RECORDS]


def test_blocks_after_the_limit_are_not_compared(pair: tuple[RecordBlock, RecordBlock]) -> None:
    compare = MatchLimit(PAIRS + 1).wrap(lambda job: comparison(PAIRS).compare(*job))
    results = [compare(pair) for _ in range(3)]
    assert [len(result.pairs) for result in results] == [PAIRS, 0, 0]
    assert [result.tally.matches for result in results] == [PAIRS, PAIRS, 0]


def test_matches_are_sent_in_batches(pair: tuple[RecordBlock, RecordBlock]) -> None:
    left, right = named(0, "a"), named(1, "b")
    result = comparison(PAIRS).compare(left.block, right.block)
    batches = list(to_record_batches(left, right, result))
    assert max(batch.num_rows for batch in batches) <= PAIRS_AT_ONCE
    table = pa.Table.from_batches(batches, RESULT)
    assert len(table.select(MATCHES.names).drop_null()) == PAIRS
    assert table["tally"].drop_null().to_pylist()[0][4] == PAIRS
    assert {len({*table[name].drop_null().to_pylist()}) for name in ("left", "right")} == {RECORDS}


def test_blocks_of_one_process_share_the_limit() -> None:
    """This holds also if an expected GPU is missing."""
    names = [("a", 0), ("b", 1), ("c", 1), ("d", 1)]
    rows = [
        {
            "block": name,
            "party": party,
            "ids": (block := named(party, name)).ids.to_pylist(),
            "ranks": block.block.ranks.tobytes(),
            "words": block.block.words.tobytes(),
        }
        for name, party in names
    ]
    pairs = [("a", "b"), ("a", "c"), ("a", "d")]
    batches = compare_batch([pa.RecordBatch.from_pylist(rows)], comparison(PAIRS), pairs, cores=1)
    table = pa.Table.from_batches(list(batches), RESULT)
    tallies = table["tally"].drop_null().to_pylist()
    assert len(tallies) == len(pairs)
    assert sum(tally[4] for tally in tallies) == 2 * PAIRS
    assert len(table) - len(tallies) == PAIRS
