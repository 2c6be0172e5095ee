"""Letters that take more than a byte, for DuckDB measures spelling in bytes.

Prepared values have neither capitals nor punctuation, so codes of one byte are free. Which of them
stands for which letter is no matter to a distance.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.linkage.open.spec import Measure, OpenSpec

__all__ = ["FREE", "non_ascii_characters", "spelled"]

_SPELLED: Final = {Measure.LEVENSHTEIN, Measure.JARO_WINKLER}
_TAKEN: Final = "abcdefghijklmnopqrstuvwxyz0123456789 "

FREE: Final = "".join(chr(code) for code in range(1, 128) if chr(code) not in _TAKEN)
"""Codes of one byte that stand for other letters."""


def spelled(spec: OpenSpec) -> Iterator[int]:
    """Comparisons that look at spelling."""
    for k, comparison in enumerate(spec.comparisons):
        if any(level.measure in _SPELLED for level in comparison.levels):
            yield k


def non_ascii_characters(records: DataFrame, spec: OpenSpec) -> str:
    """Letters of more than a byte in what is compared by spelling; one more than `FREE` at most."""
    columns = [f.col(f"c{k}") for k in spelled(spec)]
    if not columns:
        return ""
    each = f.regexp_extract_all(f.concat_ws("", *columns), f.lit(r"([^\x00-\x7f])"), f.lit(1))
    found = records.select(f.explode(each).alias("letter")).distinct().limit(len(FREE) + 1)
    return "".join(sorted(found.toArrow().column("letter").to_pylist()))
