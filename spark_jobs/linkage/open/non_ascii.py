"""Characters of more than a byte, which DuckDB's measures of spelling count as several.

Prepared values have neither capitals nor punctuation, so their codes of one byte are spare. A
distance is the same whichever of them stands for a character.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.linkage.open.spec import Measure, OpenSpec

__all__ = ["SPARE_CODES", "compared_by_characters", "non_ascii_characters"]

_BY_CHARACTERS: Final = {Measure.LEVENSHTEIN, Measure.JARO_WINKLER}
_USED: Final = "abcdefghijklmnopqrstuvwxyz0123456789 "

SPARE_CODES: Final = "".join(chr(code) for code in range(1, 128) if chr(code) not in _USED)
"""Codes of one byte that may stand for other characters."""


def compared_by_characters(spec: OpenSpec) -> Iterator[int]:
    """The numbers of comparisons by spelling."""
    for k, comparison in enumerate(spec.comparisons):
        if any(level.measure in _BY_CHARACTERS for level in comparison.levels):
            yield k


def non_ascii_characters(records: DataFrame, spec: OpenSpec) -> str:
    """Return characters beyond ASCII in values compared by spelling; one too many is enough."""
    columns = [f.col(f"c{k}") for k in compared_by_characters(spec)]
    if not columns:
        return ""
    each = f.regexp_extract_all(f.concat_ws("", *columns), f.lit(r"([^\x00-\x7f])"), f.lit(1))
    characters = (
        records.select(f.explode(each).alias("character")).distinct().limit(len(SPARE_CODES) + 1)
    )
    return "".join(sorted(characters.toArrow().column("character").to_pylist()))
