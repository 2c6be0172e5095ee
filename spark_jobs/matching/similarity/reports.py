"""What a run reports of its candidates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.matching.similarity.calibration import calibration_report
from spark_jobs.matching.similarity.spec import SimilaritySpec

__all__ = ["calibration", "uncertain"]

_UNCERTAIN: Final = 20


def calibration(matched: DataFrame, spec: SimilaritySpec) -> Mapping[str, Any]:
    """Report the share of each measure in a sample of candidates; empty: there are too few."""
    labels = [measure.label for measure in spec.measures]
    columns = [f.col("terms")[label].alias(str(at)) for at, label in enumerate(labels)]
    sample = (
        matched.where("kind = 'sample'").select(*columns).orderBy(*map(str, range(len(labels))))
    )
    terms = np.array([tuple(row) for row in sample.collect()], dtype=np.float64)
    if len(terms) < 2:  # noqa: PLR2004 - two values have an order
        return {}
    return calibration_report(labels, terms, [measure.weight for measure in spec.measures])


def uncertain(matched: DataFrame, spec: SimilaritySpec) -> list[Mapping[str, Any]]:
    """The candidates that the threshold divides the least clearly: a label tells most of them."""
    found = matched.where("kind = 'uncertain'")
    distance = f.abs(f.col("similarity") - spec.threshold * (1 - spec.relational))
    rows = found.orderBy(f.round(distance, 9), "left", "right").limit(_UNCERTAIN).collect()
    return [
        {
            "left": row["left"][0],
            "right": row["right"][0],
            "similarity": row["similarity"],
            "terms": row["terms"],
        }
        for row in rows
    ]
