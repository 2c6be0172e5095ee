"""Ranks inclusion dependencies by their likelihood of being references, with reasons.

An inclusion alone is weak evidence: the numbers from 1 to 5 are included in every longer count. A
reference points to a key, is named after it, and has many values, which cover much of the key's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from spark_jobs.profiling.columns import ProfiledColumn
from spark_jobs.result_ids import result_id

__all__ = ["RANKED", "Ranking", "name_similarity"]

RANKED: Final = (
    "id string, dependent_table string, dependent array<string>, referenced_table string, "
    "referenced array<string>, distinct_dependent long, distinct_referenced long, missing long, "
    "error double, coverage double, key double, names double, score double, why string"
)
_WEIGHT_ALONE: Final = 0.4
_WEIGHT_NAMES: Final = 0.3
_WEIGHT_VALUES: Final = 0.2
_WEIGHT_COVERAGE: Final = 0.1
_FEW_VALUES: Final = 10
_WORDS: Final = re.compile(r"[A-Z]?[^\W\d_A-Z]+|[A-Z]+(?![a-z])|\d+")


@dataclass(frozen=True, slots=True)
class Ranking:
    """The columns' data for the scores of dependencies.

    Attributes:
        columns: Columns by their number.
        values: The number of values of each column, with repetitions; columns without values are
            missing.
    """

    columns: Sequence[ProfiledColumn]
    values: Mapping[int, int]

    def kernel(self) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        def rank(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                if batch.num_rows:
                    yield pa.RecordBatch.from_pylist(
                        [self.row(column) for column in batch.to_pylist()]
                    )

        return rank

    def row(self, dependency: Mapping[str, Any]) -> dict[str, Any]:
        """Return a row of the result for a dependency between columns, by their numbers."""
        dependent = [self.columns[number] for number in dependency["dependent"]]
        referenced = [self.columns[number] for number in dependency["referenced"]]
        distinct, referenced_distinct = (
            dependency["distinct_dependent"],
            dependency["distinct_referenced"],
        )
        present = distinct - dependency["missing"]
        # A lower bound for several columns: rows that lack one of them have no tuple.
        values = min(self.values[number] for number in dependency["referenced"])
        names = [name_similarity(*pair) for pair in zip(dependent, referenced, strict=True)]
        return _score(
            {
                "id": result_id(_name(dependent), _name(referenced)),
                "dependent_table": dependent[0].table,
                "dependent": [column.path for column in dependent],
                "referenced_table": referenced[0].table,
                "referenced": [column.path for column in referenced],
                "distinct_dependent": distinct,
                "distinct_referenced": referenced_distinct,
                "missing": dependency["missing"],
                "error": dependency["missing"] / distinct,
                "coverage": present / referenced_distinct,
                "key": min(1.0, referenced_distinct / values),
                "names": sum(names) / len(names),
            }
        )


def name_similarity(dependent: ProfiledColumn, referenced: ProfiledColumn) -> float:
    """Return the share of the words of a name that also occur in the other name or its table.

    `customer_id` and `id` of `customers` agree, and so do `l_orderkey` and `o_orderkey`.
    """
    words, other = _words(dependent.path), _words(referenced.path) | _words(referenced.table)
    if _words(referenced.path) <= {"id", "key"} and not words - {"id", "key"}:
        return 0.0  # every table has an id, which is no evidence
    return len(words & other) / len(words) if words else 0.0


def _words(name: str) -> frozenset[str]:
    words = {word.lower() for word in _WORDS.findall(name)}
    long = {word for word in words if len(word) > 1} or words
    return frozenset(word.removesuffix("s") or word for word in long)


def _score(row: dict[str, Any]) -> dict[str, Any]:
    size = 1 - 1 / (1 + row["distinct_dependent"] / _FEW_VALUES)
    likelihood = (
        _WEIGHT_ALONE
        + _WEIGHT_NAMES * row["names"]
        + _WEIGHT_VALUES * size
        + _WEIGHT_COVERAGE * row["coverage"]
    )
    score = round(row["key"] * likelihood * (1 - row["error"]), 4)
    return {**row, "score": score, "why": _reason(row)}


def _reason(row: Mapping[str, Any]) -> str:
    distinct, missing = row["distinct_dependent"], row["missing"]
    present = f"All {distinct:,}" if not missing else f"{distinct - missing:,} of {distinct:,}"
    return (
        f"{present} distinct values occur there; they are {row['coverage']:.0%} of its distinct "
        f"values. It is {row['key']:.0%} unique. The names have {row['names']:.0%} in common."
    )


def _name(columns: Sequence[ProfiledColumn]) -> str:
    return f"{columns[0].table}({', '.join(column.path for column in columns)})"
