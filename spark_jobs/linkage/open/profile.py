"""Profiles of columns by a sample of the records: nulls, distinct values, kind of values."""

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
    "numbered",
    "pairs_of",
    "profile",
    "sampled_columns",
]

SAMPLE: Final = 20_000
_MOST_COLUMNS: Final = 64
_MOSTLY: Final = 0.9
_FEW_VALUES: Final = 30
_TEXT_WORDS: Final = 4
_MEASURED: Final = r"^\s*-?\d+\.\d+\s*$|[\p{L}\p{Sc}%\"″]"
"""A decimal point, or a unit: other numbers may name something."""


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
    """Records sampled evenly, normalised and raw, column by column.

    `rows` were sampled of `records`, which make `pairs` that may be compared.
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
    """One column: what it holds, the share of nulls, mean numbers of characters and words.

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
    """Draw records, of the columns that all inputs have.

    Raises:
        InputUnfit: They have none in common, or no records.
    """
    frames = [context.input(input_.name) for input_ in spec.inputs]
    names = sampled_columns(spec, [frame.columns for frame in frames])
    counts = [frame.count() for frame in frames]
    return as_sample(_draw(frames, names), names, counts, within=spec.within)


def sampled_columns(spec: OpenSpec, columns: Sequence[Sequence[str]]) -> Sequence[str]:
    """Return the columns that all inputs have.

    Raises:
        InputUnfit: There are none.
    """
    shared = set.intersection(*({*names} for names in columns)) - {"id", spec.truth}
    if not shared:
        raise InputUnfit("The inputs have no column in common besides their ids.")
    return sorted(shared)[:_MOST_COLUMNS]


def as_sample(
    sample: pa.Table, names: Sequence[str], counts: Sequence[int], *, within: bool
) -> RecordSample:
    """Return sampled records, whose column ``v<n>`` is the n-th name; inputs have `counts` rows."""
    raw = {name: sample.column(f"v{at}").combine_chunks() for at, name in enumerate(names)}
    columns = {name: normalise(values) for name, values in raw.items()}
    pairs = pairs_of(counts, within=within)
    return RecordSample(columns, raw, sample.num_rows, sum(counts), pairs)


def _draw(frames: Sequence[DataFrame], names: Sequence[str]) -> pa.Table:
    values = [quoted(name).cast("string").alias(f"v{at}") for at, name in enumerate(names)]
    parts = [frame.select("id", f.lit(at).alias("s"), *values) for at, frame in enumerate(frames)]
    whole = reduce(DataFrame.unionByName, parts)
    # Ordered by a hash: an even sample, and the same one each time.
    return whole.orderBy(f.xxhash64("id", "s"), "id", "s").limit(SAMPLE).toArrow()


def pairs_of(counts: Sequence[int], *, within: bool) -> float:
    """Return the pairs of sources with these numbers of records, at least one."""
    total = float(sum(counts))
    less = total if within else float(sum(count * count for count in counts))
    return max(1.0, (total * total - less) / 2)


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
        chance=agreement_by_chance([numbered(values)]),
        length=length,
        words=words,
    )


def _value_kind_of(present: pa.Array, raw: pa.Array, distinct: int, words: float) -> ValueKind:
    digits = pc.replace_substring_regex(present, "[^0-9]", "")
    if _share(digits, r"^\d{4}(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])$") > _MOSTLY:
        return ValueKind.DATE
    if _share(present, r"^(1\d|20)\d\d$") > _MOSTLY:
        return ValueKind.YEAR
    if _share(raw, _MEASURED) > _MOSTLY and _mean(as_quantities(raw).is_valid()) > _MOSTLY:
        return ValueKind.NUMBER
    if distinct <= _FEW_VALUES:
        return ValueKind.CATEGORY
    if _share(present, r"\d") > _MOSTLY and words < 2:  # noqa: PLR2004 - a single word
        return ValueKind.CODE
    return ValueKind.TEXT if words >= _TEXT_WORDS else ValueKind.NAME


def _share(values: pa.Array, pattern: str) -> float:
    return _mean(pc.match_substring_regex(values, pattern))


def _mean(flags: pa.Array) -> float:
    return float(pc.mean(flags.cast("double")).as_py() or 0.0)


def numbered(values: pa.Array) -> NDArray[np.int64]:
    """A number for each different value; -1 for null."""
    codes = values.dictionary_encode().indices.fill_null(-1)
    found: NDArray[np.int64] = codes.to_numpy().astype(np.int64)
    return found


def agreement_by_chance(columns: Sequence[NDArray[np.int64]]) -> float:
    """The probability that two records of a sample agree on all of these; null never agrees.

    Args:
        columns: Of numbers, as `numbered` returns them.
    """
    present = np.logical_and.reduce([codes >= 0 for codes in columns])
    joined = columns[0][present]
    for codes in columns[1:]:
        joined = joined * (codes.max(initial=0) + 1) + codes[present]
    counts = np.unique(joined, return_counts=True)[1].astype(np.float64)
    rows = len(columns[0])
    return float((counts * (counts - 1)).sum()) / max(1.0, rows * (rows - 1.0))
