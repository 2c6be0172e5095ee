"""Profiles of columns from a sample of the records: nulls, distinct values, kind of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.columns import quoted
from spark_jobs.linkage.open.prepared import normalise
from spark_jobs.linkage.open.quantities import as_quantities
from spark_jobs.linkage.open.spec import OpenSpec
from spark_jobs.runner.port import InputUnfit, StageContext

__all__ = [
    "SAMPLE",
    "Profile",
    "RecordSample",
    "ValueKind",
    "agreement_by_chance",
    "as_sample",
    "draw_sample",
    "pairs_of",
    "profile",
    "sampled_columns",
    "value_codes",
]

SAMPLE: Final = 20_000
_MAX_COLUMNS: Final = 64
_MIN_SHARE: Final = 0.9
_MAX_CATEGORIES: Final = 30
_MIN_TEXT_WORDS: Final = 4
_MEASUREMENT: Final = r"^\s*-?\d+\.\d+\s*$|[\p{L}\p{Sc}%\"″]"
"""A decimal point or a unit: other numbers may be identifiers."""


class ValueKind(StrEnum):
    DATE = "dates"
    YEAR = "years"
    NUMBER = "numbers"
    CODE = "codes"
    CATEGORY = "categories"
    NAME = "names"
    TEXT = "texts"


@dataclass(frozen=True, slots=True)
class RecordSample:
    """Evenly sampled records, normalised and raw, column by column.

    `rows` of `records` were sampled; the records form `pairs` that can be compared.
    """

    columns: Mapping[str, pa.Array]
    raw: Mapping[str, pa.Array]
    rows: int
    records: int
    pairs: float

    @property
    def within(self) -> bool:
        """Whether records of one table are compared with each other."""
        return self.pairs >= pairs_of([self.records], within=True)


@dataclass(frozen=True, slots=True)
class Profile:
    """One column: its kind of values, share of nulls, mean numbers of characters and words.

    `chance` is the probability that two records have the same value.
    """

    name: str
    value_kind: ValueKind
    nulls: float
    distinct: int
    chance: float
    length: float
    words: float

    def to_json(self) -> dict[str, Any]:
        return {
            "column": self.name,
            "holds": self.value_kind.value,
            "nulls": round(self.nulls, 4),
            "distinct": self.distinct,
            "same_by_chance": float(f"{self.chance:.3g}"),
            "length": round(self.length, 1),
            "words": round(self.words, 2),
        }


def draw_sample(spec: OpenSpec, context: StageContext) -> RecordSample:
    """Draw a sample of records, with the columns that all inputs have.

    Raises:
        InputUnfit: The inputs have no common column, or no records.
    """
    frames = [context.input(input_.name) for input_ in spec.inputs]
    names = sampled_columns(spec, [frame.columns for frame in frames])
    counts = [frame.count() for frame in frames]
    return as_sample(_draw(frames, names), names, counts, within=spec.within)


def sampled_columns(spec: OpenSpec, columns: Sequence[Sequence[str]]) -> Sequence[str]:
    """Return the columns that all inputs have.

    Raises:
        InputUnfit: They have no common column.
    """
    shared = set.intersection(*({*names} for names in columns)) - {"id", spec.truth}
    if not shared:
        raise InputUnfit("The inputs have no column in common besides their ids.")
    return sorted(shared)[:_MAX_COLUMNS]


def as_sample(
    sample: pa.Table, names: Sequence[str], counts: Sequence[int], *, within: bool
) -> RecordSample:
    """Return sampled records; column ``v<n>`` is the n-th name, inputs have `counts` rows."""
    raw = {name: sample.column(f"v{at}").combine_chunks() for at, name in enumerate(names)}
    columns = {name: normalise(values) for name, values in raw.items()}
    pairs = pairs_of(counts, within=within)
    return RecordSample(columns, raw, sample.num_rows, sum(counts), pairs)


def _draw(frames: Sequence[DataFrame], names: Sequence[str]) -> pa.Table:
    values = [quoted(name).cast("string").alias(f"v{at}") for at, name in enumerate(names)]
    parts = [frame.select("id", f.lit(at).alias("s"), *values) for at, frame in enumerate(frames)]
    records = reduce(DataFrame.unionByName, parts)
    # Ordered by a hash: an even and repeatable sample.
    return records.orderBy(f.xxhash64("id", "s"), "id", "s").limit(SAMPLE).toArrow()


def pairs_of(counts: Sequence[int], *, within: bool) -> float:
    """Return the pairs of sources with these numbers of records; at least 1."""
    total = float(sum(counts))
    excluded = total if within else float(sum(count * count for count in counts))
    return max(1.0, (total * total - excluded) / 2)


def profile(sample: RecordSample) -> tuple[Profile, ...]:
    """Profile every column that has a value."""
    return tuple(
        _profile(name, values, sample.raw[name])
        for name, values in sample.columns.items()
        if values.null_count < len(values)
    )


def _profile(name: str, values: pa.Array, raw: pa.Array) -> Profile:
    present = values.drop_null()
    length = float(pc.mean(pc.utf8_length(present)).as_py())
    words = 1 + float(pc.mean(pc.count_substring(present, " ")).as_py())
    distinct = len(present.unique())
    return Profile(
        name=name,
        value_kind=_value_kind_of(present, raw.drop_null(), distinct, words),
        nulls=values.null_count / len(values),
        distinct=distinct,
        chance=agreement_by_chance([value_codes(values)]),
        length=length,
        words=words,
    )


def _value_kind_of(present: pa.Array, raw: pa.Array, distinct: int, words: float) -> ValueKind:
    digits = pc.replace_substring_regex(present, "[^0-9]", "")
    if _share(digits, r"^\d{4}(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])$") > _MIN_SHARE:
        return ValueKind.DATE
    if _share(present, r"^(1\d|20)\d\d$") > _MIN_SHARE:
        return ValueKind.YEAR
    if _share(raw, _MEASUREMENT) > _MIN_SHARE and _mean(as_quantities(raw).is_valid()) > _MIN_SHARE:
        return ValueKind.NUMBER
    if distinct <= _MAX_CATEGORIES:
        return ValueKind.CATEGORY
    if _share(present, r"\d") > _MIN_SHARE and words < 2:  # noqa: PLR2004 - a single word
        return ValueKind.CODE
    return ValueKind.TEXT if words >= _MIN_TEXT_WORDS else ValueKind.NAME


def _share(values: pa.Array, pattern: str) -> float:
    return _mean(pc.match_substring_regex(values, pattern))


def _mean(flags: pa.Array) -> float:
    return float(pc.mean(flags.cast("double")).as_py() or 0.0)


def value_codes(values: pa.Array) -> NDArray[np.int64]:
    """Return a number for each distinct value; -1 for null."""
    codes = values.dictionary_encode().indices.fill_null(-1)
    numbers: NDArray[np.int64] = codes.to_numpy().astype(np.int64)
    return numbers


def agreement_by_chance(columns: Sequence[NDArray[np.int64]]) -> float:
    """Return the probability that two sampled records agree on all columns; null never agrees.

    Args:
        columns: Numbers of values from `value_codes`.
    """
    present = np.logical_and.reduce([codes >= 0 for codes in columns])
    combined = columns[0][present]
    for codes in columns[1:]:
        combined = combined * (codes.max(initial=0) + 1) + codes[present]
    counts = np.unique(combined, return_counts=True)[1].astype(np.float64)
    rows = len(columns[0])
    return float((counts * (counts - 1)).sum()) / max(1.0, rows * (rows - 1.0))
