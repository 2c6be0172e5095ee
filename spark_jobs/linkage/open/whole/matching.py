"""Pairs of whole records, as pairs of compared fields would be: scored, and with reasons.

Everything here is a function of Arrow tables: it needs no engine, and any engine can call it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spark_jobs.linkage.open.spec import OpenSpec
from spark_jobs.linkage.open.strings import Floats, Rows
from spark_jobs.linkage.open.whole.assignment import Assigned, assigned
from spark_jobs.linkage.open.whole.calibration import Calibration, calibrated
from spark_jobs.linkage.open.whole.features import Features
from spark_jobs.linkage.open.whole.neighbours import Neighbours, neighbours
from spark_jobs.runner.port import InputUnfit, StageContext

__all__ = ["COLUMNS", "MOST_RECORDS", "WholeRecordModel", "check_size", "matched"]

COLUMNS: Final = ("row", "source", "known", "c0")
"""What is read of prepared records."""
MOST_RECORDS: Final = 200_000
"""Whole records are compared in one process, which holds the features of all of them."""
_STEPS: Final = 100


def matched(records: pa.Table, spec: OpenSpec, context: StageContext) -> pa.Table:
    """Pair each record with at most one of every other table.

    Args:
        records: Prepared, of `COLUMNS`; the text is the first comparison's.
        spec: Complete, with `similarity`.
        context: Where the calibration is reported.

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
    found = neighbours(features, source, spec.similarity.neighbours, within=spec.within)
    best = assigned(_not_yet_known(found, records), source)
    decoys = assigned(best.others, source)
    calibration = calibrated(
        (best.chosen.similarity, best.lead), (decoys.chosen.similarity, decoys.lead)
    )
    context.report("similarity", calibration.to_json())
    return _pairs(best, records.column("row").to_numpy(), calibration)


def check_size(records: int) -> None:
    """Raise `InputUnfit` if so many records are too many."""
    if records > MOST_RECORDS:
        raise InputUnfit(
            f"/similarity: {records:,} records are more than the {MOST_RECORDS:,} that are "
            "compared as a whole. Give blocking and comparisons instead."
        )


def _not_yet_known(pairs: Neighbours, records: pa.Table) -> Neighbours:
    known = records.column("known").is_valid().to_numpy()
    new = ~(known[pairs.i] & known[pairs.j])
    return Neighbours(*(values[new] for values in pairs))


def _pairs(best: Assigned, rows: Rows, calibration: Calibration) -> pa.Table:
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
    steps = np.rint(np.clip(np.stack([similarity, lead]), 0.0, 1.0) * _STEPS).astype(np.int64)
    pattern: Rows = steps[0] * (_STEPS + 1) + steps[1]
    return pattern


@dataclass(frozen=True, slots=True)
class WholeRecordModel:
    """What stands for a model of fields: the odds of a pair are its own, a pattern explains them.

    A pattern is the similarity of a pair and its lead, in hundredths.
    """

    columns: Sequence[str]

    def pattern_bits(self, patterns: Rows) -> Floats:
        return np.zeros(len(patterns))

    def usual_rarity(self, _pattern: int) -> float:
        return 0.0

    def explanation(self, pattern: int) -> str:
        similarity, lead = (part / _STEPS for part in divmod(pattern, _STEPS + 1))
        return (
            f"What both records share in {', '.join(self.columns)}, weighted by its rarity, makes "
            f"them similar by {similarity:.2f}, which is {lead:.2f} more than with any other "
            "record that was left for either."
        )

    def to_json(self) -> dict[str, Any]:
        return {"similarity": list(self.columns)}
