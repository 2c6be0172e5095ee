"""Pairs of whole records, scored and explained like pairs of compared fields.

All functions work on Arrow tables, so any engine can call them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spark_jobs.linkage.open.spec import OpenSpec
from spark_jobs.linkage.open.strings import Floats, Rows
from spark_jobs.linkage.open.whole.assignment import Assignment, assign_pairs
from spark_jobs.linkage.open.whole.calibration import Calibration, calibrate
from spark_jobs.linkage.open.whole.features import Features
from spark_jobs.linkage.open.whole.neighbours import Neighbours, neighbours
from spark_jobs.runner.port import InputUnfit, StageContext

__all__ = ["COLUMNS", "MAX_RECORDS", "WholeRecordModel", "check_size", "match_records"]

COLUMNS: Final = ("row", "source", "known", "c0")
"""The columns read from prepared records."""
MAX_RECORDS: Final = 200_000
"""Maximum whole records: one process holds the features of all of them."""
_PATTERN_STEPS: Final = 100


def match_records(records: pa.Table, spec: OpenSpec, context: StageContext) -> pa.Table:
    """Pair each record with at most one of every other table.

    Args:
        records: Prepared records with `COLUMNS`; the text is the first comparison's.
        spec: A complete specification with `similarity`.
        context: Receives the report of the calibration.

    Returns:
        ``l`` and ``r`` (rows, l < r), ``rules`` (0), ``pattern`` (see `WholeRecordModel`), and
        ``rarity``, the log2 odds of a match.

    Raises:
        InputUnfit: There are too many records.
    """
    assert spec.similarity is not None
    check_size(records.num_rows)
    records = records.sort_by("row").combine_chunks()
    source = records.column("source").to_numpy().astype(np.int16)
    features = Features.of(records.column("c0"))
    candidates = neighbours(features, source, spec.similarity.neighbours, within=spec.within)
    best = assign_pairs(_without_known(candidates, records), source)
    decoys = assign_pairs(best.rejected, source)
    calibration = calibrate(
        (best.chosen.similarity, best.lead), (decoys.chosen.similarity, decoys.lead)
    )
    context.report("similarity", calibration.to_json())
    return _pairs(best, records.column("row").to_numpy(), calibration)


def check_size(records: int) -> None:
    """Raise `InputUnfit` if there are too many records."""
    if records > MAX_RECORDS:
        raise InputUnfit(
            f"/similarity: {records:,} records are more than the {MAX_RECORDS:,} that are "
            "compared as a whole. Give blocking and comparisons instead."
        )


def _without_known(pairs: Neighbours, records: pa.Table) -> Neighbours:
    known = records.column("known").is_valid().to_numpy()
    new = ~(known[pairs.i] & known[pairs.j])
    return Neighbours(*(values[new] for values in pairs))


def _pairs(best: Assignment, rows: Rows, calibration: Calibration) -> pa.Table:
    left, right = rows[best.chosen.i], rows[best.chosen.j]
    return pa.table(
        {
            "l": np.minimum(left, right),
            "r": np.maximum(left, right),
            "rules": np.zeros(len(left), np.int64),
            "pattern": _pattern(best.chosen.similarity, best.lead),
            "rarity": calibration.bits(best.chosen.similarity, best.lead),
        }
    )


def _pattern(similarity: Floats, lead: Floats) -> Rows:
    steps = np.rint(np.clip(np.stack([similarity, lead]), 0.0, 1.0) * _PATTERN_STEPS).astype(
        np.int64
    )
    pattern: Rows = steps[0] * (_PATTERN_STEPS + 1) + steps[1]
    return pattern


@dataclass(frozen=True, slots=True)
class WholeRecordModel:
    """Replaces a model of fields: each pair has its own odds, and a pattern explains them.

    A pattern is the similarity of a pair and its lead, in hundredths.
    """

    columns: Sequence[str]

    def pattern_bits(self, patterns: Rows) -> Floats:
        return np.zeros(len(patterns))

    def usual_rarity(self, _pattern: int) -> float:
        return 0.0

    def explanation(self, pattern: int) -> str:
        similarity, lead = (value / _PATTERN_STEPS for value in divmod(pattern, _PATTERN_STEPS + 1))
        return (
            f"What both records share in {', '.join(self.columns)}, weighted by its rarity, makes "
            f"them similar by {similarity:.2f}, which is {lead:.2f} more than with any other "
            "record that was left for either."
        )

    def to_json(self) -> dict[str, Any]:
        return {"similarity": list(self.columns)}
