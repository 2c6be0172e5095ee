"""A small table is linked with a large one: chance agreement is also estimated between them."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.harness.synthetic_people import Person, people
from spark_jobs.linkage.open.agreement import pattern_levels
from spark_jobs.linkage.open.chance import random_patterns
from spark_jobs.linkage.open.spec import OpenSpec
from tests.unit.linkage.memory_context import MemoryContext, text_table

SPEC = {
    "inputs": {"large": {"file": "large.csv"}, "small": {"file": "small.csv"}},
    "blocking": [["phone"], ["date_of_birth"], ["surname"]],
    "comparisons": [
        {"columns": ["given_name"], "levels": ["exact", {"jaro_winkler": 0.85}]},
        {"columns": ["surname"], "levels": ["exact", {"levenshtein": 1}]},
        {"columns": ["phone"], "levels": ["exact"]},
        {"columns": ["date_of_birth"], "levels": ["exact", {"levenshtein": 1}]},
    ],
    "truth": "entity",
}


@pytest.fixture(scope="module")
def persons() -> list[list[Person]]:
    """The records of each of twenty thousand people."""
    records: defaultdict[str | None, list[Person]] = defaultdict(list)
    for row in people(20_000, 2, seed=5):
        records[row["entity"]].append(row)
    return [*records.values()]


@pytest.mark.parametrize("seed", [1, 2])
def test_two_records_find_their_matches_in_a_large_table(
    persons: list[list[Person]], seed: int
) -> None:
    small = [records[1] for records in persons if len(records) > 1][:2]
    tables: dict[str, pa.Table] = {
        "large": text_table([records[0] for records in persons]),
        "small": text_table(small),
    }
    context = MemoryContext(tables)
    context.execute(OpenSpec.parse({**SPEC, "engine": "local", "seed": seed}))
    pairwise = context.reports["evaluation"]["pairwise"]
    assert pairwise["recall"] == 1.0
    assert pairwise["precision"] == 1.0


THREE = OpenSpec.parse(
    {
        "inputs": {name: {"file": f"{name}.csv"} for name in "abc"},
        "blocking": [["name"]],
        "comparisons": [{"columns": ["name"], "levels": ["exact"]}],
    }
)


@pytest.mark.parametrize("max_pairs", [10_000, 500_000])
def test_pairs_are_sampled_in_the_proportions_of_the_whole_tables(max_pairs: int) -> None:
    """Tables of 1,000, 10,000 and 100,000 records, of which 50, 400 and 400 were sampled."""
    sizes, sampled = [1_000, 10_000, 100_000], [50, 400, 400]
    source = np.repeat(np.arange(3), sampled)
    # Records of the first two tables agree with each other; those of the third with no others.
    names = ["b" if table == 2 else "a" for table in source.tolist()]
    sample = pa.table({"source": source, "c0": pa.array(names)}).combine_chunks()
    patterns, counts = random_patterns(sample, sizes, THREE, max_pairs)
    levels = pattern_levels(THREE.comparisons, patterns)[:, 0]
    assert counts.sum() == pytest.approx(min(max_pairs, 50 * 400 * 2 + 400 * 400))
    expected = 1_000 * 10_000 / (1_000 * 10_000 + 1_000 * 100_000 + 10_000 * 100_000)
    assert counts[levels == 1].sum() / counts.sum() == pytest.approx(expected, rel=0.3)


def test_an_empty_table_is_in_no_pair() -> None:
    sample = pa.table({"source": np.array([0, 0, 2]), "c0": pa.array(["a", "a", "a"])})
    _, counts = random_patterns(sample.combine_chunks(), [2, 0, 1], THREE, 100)
    assert counts.tolist() == [2.0]
    _, counts = random_patterns(sample.slice(0, 2).combine_chunks(), [2, 0, 0], THREE, 100)
    assert counts.tolist() == []
